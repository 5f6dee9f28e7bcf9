"""Names and texts that `onecopy run` and its processes use, and `memory_file`. Each process imports this module."""

import os

RUN = "ONECOPY_RUN"
"""Environment variable with the address of `onecopy run`, which collects reports (`onecopy.store.protocol`)."""
KEEPER = "ONECOPY_SNAPSHOTS"
"""Environment variable with the address of the process that keeps snapshots. If unset, the store keeps them."""
MAP = "ONECOPY_MAP"
"""Environment variable that lists folders, separated by ":", whose files may be mapped because nobody changes them."""

MEMORY_NAME = "onecopy:"
"""Prefix of the names of snapshots in memory, followed by the path of the file."""
RUN_FILE = "onecopy-run"
"""Name of the memory file in which `onecopy run` collects reports. The kernel frees it when the process ends."""
MIN_BYTES = 1 << 20
"""Smaller files are read without onecopy and not reported, because copying them costs less than mapping them."""
NOTHING_LOADED = (
    "no Python process loaded a file of 1 MB or more with a function that onecopy replaces; "
    "files that safetensors itself maps (safetensors.torch.load_file) are already shared"
)
"""The report of a run in which no call was reported."""
_NOEXEC_SEAL = 0x8  # MFD_NOEXEC_SEAL, which the module `os` defines from Python 3.14 on


def memory_file(name: str) -> int:
    """Create a memory file that can be sealed. Raise OSError or AttributeError if the system does not support it.

    The file is not executable, because kernels with ``vm.memfd_noexec=2`` refuse to create executable memory files.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _NOEXEC_SEAL)
    except OSError:  # EINVAL: a kernel before 6.3
        return os.memfd_create(name, flags)
