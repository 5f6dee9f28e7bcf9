"""What a release is made of agrees with itself: one version everywhere, and a configuration that names what is there.

That wheels and sdist work is asked by `make dist check-dist`, which takes minutes and is no part of `make test`.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.support.places import ROOT

import onecopy as oc
from onecopy import _core

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
GROUPS = PROJECT["dependency-groups"]
PACKAGES = [tomllib.loads(path.read_text())["project"] for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]


def test_cmake_reads_the_version_also_where_it_is_of_a_candidate(tmp_path):
    lines = (ROOT / "CMakeLists.txt").read_text().partition("\nproject(")[0].splitlines()
    script = "\n".join(line for line in lines if not line.startswith(("cmake_minimum", "set_property")))
    (tmp_path / "read.cmake").write_text(f'{script}\nmessage("${{ONECOPY_VERSION}}|${{CMAKE_MATCH_2}}")\n')
    command = ["cmake", "-P", "read.cmake"]
    for version, numbers in (("0.1.0", "0.1.0"), ("1.20.3rc1", "1.20.3"), ("0.2.0.dev0", "0.2.0")):
        (tmp_path / "pyproject.toml").write_text(f'minversion = "9.0"\nversion = "{version}"\n')
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr.strip() == f"{version}|{numbers}"


def test_all_say_the_version_of_pyproject_and_the_changelog_and_the_citation_that_of_the_newest_release():
    assert VERSION == oc.__version__ == _core.version() == importlib.metadata.version("onecopy")
    number, date = re.findall(r"^## (\d\S*) - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert f'\nversion: {number}\ndate-released: "{date}"\n' in (ROOT / "CITATION.cff").read_text()
    assert number == VERSION or re.search(r"(dev|a|b|rc)\d+$", VERSION)


def test_one_command_sets_the_version_wherever_it_is_written(tmp_path):
    names = ["tools/set_version.py", "CITATION.cff", "CHANGELOG.md", "pyproject.toml"]
    names += [f"packages/{package['name'].removeprefix('onecopy-')}/pyproject.toml" for package in PACKAGES]
    cmake = ["examples/c/CMakeLists.txt", "examples/cmake_consumer/CMakeLists.txt"]
    cmake += ["docs/howto/c.md", "docs/howto/cpp-structures.md"]
    for name in (*names, *cmake, "conda/recipe.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    log = tmp_path / "CHANGELOG.md"
    log.write_text(log.read_text().replace("\n## ", "\n## Unreleased\n\n* New.\n\n## ", 1))
    command = [sys.executable, tmp_path / "tools/set_version.py", "7.8.9", "2030-01-02"]
    subprocess.run(command, check=True)
    assert "\n## 7.8.9 - 2030-01-02\n\n* New.\n" in log.read_text()
    assert 'version: 7.8.9\ndate-released: "2030-01-02"\n' in (tmp_path / "CITATION.cff").read_text()
    for name in names[3:]:
        text = (tmp_path / name).read_text()
        assert 'version = "7.8.9"' in text
        assert set(re.findall(r'"onecopy[\w\[\],-]*==([^"]*)"', text)) <= {"7.8.9"}
    assert '\n  version: "7.8.9" #' in (tmp_path / "conda/recipe.yaml").read_text()
    for name in cmake:
        assert set(re.findall(r"find_package\(onecopy (\S+)", (tmp_path / name).read_text())) == {"7.8"}
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1  # nothing is unreleased now


def test_wheels_are_built_for_every_version_that_is_named_and_tested_with_files_that_are_there():
    wheels = PROJECT["tool"]["cibuildwheel"]
    named = re.findall(r"Python :: 3\.(\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.MULTILINE)
    assert {f"cp3{minor}-*" for minor in named} <= set(wheels["build"].split())
    assert f">=3.{min(map(int, named))}" == PROJECT["project"]["requires-python"]
    for words in re.findall(r"@?tests/\S+", wheels["test-command"]):
        assert (ROOT / words.lstrip("@")).is_file()
    suite = (ROOT / "tests/installed/suite.txt").read_text().split()
    assert [name for name in suite if not (ROOT / name).is_file()] == []
    assert len(suite) == len(set(suite)) > 20
    assert set(wheels["test-groups"]) <= set(GROUPS)


def test_every_tool_is_pinned_and_those_that_are_needed_twice_are_of_one_version():
    """Of one for each interpreter: some versions have no wheel for the newest, or none for the older ones."""
    pins = {tool for group in GROUPS.values() for tool in group if isinstance(tool, str)}
    pinned = re.compile(r"[\w\[\],-]+==[\w.]+(; python_version (<|>=) '3\.15')?")
    assert [pin for pin in pins if not pinned.fullmatch(pin)] == []
    names = [(pin.partition("==")[0], pin.partition(";")[2]) for pin in pins]
    assert len(names) == len(set(names))
    assert set(PROJECT["build-system"]["requires"]) <= pins


def names_in(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", one)[0] for one in requirements}


def pinned(group: str) -> set[str]:
    """Return the names of the tools of a group and of the groups that it includes."""
    tools = GROUPS[group]
    included = (pinned(tool["include-group"]) for tool in tools if isinstance(tool, dict))
    return names_in([tool for tool in tools if isinstance(tool, str)]).union(*included)


def test_what_the_distributions_need_is_installed_for_demo_and_tests():
    """`make` installs all with --no-deps, so that all versions are pinned."""
    ours = names_in(PROJECT["project"]["dependencies"])
    theirs = {name for package in PACKAGES for name in names_in(package["dependencies"])}
    assert ours <= pinned("demo")
    assert theirs - {package["name"] for package in PACKAGES} - {"onecopy-core"} <= pinned("all")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package["name"])
def test_the_distributions_have_one_version_and_need_each_other_of_it(package):
    extras = package.get("optional-dependencies", {})
    needed = [one for extra in extras.values() for one in extra] + package["dependencies"]
    assert package["version"] == VERSION
    assert {"onecopy", "onecopy-core"} & names_in(package["dependencies"])
    of_ours = [one for one in needed if re.match(r"onecopy-|onecopy\b.*=", one)]
    assert [one for one in of_ours if not one.endswith(f"=={VERSION}")] == []


def test_the_conda_recipe_has_the_version_and_the_requirements_of_pyproject():
    recipe = (ROOT / "conda/recipe.yaml").read_text()
    assert f'\n  version: "{VERSION}" #' in recipe
    lists = dict(re.findall(r"^  (build|host|run|run_constraints):\n((?:    - .*\n)+)", recipe, re.MULTILINE))
    listed = {name: [line[6:].replace(" ", "") for line in text.splitlines()] for name, text in lists.items()}
    assert listed["run"] == ["python", *PROJECT["project"]["dependencies"]]
    needed = [one.partition(";")[0] for one in PROJECT["build-system"]["requires"]]
    assert [one for one in needed if not one.startswith("numpy")] == [one for one in listed["host"] if "==" in one]
    extras = {name: one for package in PACKAGES for name, one in package.get("optional-dependencies", {}).items()}
    assert sorted(listed["run_constraints"]) == sorted(extras["arrow"] + extras["onnxruntime"])
    assert f"  summary: {PROJECT['project']['description']}\n" in recipe


def test_workflows_call_what_is_there():
    menu = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        text = path.read_text()
        called = set(re.findall(r"\bmake ([a-z-]+)", text))
        assert called, path
        assert called <= menu, path


# --- the program that looks into dist/ sees what is wrong there ---


def look(folder: Path) -> str:
    command = [sys.executable, ROOT / "tests/installed/check_dist.py", folder, "--no-sdist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


IN_SDIST = "LICENSE CMakeLists.txt src/CMakeLists.txt tests/installed/alone.py README.md CITATION.cff"
IN_WHEEL = f"onecopy/py.typed onecopy/_core.pyi onecopy/_core.so onecopy_core-{VERSION}.dist-info/licenses/LICENSE"


def make_dist(
    folder: Path, *, sdist: str = "", wheel: str = "", without: str = "", platform: str = "manylinux_2_28_x86_64"
):
    """Write an sdist and a wheel of small files, with further ones."""
    with tarfile.open(folder / f"onecopy_core-{VERSION}.tar.gz", "w:gz") as file:
        for name in f"{IN_SDIST} {sdist}".split():
            file.add(ROOT / "LICENSE", f"onecopy_core-{VERSION}/{name}")
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    path = folder / f"onecopy_core-{VERSION}-{tag}-{tag}-{platform}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in f"{IN_WHEEL} {wheel}".split():
            if name != without:
                file.writestr(name, b"x")


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (None, "make dist"),
        ({"sdist": "packages/bench/README.md"}, "has files"),
        ({"sdist": ".ci/run"}, "has files"),
        ({"sdist": "python/onecopy/_core.so"}, "has files"),
        ({"sdist": "build/x"}, "has files"),
        ({"platform": "linux_x86_64"}, "not repaired"),
        ({"wheel": "tests/x.py"}, "has tests/x.py"),
        ({"wheel": "onecopy.libs/libstdc++.so"}, "libstdc++"),
        ({"without": "onecopy/py.typed"}, "has no onecopy/py.typed"),
        ({"without": "onecopy/_core.so"}, "0 shared libraries"),
        ({"wheel": "onecopy/second.so"}, "2 shared libraries"),
    ],
)
def test_what_is_wrong_in_the_folder_of_a_release_is_seen(tmp_path, faults, sentence):
    if faults is not None:
        make_dist(tmp_path, **faults)
    assert sentence in look(tmp_path)
