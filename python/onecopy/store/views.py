"""Views: folders of symbolic links to artefacts, under the names of the files that were fetched.

A file that is fetched is an artefact, and its name a digest. Programs that open a model by its folder, or a file by its
suffix, are given a path in a view.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["link", "sweep", "view"]

FOLDER = "views"
"""Name of the folder of all views, in the folder of a store; `Store.ls` does not list it."""


def view(store: Path, digest: str) -> Path:
    """Return the folder of a view, which `link` creates; only this user has access."""
    return store / FOLDER / digest


def link(folder: Path, name: str, artefact: Path) -> Path:
    """Make `name` in a view lead to an artefact, in one step; return its path.

    Raises
    ------
    ValueError
        The name is not that of a file in a folder.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"not the name of a file: {name!r}")
    path, target = folder / name, os.path.relpath(artefact, folder)
    with contextlib.suppress(OSError):
        if os.readlink(path) == target:  # noqa: PTH115 - text
            return path
    new = folder / f".{os.getpid()}-{os.urandom(4).hex()}"
    while True:
        try:
            new.symlink_to(target)
            new.replace(path)
        except FileNotFoundError:  # no view yet, or another process has swept it while it was empty
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700, parents=True)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        else:
            return path


def sweep(store: Path) -> None:
    """Remove links whose artefact is gone, and views without links; what cannot be removed stays."""
    for folder in _entries(store / FOLDER):
        for path in _entries(folder):
            if path.is_symlink() and not path.exists():
                with contextlib.suppress(OSError):
                    path.unlink()
        with contextlib.suppress(OSError):  # not empty, or not a folder
            folder.rmdir()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
