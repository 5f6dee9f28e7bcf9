"""Every test module of the checkout is run by exactly one tier of tests, and has a name of its own.

`[tool.onecopy.tests]` in pyproject.toml lists the folders (or modules) of each tier: a list of lists of paths. `make
nightly` runs the modules of all folders in one process, where pytest imports them by their names.
"""

import tomllib
from pathlib import Path

from tests.support.places import ROOT

AGAIN = {"sanitized"}
"""Tiers that run modules of other tiers a second time, in another way."""


def faults(root: Path) -> list[str]:
    """List what is wrong with the tiers of a checkout."""
    tiers = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["onecopy"]["tests"]
    once = [path for name, tier in tiers.items() if name not in AGAIN for paths in tier for path in paths]
    again = [path for name in AGAIN & set(tiers) for paths in tiers[name] for path in paths]
    found = [f"{path}: no such folder or module" for path in once + again if not (root / path).exists()]
    found += [f"{path}: not in a tier" for path in again if not any(f"{path}/".startswith(f"{one}/") for one in once)]
    seen: dict[str, str] = {}
    for module in sorted(
        path.relative_to(root) for top in ("tests", "packages") for path in (root / top).rglob("test_*.py")
    ):
        above = [path for path in once if f"{module}/".startswith(f"{path}/")]
        if len(above) != 1:
            found.append(f"{module}: in {len(above)} tiers")
        if module.name in seen:
            found.append(f"{module}: the name of {seen[module.name]}")
        seen[module.name] = str(module)
    return found


def test_every_test_module_is_in_exactly_one_tier_and_has_a_name_of_its_own() -> None:
    assert faults(ROOT) == []


def test_planted_faults_are_found(tmp_path: Path) -> None:
    for name in ("a/test_x.py", "b/deep/test_y.py", "c/test_one.py", "c/test_two.py", "ab/test_x.py", "b/helper.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text("")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.onecopy.tests]\nfast = [["tests/a", "tests/b"], ["tests/c/test_one.py"]]\n'
        'all = [["tests/b/deep", "tests/gone"]]\nsanitized = [["tests/a", "tests/ab"]]\n'
    )
    assert faults(tmp_path) == [
        "tests/gone: no such folder or module",
        "tests/ab: not in a tier",
        "tests/ab/test_x.py: in 0 tiers",
        "tests/ab/test_x.py: the name of tests/a/test_x.py",
        "tests/b/deep/test_y.py: in 2 tiers",
        "tests/c/test_two.py: in 0 tiers",
    ]
