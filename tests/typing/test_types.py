"""What mypy says of surface.py is what stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SURFACE = Path(__file__).with_name("surface.py")
ROOT = Path(__file__).parents[2]


def expected() -> dict[int, str]:
    lines = enumerate(SURFACE.read_text().splitlines(), 1)
    return {number: line.split("  # ", 1)[1] for number, line in lines if re.search(r"  # (revealed|refused): ", line)}


def told(output: str) -> dict[int, str]:
    """Read mypy's lines: one type, or the codes of the errors, for each line of the file."""
    found: dict[int, str] = {}
    for number, kind, text in re.findall(r"surface\.py:(\d+): (note|error): (.*)", output):
        if kind == "note" and (revealed := re.fullmatch(r'Revealed type is "(.*)"', text)):
            found[int(number)] = f"revealed: {revealed[1].replace('builtins.', '')}"
        elif kind == "error":
            code = text.rpartition("[")[2].rstrip("]")
            before = found.get(int(number), "refused: ").removeprefix("refused: ")
            found[int(number)] = "refused: " + ", ".join(sorted({*filter(None, before.split(", ")), code}))
    return found


@pytest.fixture
def mypy(request):
    """Run mypy on a file; return what it printed."""
    pytest.importorskip("mypy")
    cache = request.config.cache.mkdir("mypy")  # a second run takes a second

    def run(path: Path) -> str:
        options = ["--strict", "--cache-dir", cache, "--config-file", ROOT / "pyproject.toml"]
        command = [sys.executable, "-m", "mypy", *options, path]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=110, check=False)
        assert done.returncode in {0, 1}, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_type_checkers_see_the_surface_as_it_is(mypy):
    assert told(mypy(SURFACE)) == expected()


@pytest.mark.slow
def test_type_checkers_refuse_a_name_that_is_not_there(mypy, tmp_path):
    path = tmp_path / "mistake.py"
    path.write_text("import onecopy as oc\n\nfile = oc.opne('model.safetensors')\n")
    assert "attr-defined" in mypy(path)
