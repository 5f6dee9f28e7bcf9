"""What is imported before the processes of `onecopy run` start: names, texts, and `memory_file`."""

import os

RUN = "ONECOPY_RUN"
"""What a process needs to know to ask `onecopy run` (`onecopy.store.protocol`), to which it reports its calls."""
KEEPER = "ONECOPY_SNAPSHOTS"
"""The same, if `onecopy run` keeps snapshots in memory; without it they are in the store."""
MAP_WRITABLE = "ONECOPY_MAP_WRITABLE"
"""With the value "1", each file is mapped itself, as if it could not be written."""

RUN_FILE = "onecopy-run"
"""Name of the file of calls, which is in memory and belongs to `onecopy run`: nothing is left when that is killed."""
MIN_BYTES = 1 << 20
"""Smaller files are read as always, and their calls are not kept: a copy takes less than what a mapping costs."""
NOTHING_LOADED = (
    "no Python process loaded a file of 1 MB or more with a function that onecopy shares; "
    "files that safetensors maps itself (safetensors.torch.load_file) are in memory once without it"
)
"""The report if no call was logged."""
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
