"""Ways to have the weights in memory when the rest of a start is done, one entry each.

A way has three moments: `begin`, when the program starts; `wait`, when it needs the weights; and then the array that
they are copied out of. What the first returns is given to the second.
"""

from __future__ import annotations

import mmap
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start.

    Attributes
    ----------
    name, detail
        The row's name, and what it does in a few more words.
    begin
        Called with the path before the work; returns what `wait` needs.
    wait
        Called with that after the work; returns the file's bytes.
    ours
        Whether it is onecopy's.
    private
        Private memory that it needs, as a share of the file.
    """

    name: str
    detail: str
    begin: Callable[[str], Any]
    wait: Callable[[Any], NDArray[np.uint8]]
    ours: bool = True
    private: float = 0.0


def _view(mapping: Any) -> NDArray[np.uint8]:
    return np.frombuffer(mapping.view(), np.uint8)


def _mapped(path: str) -> Any:
    import onecopy as oc

    return oc.Mapping(path)


def _warm_now(mapping: Any) -> NDArray[np.uint8]:
    import onecopy as oc

    oc.warm(mapping)
    return _view(mapping)


def _warm_early(path: str) -> Any:
    import onecopy as oc

    mapping = oc.Mapping(path)
    return mapping, oc.warm(mapping, wait=False)


def _waited_for(begun: Any) -> NDArray[np.uint8]:
    mapping, job = begun
    job.wait()
    return _view(mapping)


def _willneed(path: str) -> mmap.mmap:
    """Ask for the whole file at once, as a program does that knows no better."""
    with open(path, "rb") as file:  # noqa: PTH123 - text
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_WILLNEED)
    return mapped


def _cat(path: str) -> Any:
    return path, subprocess.Popen(("cat", path), stdout=subprocess.DEVNULL)


def _memmap(begun: Any) -> NDArray[np.uint8]:
    path, _ = begun  # the process is not waited for
    return np.memmap(path, mode="r")


WILLNEED = "willneed"

WAYS: tuple[Way, ...] = (
    Way("none", "mapped; copying reads it", _mapped, _view),
    Way("warm at copy", "warm, when the work is done", _mapped, _warm_now),
    Way("warm early", "warm(wait=False) before the work, wait() after it", _warm_early, _waited_for),
    Way("warm early, no wait", "the same, and copied while it may still be read", _warm_early, lambda b: _view(b[0])),
    Way(
        WILLNEED,
        "madvise(MADV_WILLNEED) of all before the work",
        _willneed,
        lambda m: np.frombuffer(m, np.uint8),
        False,
    ),
    Way("fromfile", "numpy.fromfile when the work is done", str, lambda p: np.fromfile(p, np.uint8), False, 1.0),
    Way("cat early", "cat FILE > /dev/null before the work, numpy.memmap after it", _cat, _memmap, ours=False),
)
"""In the order of the tables."""

NAMES = tuple(way.name for way in WAYS)
