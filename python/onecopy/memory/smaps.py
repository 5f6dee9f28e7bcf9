"""Parse lines in ``/proc/PID/maps`` and ``smaps``. The module imports little, because exiting processes load it.

`onecopy.memory.proc` converts the results of these functions to objects.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

_NUMBER_LINE = re.compile(r"(?m)^([^:\n]+):[ \t]*([0-9]+)( kB)?$")
_HEX = "([0-9a-f]+)"
_DEV = "([0-9a-f]{2,5})"
_REGION_LINE = re.compile(rf"(?s){_HEX}-{_HEX} ([r-][w-][x-][ps]) {_HEX} {_DEV}:{_DEV} ([0-9]+) *(.*)")
_REGION_START = re.compile(r"\n(?=[0-9a-f])")  # the names of numbers begin with a capital
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


def read_text(path: str) -> str:
    """Read a file in ``/proc`` as text. Undecodable bytes become surrogates."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Most files are read at once, smaps and maps page by page.
        data = b"".join(iter(lambda: os.read(fd, 1 << 18), b""))
    finally:
        os.close(fd)
    return data.decode("utf-8", "surrogateescape")


def split_smaps(text: str) -> list[tuple[str, str, str]]:
    """For each region in the text of smaps, return its line as in maps, its lines with numbers, and its flags."""
    found = []
    for entry in _REGION_START.split(text):
        header, _, body = entry.partition("\n")
        numbers, _, flags = body.partition("VmFlags:")  # the last line, from Linux 3.8
        if header:
            found.append((header, numbers, flags))
    return found


def parse_region(kind: str, line: str) -> tuple[int, int, str, int, int, int, str, bool]:
    """Return the fields of a line in maps, in the order of `onecopy.memory.proc.Region`."""
    match = _REGION_LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"{kind}: cannot parse line {line!r}")
    start, end, perms, offset, major, minor, inode, shown = match.groups()
    path = shown.removesuffix(" (deleted)")
    device = os.makedev(int(major, 16), int(minor, 16))
    place = (int(start, 16), int(end, 16), perms, int(offset, 16), device, int(inode))
    return (*place, path.replace(r"\012", "\n"), path != shown)


def parse_numbers(kind: str, text: str) -> dict[str, int]:
    """Parse lines such as "Rss: 4 kB". Return a dict from snake_case names to numbers, in bytes if they have a unit."""
    found = _NUMBER_LINE.findall(text)  # one call: twice as fast as line by line
    lines = text.removesuffix("\n").split("\n") if text else []
    if len(found) != len(lines):
        line = next(line for line in lines if not _NUMBER_LINE.fullmatch(line))
        raise ValueError(f"{kind}: cannot parse line {line!r}")
    return {_snake(name): int(number) << 10 if unit else int(number) for name, number, unit in found}


@lru_cache(maxsize=256)
def _snake(name: str) -> str:
    return _WORD_START.sub("_", name).lower()
