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
    """Take keys as they come inside the block; yield whether there is a terminal that gives them. Ctrl-C stays."""
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
    """Wait for a key; None when none came in time, or nobody listens."""
    if not listening:
        time.sleep(seconds)
        return None
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 16).decode("utf-8", "replace") if ready else None
