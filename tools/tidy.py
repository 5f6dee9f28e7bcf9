"""Run clang-tidy over the C++ sources: tools/tidy.py --all | --since COMMIT.

With --since: the sources that changed since COMMIT, and those that include a changed header, directly or not. Without a
COMMIT, or where it is HEAD itself, the last ten commits count. clang-tidy reads build/tidy/compile_commands.json, which
is configured without precompiled headers: they are the compiler's own. Status 1 where something is found.
"""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "bindings", "fuzz", "packages")
CLANG_ONLY = {"memory_limit.cpp"}
"""Needs the headers of clang's run-time library, which clang-tidy does not bring."""
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SEARCHED = ("include", "src", "bindings", "fuzz", "packages/bench/cpp", "tests/cpp", "examples/structs")


def output(*command: str) -> str:
    """Return what a command prints; raise CalledProcessError where it fails."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def files(pattern: str, *folders: str) -> list[Path]:
    """List the files of some folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob(pattern))


def included(path: Path) -> set[Path]:
    """Return the project's files that a file includes."""
    places = (path.parent, *(ROOT / folder for folder in SEARCHED))
    names = INCLUDE.findall(path.read_text())
    return {found.resolve() for name in names for place in places if (found := place / name).is_file()}


def closure(changed: set[Path]) -> set[Path]:
    """Return the files that changed, and all that include one of them."""
    everything = {path.resolve(): included(path) for path in files("*.[ch]pp", *SEARCHED, "packages")}
    found = set(changed)
    while more := {path for path, uses in everything.items() if path not in found and uses & found}:
        found |= more
    return found


def changed_since(commit: str) -> set[Path]:
    """Return the files that differ from a commit, those that are not committed included."""
    if not commit or output("git", "rev-parse", commit) == output("git", "rev-parse", "HEAD"):
        count = min(10, int(output("git", "rev-list", "--count", "HEAD")) - 1)
        commit = f"HEAD~{count}"
    names = output("git", "diff", "--name-only", commit).splitlines()
    names += output("git", "ls-files", "--others", "--exclude-standard").splitlines()
    return {(ROOT / name).resolve() for name in names}


def tidy(path: Path) -> tuple[Path, int, str]:
    """Check one source; return its path, the status and what was found."""
    command = [str(Path(sys.executable).with_name("clang-tidy")), "-p", "build/tidy", "--quiet"]
    more = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-unused-command-line-argument"]
    done = subprocess.run([*command, *more, path], cwd=ROOT, capture_output=True, text=True, check=False)
    return path, done.returncode, done.stdout


def main() -> int:
    """Choose the sources, check them, print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--all", action="store_true")
    choice.add_argument("--since", metavar="COMMIT")
    options = parser.parse_args()
    sources = [path for path in files("*.cpp", *FOLDERS) if path.name not in CLANG_ONLY]
    if not options.all:
        wanted = closure(changed_since(options.since))
        sources = [path for path in sources if path.resolve() in wanted]
    if not sources:
        print("no C++ source changed")
        return 0
    output("cmake", "--preset", "tidy")
    bad = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, text in pool.map(tidy, sources):
            if status != 0:
                bad += 1
                print(f"{path.relative_to(ROOT)}\n{text}", flush=True)
    print(f"{len(sources)} sources, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
