"""Compare python/onecopy/_core.pyi with the interface of the extension: tools/check_stubs.py [--write]."""

import difflib
import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).parent.parent / "python/onecopy/_core.pyi"
PATTERNS = Path(__file__).parent / "core.pat"


def generate() -> str:
    """Return the stub of the installed extension, formatted as ours."""
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "nanobind.stubgen",
            "-m",
            "onecopy._core",
            "-P",
            "-p",
            str(PATTERNS),
            "-O",
            str(STUB.parent / "../../build"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise SystemExit(made.stderr)
    text = (STUB.parent / "../../build/_core.pyi").read_text()
    return subprocess.run(
        ["ruff", "format", "--stdin-filename", str(STUB), "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def main() -> int:
    """Write the stub, or print how it differs; 1 if it does."""
    text = generate()
    if "--write" in sys.argv:
        STUB.write_text(text)
        return 0
    committed = STUB.read_text() if STUB.exists() else ""
    diff = list(difflib.unified_diff(committed.splitlines(), text.splitlines(), "committed", "generated", lineterm=""))
    print("\n".join(diff) + "\nrun `make stubs`" if diff else "stubs: the committed _core.pyi is true")
    return 1 if diff else 0


if __name__ == "__main__":
    sys.exit(main())
