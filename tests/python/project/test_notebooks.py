"""The notebooks of the documentation run, and are committed as they were written: without what a run left in them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
MODULES = {"dataset": ("torch", "matplotlib"), "images": ("tifffile", "imagecodecs", "matplotlib")}


def cells(notebook: Path, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


def script_of(notebook: Path) -> str:
    """Make one script of the code cells; of what begins with a percent sign, %%writefile alone is known."""
    steps = []
    for cell in cells(notebook, "code"):
        if name := re.match(r"%%writefile (\S+)\n", cell):
            steps.append(f"__import__('pathlib').Path({name[1]!r}).write_text({cell[name.end() :]!r})")
        else:
            steps.append(cell)
    return "\n".join(steps)


def names() -> list[str]:
    return [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=names())
def test_a_notebook_begins_with_a_title_its_links_lead_somewhere_and_it_has_no_outputs(notebook):
    for cell in json.loads(notebook.read_text())["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    texts = cells(notebook, "markdown")
    assert texts[0].startswith("# ")
    for link in re.findall(r"\]\(([^)\s#]+)", "\n".join(texts)):
        assert re.match(r"https://", link) or (notebook.parent / link).is_file(), link


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=names())
def test_the_cells_of_a_notebook_run(notebook, tmp_path, request):
    for module in MODULES.get(notebook.stem, ("matplotlib",)):
        pytest.importorskip(module)
    if notebook.stem == "images":
        request.getfixturevalue("reserving")
    (tmp_path / "cells").write_text(script_of(notebook))
    done = subprocess.run(
        [sys.executable, "-c", "exec(open('cells').read())"],  # as in a kernel, the main module is no file
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg", "ONECOPY_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
