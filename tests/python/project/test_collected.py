"""Every test module of the checkout is run by some tier of tests: none is forgotten when folders move.

`[tool.onecopy.tests]` in pyproject.toml lists the folders (or modules) of each tier: a list of paths, or a list of such
lists where a tier runs several pytest processes. `make nightly` runs the modules of all folders in one process, where
pytest imports them by their names, so that no two may have the same.
"""

import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.places import ROOT

AGAIN = {"sanitized"}
"""Tiers that run modules of other tiers a second time, in another way."""
FAKE = {"fast": [["tests/a", "tests/b"], ["tests/c/test_one.py"]], "all": ["tests/d"]}
"""A table of tiers for the tests of the helpers."""


def tiers_of(root: Path) -> dict[str, Any]:
    """Return the table of tiers; KeyError where pyproject.toml has none."""
    found: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["onecopy"]["tests"]
    return found.get("tiers", found)


def first_tiers(root: Path) -> dict[str, Any]:
    """Return the tiers without those that run modules of another tier again."""
    return {name: tier for name, tier in tiers_of(root).items() if name not in AGAIN}


def listed_in(tier: Any) -> Iterator[str]:
    """Give the paths of a tier, however deep its lists are."""
    if isinstance(tier, str):
        yield tier.rstrip("/")
    else:
        for one in tier.values() if isinstance(tier, dict) else tier:
            yield from listed_in(one)


def modules_in(root: Path) -> list[str]:
    """List test_*.py of a checkout: what git tracks or would add; without git, whatever is there."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--", "*test_*.py"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = [root / line for line in done.stdout.splitlines()]
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout: an unpacked sdist
        hidden = {".venv", "build", "dist", ".git"}
        found = [path for path in root.rglob("test_*.py") if not hidden & set(path.relative_to(root).parts)]
    there = {path for path in found if path.name.startswith("test_") and path.exists()}
    return sorted(path.relative_to(root).as_posix() for path in there)


def wrongly_collected(modules: Iterable[str], listed: list[str]) -> dict[str, list[str]]:
    """Return the modules that do not lie below exactly one listed path, each with the paths that it lies below."""
    found = {}
    for module in modules:
        above = [path for path in listed if module == path or module.startswith(f"{path}/")]
        if len(above) != 1:
            found[module] = above
    return found


def namesakes(modules: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that several modules have, each with the paths of these."""
    found: dict[str, list[str]] = {}
    for module in modules:
        found.setdefault(Path(module).name, []).append(module)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def missing_paths(root: Path, listed: Iterable[str]) -> list[str]:
    """Return the listed paths that do not exist."""
    return [path for path in listed if not (root / path).exists()]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give a folder with a test module in each path of `FAKE`; it is no checkout of git."""
    for name in ("a/test_x.py", "b/deep/test_y.py", "c/test_one.py", "d/test_z.py", "d/helper.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text("")
    return tmp_path


def test_every_test_module_is_in_exactly_one_tier() -> None:
    modules = modules_in(ROOT)
    assert len(modules) > 100, "the list of modules is not what it should be"
    assert wrongly_collected(modules, list(listed_in(first_tiers(ROOT)))) == {}


def test_every_test_module_has_a_name_of_its_own() -> None:
    assert namesakes(modules_in(ROOT)) == {}


def test_modules_of_one_name_are_seen(tree: Path) -> None:
    (tree / "tests/d/test_x.py").write_text("")
    assert namesakes(modules_in(tree)) == {"test_x.py": ["tests/a/test_x.py", "tests/d/test_x.py"]}


def test_a_tier_that_runs_modules_again_has_none_of_its_own() -> None:
    again = [listed_in(tier) for name, tier in tiers_of(ROOT).items() if name in AGAIN]
    first = [path for tier in first_tiers(ROOT).values() for path in listed_in(tier)]
    own = [path for tier in again for path in tier if not any(f"{path}/".startswith(f"{one}/") for one in first)]
    assert own == []


def test_every_listed_path_exists() -> None:
    assert missing_paths(ROOT, listed_in(tiers_of(ROOT))) == []


def test_the_modules_of_a_tree_are_found_without_git(tree: Path) -> None:
    assert modules_in(tree) == [
        "tests/a/test_x.py",
        "tests/b/deep/test_y.py",
        "tests/c/test_one.py",
        "tests/d/test_z.py",
    ]
    assert wrongly_collected(modules_in(tree), list(listed_in(FAKE))) == {}
    assert missing_paths(tree, listed_in(FAKE)) == []


@pytest.mark.parametrize("name", ["tests/test_planted.py", "tests/c/test_two.py", "tests/ab/test_planted.py"])
@pytest.mark.parametrize("with_git", [False, True])
def test_a_planted_module_in_no_tier_is_seen(tree: Path, name: str, with_git: bool) -> None:
    if with_git:
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text("")
    assert wrongly_collected(modules_in(tree), list(listed_in(FAKE))) == {name: []}


def test_a_module_in_two_tiers_is_seen(tree: Path) -> None:
    listed = [*listed_in(FAKE), "tests/b/deep/"]
    assert wrongly_collected(modules_in(tree), [path.rstrip("/") for path in listed]) == {
        "tests/b/deep/test_y.py": ["tests/b", "tests/b/deep"]
    }


def test_a_listed_path_that_is_gone_is_seen(tree: Path) -> None:
    assert missing_paths(tree, [*listed_in(FAKE), "tests/gone"]) == ["tests/gone"]


def test_a_tier_that_runs_modules_again_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.onecopy.tests]\nfast = [["tests/a"]]\nsanitized = [["tests/a", "tests/b"]]\n'
    )
    assert list(listed_in(first_tiers(tmp_path))) == ["tests/a"]


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    with pytest.raises(KeyError, match="onecopy"):
        tiers_of(tmp_path)


def test_the_table_is_read_in_both_spellings(tmp_path: Path) -> None:
    for head in ("[tool.onecopy.tests]", "[tool.onecopy.tests.tiers]"):
        (tmp_path / "pyproject.toml").write_text(f'{head}\nfast = [["tests/a"], ["tests/b/"]]\nall = ["tests/d"]\n')
        assert list(listed_in(tiers_of(tmp_path))) == ["tests/a", "tests/b", "tests/d"]
