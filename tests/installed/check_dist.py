"""Install what is in dist/ into clean environments, and test it there: tests/installed/check_dist.py [options].

    tests/installed/check_dist.py                      the wheels for this interpreter, and the sdist
    tests/installed/check_dist.py --python python3.12 --python python3.13
    tests/installed/check_dist.py --no-sdist           the wheels alone: building the sdist takes minutes

The contents of both kinds of file are checked first. Each interpreter gets a new environment with the wheel,
its own dependencies and nothing else, and tests/installed/alone.py runs; then the group `installed` joins it, and tests
that need no framework run from a copy of tests/, outside the checkout. The sdist is built without an index from
the pinned requirements of pyproject.toml, and tested by alone.py too. Status 1, and a line on stderr, where it fails.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION, DEPENDENCIES = PROJECT["project"]["version"], PROJECT["project"]["dependencies"]
GROUPS = PROJECT["dependency-groups"]
PACKAGES = [tomllib.loads(path.read_text())["project"] for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
TESTED = PROJECT["tool"]["cibuildwheel"]["test-command"].partition("pytest ")[2].split()

MB = 1_000_000
WHEEL_AT_MOST, INSTALLED_AT_MOST, SDIST_AT_MOST = 2 * MB, 4.5 * MB, 2 * MB
"""Bytes of a wheel, of the files that it installs, and of the sdist: 1.5, 3.4 and 1.4 MB today.

A library or test data that slipped in would be more; the records of the benchmarks are another 8 MB of text.
"""
NEWEST_OF_LOWEST = 12
"""The lowest version of numpy that is allowed has wheels for CPython up to 3.12."""
IN_WHEEL = ("onecopy/py.typed", "onecopy/_core.pyi", f"onecopy_core-{VERSION}.dist-info/licenses/LICENSE")
IN_SDIST = ("LICENSE", "CMakeLists.txt", "src/CMakeLists.txt", "tests/installed/alone.py", "README.md", "CITATION.cff")
NOT_IN_SDIST = re.compile(r"(packages|\.ci|build|dist|\.venv)/|.*\.(so|pyc|o|a)$")


class DistError(Exception):
    """What is wrong with dist/, in a sentence."""


def run(*command: object, cwd: Path | None = None) -> None:
    words = [str(word) for word in command]
    print("$ " + " ".join(words), flush=True)
    if subprocess.run(words, cwd=cwd, check=False).returncode:
        raise DistError(f"failed: {' '.join(words)}")


def need(holds: bool, sentence: str) -> None:
    if not holds:
        raise DistError(sentence)


def need_at_most(what: str, size: int, limit: float) -> None:
    print(f"{what}: {size / MB:.2f} of {limit / MB:.2f} MB")
    need(
        size <= limit, f"{what} has {size} bytes, and the budget is {limit:.0f}: tests/installed/check_dist.py says why"
    )


def extension_at_most(contents: bytes) -> float:
    """Return the bytes that `_core` may have, given its contents, which name the compiler.

    GCC 12 makes 2.27 MB today; GCC 16 made 0.27 MB more of the same sources.
    """
    compiler = max(map(int, re.findall(rb"GCC: \([^)]*\) (\d+)\.", contents)), default=12)
    return 2.3 * MB if compiler <= 12 else 2.6 * MB


def look_into_wheel(wheel: Path) -> None:
    """Raise DistError unless a wheel has what it must, nothing that it must not, and no more bytes than are allowed."""
    with zipfile.ZipFile(wheel) as file:
        sizes = {info.filename: info.file_size for info in file.infolist()}
        extensions = [file.read(name) for name in sizes if name.endswith(".so")]
    for name in IN_WHEEL:
        need(name in sizes, f"{wheel.name} has no {name}")
    strange = [name for name in sizes if not re.fullmatch(r"onecopy(/|_core-).*(?<!\.pyc)(?<!\.cpp)(?<!\.[ao])", name)]
    need(not strange, f"{wheel.name} has {', '.join(strange)}")
    need(len(extensions) == 1, f"{wheel.name} has {len(extensions)} shared libraries instead of the extension alone")
    need("linux_" not in wheel.name or "manylinux_" in wheel.name, f"{wheel.name} is not repaired: no index takes it")
    need_at_most(f"{wheel.name}: the wheel", wheel.stat().st_size, WHEEL_AT_MOST)
    need_at_most(f"{wheel.name}: what it installs", sum(sizes.values()), INSTALLED_AT_MOST)
    need_at_most(f"{wheel.name}: the extension", len(extensions[0]), extension_at_most(extensions[0]))


def look_into_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as file:
        names = [name.partition("/")[2] for name in file.getnames()]
    for name in IN_SDIST:
        need(name in names, f"{sdist.name} has no {name}")
    strange = [name for name in names if NOT_IN_SDIST.match(name)]
    need(not strange, f"{sdist.name} has files that do not belong there: {', '.join(strange[:5])}")
    need_at_most(f"{sdist.name}: {len(names)} files", sdist.stat().st_size, SDIST_AT_MOST)


def tag_of(python: str) -> str:
    """Return the tag of an interpreter's wheels, such as "cp312"."""
    code = "import sys; print('cp%d%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def environment(python: str, folder: Path, *packages: object) -> Path:
    run(python, "-m", "venv", folder / "env")
    own = folder / "env/bin/python"
    run(own, "-m", "pip", "install", "-q", *packages)
    return own


def copy_tests(tree: Path) -> Path:
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "conftest.py"):  # pytest's options, and the plugins of all tests
        shutil.copy(ROOT / name, tree)
    return tree


def test_wheel(wheel: Path, python: str, folder: Path) -> None:
    own, tree = environment(python, folder, wheel), copy_tests(folder / "tree")
    run(own, "-W", "error", "tests/installed/alone.py", cwd=tree)
    run(own, "-m", "pip", "install", "-q", *GROUPS["installed"])
    run(own, "-W", "error", "tests/installed/alone.py", cwd=tree)
    run(own, "-m", "pytest", *TESTED, cwd=tree)


def test_lowest(wheel: Path, python: str, folder: Path) -> None:
    tools = [tool for tool in GROUPS["installed"] if tool.startswith(("hypothesis", "pytest"))]
    own = environment(python, folder, wheel, *tools, *(one.replace(">=", "==") for one in DEPENDENCIES))
    run(own, "-m", "pytest", *TESTED, cwd=copy_tests(folder / "tree"))


def test_packages(wheels: list[Path], wheel: Path, python: str, folder: Path) -> None:
    """Install the wheels of the other distributions with what they need, and ask each of their verbs for its help."""
    own = environment(python, folder, wheel, *wheels)
    for package in PACKAGES:
        for verb in package.get("entry-points", {}).get("onecopy.commands", {}):
            run(own, "-W", "error", "-m", "onecopy", verb, "--help")


def test_sdist(sdist: Path, python: str, folder: Path) -> None:
    tools = [tool for tool in GROUPS["dev"] if re.match("cmake=|ninja=", str(tool))]
    own = environment(python, folder, *PROJECT["build-system"]["requires"], *tools, *DEPENDENCIES)
    path = f"PATH={own.parent}:/usr/local/bin:/usr/bin:/bin"  # its own cmake, which asks its own interpreter
    run("env", path, own, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--no-deps", sdist)
    run(own, "-W", "error", ROOT / "tests/installed/alone.py", cwd=folder)


def the_one(folder: Path, pattern: str) -> Path:
    """Return the one file of a pattern; raise DistError where there is none, or an old one beside it."""
    found = sorted(folder.glob(pattern))
    need(len(found) == 1, f"{folder} has {len(found)} files {pattern} instead of one: make dist")
    return found[0]


def check(folder: Path, pythons: list[str], *, sdist: bool) -> None:
    source = the_one(folder, f"onecopy_core-{VERSION}.tar.gz")
    look_into_sdist(source)
    wheels = {python: the_one(folder, f"onecopy_core-{VERSION}-{tag_of(python)}-*.whl") for python in pythons}
    for wheel in wheels.values():
        look_into_wheel(wheel)
    names = [package["name"].replace("-", "_") for package in PACKAGES]
    packages = [the_one(folder, f"{name}-{VERSION}-py3-none-any.whl") for name in names]
    with tempfile.TemporaryDirectory(prefix="onecopy-dist-") as name:
        for python, wheel in wheels.items():
            test_wheel(wheel, python, Path(name, tag_of(python)))
        minor, oldest = min((int(tag_of(python).removeprefix("cp3")), python) for python in pythons)
        if minor <= NEWEST_OF_LOWEST:
            test_lowest(wheels[oldest], oldest, Path(name, "lowest"))
        else:
            print(f"the lowest versions are not tested: they have no wheels for CPython 3.{minor}")
        test_packages(packages, wheels[pythons[0]], pythons[0], Path(name, "packages"))
        if sdist:
            test_sdist(source, pythons[0], Path(name, "sdist"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="where wheels and sdist are")
    parser.add_argument("--python", action="append", help="an interpreter, again for more (this one)")
    parser.add_argument("--no-sdist", action="store_true", help="do not build the sdist")
    options = parser.parse_args()
    try:
        check(options.folder.resolve(), options.python or [sys.executable], sdist=not options.no_sdist)
    except (DistError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"check_dist: {error}\n")
        return 1
    print("what is in dist/ installs and works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
