"""Facts about the machine that a time depends on; no host name, no user name, no folder.

Whatever cannot be read is None. Everything comes from /proc, /sys and installed package metadata; nothing is
imported to learn its version.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onecopy.memory import cgroup

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


PACKAGES = (
    "onecopy", "numpy", "safetensors", "torch", "runai-model-streamer", "fastsafetensors", "tensorizer", "pyarrow",
    "datasets", "lmdb", "msgspec", "orjson", "polars", "psutil",
)  # fmt: skip


def facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what is known about this machine and the device that holds `path`."""
    device, cpus = Path(path).stat().st_dev, _read("/proc/cpuinfo")
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": _found(r"^(?:model name|Processor|cpu model)\s*:\s*(.+?)\s*$", cpus),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "hypervisor": "hypervisor" in cpus.split(),
        "file_system": file_system(_read("/proc/self/mountinfo"), device),
        "read_ahead_bytes": read_ahead(device),
        "thp": _found(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def known_of(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is known of a machine and its disk, for a sentence."""
    memory, read_ahead = facts.get("memory_bytes"), facts.get("read_ahead_bytes")
    known = (
        facts.get("cpu"),
        f"{facts['cores_usable']} cores" if facts.get("cores_usable") else None,
        f"{memory / 2**30:.0f} GiB" if memory else None,
        "virtual" if facts.get("hypervisor") else None,
        facts.get("kernel"),
        facts.get("file_system"),
        None if read_ahead is None else f"read-ahead {read_ahead >> 10} KiB",
        f"Python {facts['python']}" if facts.get("python") else None,
        *(f"{name} {version}" for name, version in (facts.get("packages") or {}).items()),
    )
    return tuple(str(fact) for fact in known if fact)


def file_system(mountinfo: str, device: int) -> str | None:
    """Return the type of the file system with that device number from the text of mountinfo.

    Examples
    --------
    >>> file_system("21 1 8:1 / /data rw - ext4 /dev/sda1 rw", os.makedev(8, 1))
    'ext4'
    """
    mounts = cgroup.parse_mountinfo(mountinfo)
    return next((mount.fs_type for mount in mounts if mount.device == device), None)


def _found(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


def _version(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None
