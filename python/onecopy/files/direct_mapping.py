"""`may_map_directly`: check whether nobody can change a file, so that mapping it is as safe as copying it."""

from __future__ import annotations

import fcntl
import functools
import os
import struct
from contextlib import suppress

from onecopy import _core
from onecopy.base.run_constants import MAP

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_GET_FLAGS = 0x80086601
_UNCHANGEABLE = 0x10 | 0x100000  # FS_IMMUTABLE_FL, FS_VERITY_FL


def may_map_directly(descriptor: int) -> bool:
    """Return whether no process can change an open file, because it is sealed memory or its file system protects it.

    The user vouches for files in the folders listed in ``ONECOPY_MAP`` (`onecopy run --map FOLDER`). A read-only mount
    is not sufficient, because the file system may be mounted writable elsewhere. Flags on stacked or network file
    systems are not sufficient either, because the underlying files can still be changed.
    """
    if is_sealed(descriptor) or _is_in(descriptor, os.environ.get(MAP, "")):
        return True
    if _core.is_stacked(descriptor) or _core.is_remote(descriptor):
        return False
    flags = bytearray(8)
    with suppress(OSError):  # a file system without flags
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
    if struct.unpack_from("i", flags)[0] & _UNCHANGEABLE:
        return True
    if not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return False
    with suppress(OSError):
        return is_superblock_read_only(_read_own(f"fdinfo/{descriptor}"), _read_own("mountinfo"))
    return False


def _is_in(descriptor: int, folders: str) -> bool:
    """Return whether an open file is inside one of several folders, whose paths are separated by ":"."""
    if not folders:
        return False
    path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - without pathlib
    return any(path.startswith(f"{folder}/") for folder in real_folders(folders))


@functools.cache
def real_folders(folders: str) -> tuple[str, ...]:
    """Split a list of folders at ":", and return their absolute paths without symbolic links.

    >>> real_folders("/usr//:")
    ('/usr',)
    """
    return tuple(os.path.realpath(folder).rstrip("/") for folder in folders.split(os.pathsep) if folder)


def is_sealed(memory: int) -> bool:
    """Return whether a descriptor refers to memory that no process can change."""
    try:
        return fcntl.fcntl(memory, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        return False


def is_superblock_read_only(fdinfo: str, mountinfo: str) -> bool:
    """Return whether a descriptor's file system is itself read-only, not just the mount through which it was opened.

    >>> is_superblock_read_only("mnt_id: 7", "7 1 8:1 / /models ro,noatime - ext4 /dev/sda1 rw,errors=continue")
    False
    """
    found = dict(line.split(maxsplit=1) for line in fdinfo.splitlines())
    mounts = {line.split(maxsplit=1)[0]: line.split()[-1] for line in mountinfo.splitlines()}
    return "ro" in mounts.get(found.get("mnt_id:", ""), "").split(",")


def _read_own(name: str) -> str:
    with open(f"/proc/self/{name}", errors="replace") as file:  # noqa: PTH123 - without pathlib
        return file.read()
