"""Views: folders of symbolic links to artefacts, under the names of the files that were fetched.

A fetched file is an artefact whose name is a digest. Programs that open a model by its folder, or a file by its suffix,
use a path in a view. `Store.prune` removes links whose artefact no longer exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from onecopy.store.store import VIEWS, locked_folder

if TYPE_CHECKING:
    from pathlib import Path


def view(store: Path, digest: str) -> Path:
    """Return a view's folder, which `link` creates."""
    return store / VIEWS / digest


def link(view: Path, name: str, artefact: Path) -> Path:
    """Atomically link `name`, a relative path in a view, to an artefact, and return the absolute path of the link.

    Raise ValueError if the name leads out of the view.
    """
    if not {"", ".", ".."}.isdisjoint(name.split("/")) or "\0" in name:
        raise ValueError(f"expected a relative path inside the view, found {name!r}")
    path = view / name
    target = os.path.relpath(artefact, path.parent)
    with locked_folder(view.parent, fcntl.LOCK_SH):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            if os.readlink(path) == target:  # noqa: PTH115 - text
                return path
        new = path.parent / f".{os.getpid()}-{os.urandom(4).hex()}"
        new.symlink_to(target)
        try:
            new.replace(path)
        except BaseException:
            new.unlink()
            raise
    return path
