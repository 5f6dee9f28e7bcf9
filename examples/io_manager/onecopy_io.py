"""An IO manager of Dagster whose steps share what they load: one copy per machine, in however many processes.

The default IO manager pickles what a step returns, and each step that needs it unpickles a copy of its own. This one
writes it by `onecopy.save_object` and maps it. The class needs no Dagster to be imported: another orchestrator, such as
Airflow with a backend for XComs, calls the same two functions with a context of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import onecopy as oc

try:
    from dagster import IOManager
except ModuleNotFoundError:
    IOManager = object


class OnecopyIOManager(IOManager):
    """Keeps outputs as files in a folder, which only the user of the pipeline may write: loading one runs its pickle.

    An output that is computed again replaces the file; steps that loaded the earlier one keep its pages.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def path(self, context: Any) -> Path:
        """Return the path of an output: a folder for each part of the identifier but the last."""
        parts = context.get_asset_identifier() if context.has_asset_key else context.get_identifier()
        *folders, name = (quote(part, safe="") for part in parts)
        return self._folder.joinpath(*folders, f"{name}.oc")

    def handle_output(self, context: Any, obj: Any) -> None:
        """Write what a step returned: complete, or not at all."""
        path = self.path(context)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        oc.save_object(path, obj)

    def load_input(self, context: Any) -> Any:
        """Return what a step needs; its arrays are read-only views of the file."""
        return oc.load_object(self.path(context), trusted=True)
