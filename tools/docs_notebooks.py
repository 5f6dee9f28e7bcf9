"""The notebooks of the site: executed while it is built, and shown as pages like all others.

They are committed without outputs, because every run would change these. A page is the Markdown of nbconvert; pictures
lie beside it, and nothing is fetched when it is read.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import MarkdownExporter
from traitlets.config import Config

TIMEOUT = 120
"""Seconds that a cell may take."""


def on_files(files: Any, config: Any) -> Any:
    """Add a page with its pictures for each notebook, which stays available for download."""
    for notebook in sorted(Path(config["docs_dir"]).glob("notebooks/*.ipynb")):
        text, pictures = page_of(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def page_of(path: Path) -> tuple[str, dict[str, bytes]]:
    """Execute a notebook in an empty folder; return its Markdown and pictures. Raise PluginError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        surroundings = {**os.environ, "ONECOPY_CACHE": f"{folder}/cache", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        sockets = Config(
            {"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}}
        )  # not ports, which any user can reach
        client = NotebookClient(notebook, timeout=TIMEOUT, config=sockets, resources={"metadata": {"path": folder}})
        try:
            client.execute(env=surroundings)
        except CellExecutionError as error:
            raise PluginError(f"{path}: {error}") from error
    resources = {"output_files_dir": f"{path.stem}_files"}
    text, found = MarkdownExporter().from_notebook_node(notebook, resources)
    title, _, rest = text.partition("\n")
    rest = rest.replace("![png]", "![A picture that the cell above has drawn]")
    return f"{title}\n\n[Download this notebook]({path.name}).\n{rest}", found["outputs"]
