"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["key_within", "single_keys"]


@contextlib.contextmanager
def single_keys() -> Iterator[bool]:
    """Read keys without Enter inside the block; yield whether stdin is a terminal. Ctrl-C still interrupts."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield False
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def key_within(seconds: float, *, listening: bool) -> str | None:
    """Wait for a key and return it; None after `seconds`, and always None if not `listening`."""
    if not listening:
        time.sleep(seconds)
        return None
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 16).decode("utf-8", "replace") if ready else None
