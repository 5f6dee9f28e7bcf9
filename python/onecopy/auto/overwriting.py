"""Writes of the program to a file that it has mapped replace the file, so that what is mapped stays as it was.

A program that reads a checkpoint and later saves to the same path would otherwise change, or with a shorter file lose,
the weights that it has mapped. An audit hook of Python (`hooks.watch_writes`) sees files that are opened for writing
(builtins.open, os.open, numpy, shutil); functions of frameworks that open files in compiled code call `before_write`.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.atomic_files import path_beside
from onecopy.auto.hooks import watch_writes
from onecopy.runs import RUN, call_log

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["before_write", "protect"]


class _Mapped:
    """The files that this process, or another one of `onecopy run`, has mapped."""

    def __init__(self) -> None:
        self.files: set[tuple[int, int]] = set()
        """Device and inode of each."""
        self.read = 0
        """Bytes of the file of `onecopy run` that were read."""


_mapped = _Mapped()


def protect(device: int, inode: int) -> None:
    """Replace a file before this process, or another one of `onecopy run`, writes to it."""
    if (device, inode) not in _mapped.files:
        _mapped.files.add((device, inode))
        watch_writes()
        call_log.append({"mapped": [device, inode]})


def before_write(path: Any, *, whole: bool) -> None:
    """Replace the file at a path by a new one if it is mapped; `whole`: it is emptied before it is written.

    The new file has the permissions of the old one, and, unless `whole`, its contents. Raises nothing: where the folder
    may not be written, a RuntimeWarning says that mapped data changes.
    """
    if isinstance(path, int) or not path:
        return  # a descriptor was opened before, and so seen before
    try:
        real = os.path.realpath(path)
        facts = os.stat(real)  # noqa: PTH116
    except (OSError, ValueError, TypeError):
        return
    if not stat.S_ISREG(facts.st_mode) or not _is_mapped((facts.st_dev, facts.st_ino)):
        return
    try:
        _replace(os.fsdecode(real), facts, whole=whole)
    except OSError as error:
        warnings.warn(
            f"{os.fsdecode(real)}: written in place while it is mapped, because it cannot be replaced "
            f"({error.strerror}): the mapped data of this and other processes changes",
            RuntimeWarning,
            stacklevel=3,
        )


def _is_mapped(file: tuple[int, int]) -> bool:
    if file not in _mapped.files and RUN in os.environ:
        more = call_log.read_run(_mapped.read)
        _mapped.read += len(more)
        _mapped.files.update(_files_in(more))
    return file in _mapped.files


def _files_in(lines: bytes) -> Iterator[tuple[int, int]]:
    for line in lines.split(b"\n"):
        with suppress(ValueError, TypeError, KeyError):
            device, inode = json.loads(line)["mapped"]
            yield device, inode


def _replace(path: str, facts: os.stat_result, *, whole: bool) -> None:
    """Replace a file; where the file system has nameless files, a process that is killed meanwhile leaves nothing."""
    beside = path_beside(Path(path))
    try:
        try:
            descriptor = os.open(beside.parent, getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError:
            descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as new:
            if not whole:
                with Path(path).open("rb") as old:
                    shutil.copyfileobj(old, new, 1 << 20)
            os.fchmod(descriptor, stat.S_IMODE(facts.st_mode))
            with suppress(PermissionError):  # the file of another user: now of this one, as after a removal
                os.fchown(descriptor, facts.st_uid, facts.st_gid)
            new.flush()
            if not os.fstat(descriptor).st_nlink:
                os.link(f"/proc/self/fd/{descriptor}", beside, src_dir_fd=descriptor)  # with it, links are followed
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
