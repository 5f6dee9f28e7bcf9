"""Names and texts used by `onecopy run`, and `memory_file`. Imported before the run's processes start."""

import os

RUN = "ONECOPY_RUN"
"""Environment variable with the address of `onecopy run`, which collects reports (`onecopy.store.protocol`)."""
KEEPER = "ONECOPY_SNAPSHOTS"
"""Environment variable with the address of the process that keeps snapshots in memory; if unset, the store does."""
MAP = "ONECOPY_MAP"
"""Environment variable that lists, separated by ":", folders whose files nobody changes, so that they may be mapped."""

MEMORY_NAME = "onecopy:"
"""Beginning of the names of snapshots in memory. The path of the file follows."""
RUN_FILE = "onecopy-run"
"""Name of the memory file in which `onecopy run` collects reports; the kernel frees it with the process."""
MIN_BYTES = 1 << 20
"""Smaller files are read without onecopy and not reported, because copying them costs less than mapping them."""
NOTHING_LOADED = (
    "no Python process loaded a file of 1 MB or more with a function that onecopy shares; "
    "files that safetensors itself maps (safetensors.torch.load_file) are already shared"
)
"""The report of a run in which no call was reported."""
_NOEXEC_SEAL = 0x8  # MFD_NOEXEC_SEAL, which Python has from 3.14 on


def memory_file(name: str) -> int:
    """Create a memory file that can be sealed. Raise OSError or AttributeError if the system does not support it.

    The file is not executable, because kernels with ``vm.memfd_noexec=2`` refuse to create executable memory files.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _NOEXEC_SEAL)
    except OSError:  # EINVAL: a kernel before 6.3
        return os.memfd_create(name, flags)
