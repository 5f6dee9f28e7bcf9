"""Checks of what callers give: paths, numbers, threads."""

from __future__ import annotations

import operator
import os

from onecopy.text import parse_size

__all__ = ["byte_count", "few_processors", "non_negative", "path_text", "processors", "thread_count"]


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text; ValueError for a NUL in it, as the built-in open has it."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise ValueError("embedded null byte")
    return text


def non_negative(name: str, number: int | None) -> int:
    """Return `number`, or 0 for None; ValueError when negative, so that no sign reaches 64-bit arithmetic.

    More than 64 bits can say is beyond every file, and so is the largest number they can say.
    """
    if number is not None and number < 0:
        raise ValueError(f"{name} must not be negative, but is {number}")
    return min(number or 0, 2**64 - 1)


def byte_count(name: str, size: int | str) -> int:
    """Return a size that is given in bytes or in words, such as "512 MiB"; ValueError for what is no size."""
    return parse_size(size) if isinstance(size, str) else non_negative(name, operator.index(size))


def thread_count(number: int | None) -> int:
    """Return a number of threads, 0 for None; more than 1024 are 1024."""
    return min(non_negative("threads", number), 1024)


def few_processors() -> int:
    """Return the processors that this process may use, 4 at most: threads that decode hold memory each."""
    return min(4, processors())


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
