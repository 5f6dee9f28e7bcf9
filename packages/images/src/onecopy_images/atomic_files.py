"""Files and folders that appear complete or not at all: they are written to a temporary path and then renamed."""

from __future__ import annotations

import errno
import glob
import os
import shutil
from pathlib import Path


def path_beside(target: Path) -> Path:
    """Return a unique hidden path next to `target`, and remove hidden files that killed processes left there."""
    namespace = Path("/proc/self/ns/pid")  # processes in other namespaces are not visible, so their files stay
    ours = f".{target.name}.onecopy-{namespace.stat().st_ino if namespace.exists() else 0:x}-"
    for left in target.parent.glob(f"{glob.escape(ours)}*") if namespace.exists() else ():
        if not Path("/proc", left.name.removeprefix(ours).partition("-")[0]).exists():
            remove(left)
    return target.with_name(f"{ours}{os.getpid()}-{os.urandom(4).hex()}")


def replace(beside: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a complete file or folder to `target`. Raise FileExistsError if `target` exists, unless `overwrite`."""
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "the target was created in the meantime", str(target))
    if beside.is_dir() and target.is_dir():
        old = path_beside(target)
        target.rename(old)
        beside.rename(target)
        remove(old)
    else:
        beside.replace(target)


def remove(path: Path) -> None:
    """Remove a file or folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
