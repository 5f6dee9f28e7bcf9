"""Compare python/onecopy/_core.pyi with the interface of the extension: tools/check_stubs.py [--write]."""

import difflib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
STUB, BUILT = ROOT / "python/onecopy/_core.pyi", ROOT / "build/_core.pyi"
PATTERNS = ROOT / "bindings/core.pat"


def generate() -> str:
    """Return the stub of the installed extension, formatted as ours."""
    command = [sys.executable, "-m", "nanobind.stubgen", "-m", "onecopy._core", "-P", "-p", PATTERNS, "-o", BUILT]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(made.stderr)
    formatter = ["ruff", "format", "--stdin-filename", STUB, "-"]
    return subprocess.run(formatter, input=BUILT.read_text(), capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Write the stub, or print how it differs and return 1 if it does."""
    text = generate()
    if "--write" in sys.argv:
        STUB.write_text(text)
        return 0
    committed = STUB.read_text() if STUB.exists() else ""
    diff = list(difflib.unified_diff(committed.splitlines(), text.splitlines(), "committed", "generated", lineterm=""))
    print("\n".join([*diff, "run `make stubs`"]) if diff else "stubs: the committed _core.pyi is up to date")
    return 1 if diff else 0


if __name__ == "__main__":
    sys.exit(main())
