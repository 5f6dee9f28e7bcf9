"""Files and folders that appear complete or not at all: written to a temporary path, then renamed to the target."""

from __future__ import annotations

import errno
import glob
import os
import shutil
from pathlib import Path


def path_beside(target: Path) -> Path:
    """Return a hidden temporary path in the folder of `target`; remove those left there by killed processes."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.onecopy-*"):
        if not _is_running(left.name.rpartition("-")[2]):
            remove(left)
    return target.with_name(f".{target.name}.onecopy-{os.getpid()}")


def replace(beside: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a complete file or folder to its target; FileExistsError if `target` exists and `overwrite` is False."""
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "the target was created in the meantime", str(target))
    if beside.is_dir() and target.is_dir():
        old = target.with_name(f".{target.name}.onecopy-old-{os.getpid()}")
        target.rename(old)
        beside.rename(target)
        remove(old)
    else:
        beside.replace(target)


def _is_running(pid: str) -> bool:
    return pid.isdigit() and Path(f"/proc/{pid}").exists() and int(pid) != os.getpid()


def remove(path: Path) -> None:
    """Remove a file or folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
