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

__all__ = ["keys_within", "single_keys"]


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


def keys_within(seconds: float, *, listening: bool) -> str | None:
    """Wait for keys and return those typed so far; None after `seconds`, and always None if not `listening`.

    Keys that a terminal sends as several characters, such as arrows, end what is returned and are not part of it.
    EOFError: the terminal is gone.
    """
    if not listening:
        time.sleep(seconds)
        return None
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return None
    typed = os.read(sys.stdin.fileno(), 256)
    if not typed:
        raise EOFError
    return typed.decode("utf-8", "replace").partition("\x1b")[0]
