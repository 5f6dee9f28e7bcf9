"""The child that prepacks: `python -m onecopy.integrations.onnxruntime._prepack background|PARENT RECIPE [PATH]`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from onecopy import _core
from onecopy.integrations.onnxruntime._prepacking import Recipe, write

_NICENESS = 10  # low priority: other processes serve requests meanwhile


def main(caller: str, text: str, *path: str) -> None:
    """Prepack for a waiting parent process, or in the background for later sessions."""
    recipe = Recipe.of_json(text)
    if caller != "background":
        if _core.end_with_parent(int(caller)):
            write(recipe, Path(path[0]))
        return
    os.nice(_NICENESS)
    with contextlib.suppress(TimeoutError):  # another process is building it
        recipe.built(recipe.store.with_options(timeout=0), write)


if __name__ == "__main__":
    main(*sys.argv[1:])
