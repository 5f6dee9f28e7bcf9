"""What the kernel reports of disks and of the memory of the machine. `root` is ``/``, or a recorded copy."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/")


def disk_counters(device: int, *, root: Path = ROOT) -> tuple[int, int] | None:
    """Return the bytes that a disk or partition (an ``st_dev``) has read and written since boot, for all processes.

    None for file systems without a single block device: tmpfs, overlayfs, btrfs, network file systems.

    >>> disk = disk_counters(Path("/").stat().st_dev)
    >>> disk is None or disk[0] >= 0
    True
    """
    path = Path(root, f"sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    if not path.exists():
        return None
    words = path.read_text().split()
    return int(words[2]) * 512, int(words[6]) * 512  # in sectors of 512 bytes, whatever the disk


def read_ahead(device: int, *, root: Path = ROOT) -> int | None:
    """Return the readahead of a device (an ``st_dev``) in bytes; None if the kernel does not report it.

    >>> ahead = read_ahead(Path("/").stat().st_dev)
    >>> ahead is None or ahead % 1024 == 0
    True
    """
    name = f"{os.major(device)}:{os.minor(device)}"
    # The setting belongs to the disk; a partition is a link into the folder of its disk.
    for place in (f"class/bdi/{name}", f"dev/block/{name}/queue", f"dev/block/{name}/../queue"):
        path = Path(root, "sys", place, "read_ahead_kb")
        if path.exists():
            return int(path.read_text()) * 1024
    return None


def memory_of_machine() -> dict[str, int]:
    """Return the lines of ``/proc/meminfo`` in bytes.

    >>> memory = memory_of_machine()
    >>> 0 < memory["MemFree"] < memory["MemTotal"]
    True
    """
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(number) << 10 for name, number, *unit in lines if unit == ["kB"]}
