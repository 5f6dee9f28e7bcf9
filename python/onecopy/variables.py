"""What is imported before the processes of `onecopy run` start: names of environment variables, and `memory_file`."""

import os

RUN = "ONECOPY_RUN"
"""What a process needs to know to ask `onecopy run` (`onecopy.protocol`), to which it reports its calls."""
KEEPER = "ONECOPY_SNAPSHOTS"
"""The same, if `onecopy run` keeps snapshots in memory; without it they are in the store."""
MAP_WRITABLE = "ONECOPY_MAP_WRITABLE"
"""With the value "1", each file is mapped itself, as if it could not be written."""

_NOEXEC_SEAL = 0x8  # MFD_NOEXEC_SEAL, which Python has from 3.14 on


def memory_file(name: str) -> int:
    """Return the descriptor of a new file in memory that can be sealed; OSError or AttributeError where there is none.

    It cannot be executed, without which the kernel refuses it where the administrator has set ``vm.memfd_noexec=2``.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _NOEXEC_SEAL)
    except OSError:  # EINVAL: a kernel before 6.3
        return os.memfd_create(name, flags)
