"""Files and folders that appear whole or not at all: written beside their target, and put in its place."""

from __future__ import annotations

import errno
import glob
import os
import shutil
from pathlib import Path


def path_beside(target: Path) -> Path:
    """Return a hidden path beside a target; remove what processes that were killed left there."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.onecopy-*"):
        if not _lives(left.name.rpartition("-")[2]):
            remove(left)
    return target.with_name(f".{target.name}.onecopy-{os.getpid()}")


def replace(beside: Path, target: Path, *, overwrite: bool) -> None:
    """Put a file or folder that is whole in its target's place."""
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is something by now", str(target))
    if beside.is_dir() and target.is_dir():
        old = target.with_name(f".{target.name}.onecopy-old-{os.getpid()}")
        target.rename(old)
        beside.rename(target)
        remove(old)
    else:
        beside.replace(target)


def _lives(pid: str) -> bool:
    return pid.isdigit() and Path(f"/proc/{pid}").exists() and int(pid) != os.getpid()


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
