"""Views: folders of symbolic links to artefacts, under the names of the files that were fetched.

A fetched file is an artefact whose name is a digest. Programs that open a model by its folder, or a file by its suffix,
use a path in a view.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "views"
"""Name of the folder that contains all views, in a store's folder; `Store.ls` does not list it."""
HOLDS = "holds"
"""Name of the folder that contains the links and locks of `onecopy hold`, in the default store in memory."""


def view(store: Path, digest: str) -> Path:
    """Return the folder of a view, which `link` creates."""
    return store / FOLDER / digest


def link(view: Path, name: str, artefact: Path) -> Path:
    """Atomically link `name`, a relative path in a view, to an artefact, and return the absolute path of the link.

    Raise ValueError if the name leads out of the view.
    """
    if not {"", ".", ".."}.isdisjoint(name.split("/")) or "\0" in name:
        raise ValueError(f"expected a relative path inside the view, found {name!r}")
    path = view / name
    target = os.path.relpath(artefact, path.parent)
    with _locked(view.parent, fcntl.LOCK_SH):
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


def sweep(store: Path) -> None:
    """As far as possible, remove links whose artefact or holder no longer exists, and empty views."""
    sweep_holds(store)
    views = store / FOLDER
    if not views.is_dir():
        return
    with contextlib.suppress(OSError), _locked(views, fcntl.LOCK_EX):
        for folder, _, names in os.walk(views, topdown=False):
            for path in (Path(folder, name) for name in names):
                if path.is_symlink() and not path.exists():
                    with contextlib.suppress(OSError):
                        path.unlink()
            if folder != str(views):
                with contextlib.suppress(OSError):  # not empty
                    Path(folder).rmdir()


def sweep_holds(store: Path) -> None:
    """Remove the files and links of killed holders, which are the holders whose lock no process holds."""
    for lock in (store / HOLDS).glob(".[!-]*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), lock.lstat()):
                    for name in (lock.name[1:], f".-{lock.name[1:]}", lock.name):
                        lock.with_name(name).unlink(missing_ok=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def _locked(views: Path, how: int) -> Iterator[None]:
    """Hold the lock on the folder that contains all views, so that no links are created while others are removed."""
    views.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(views, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    finally:
        os.close(fd)
