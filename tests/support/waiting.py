"""Waiting for a condition in another thread, process or the kernel."""

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds. A test that waits longer hangs; the limit is far above what a busy machine needs."""


def until(condition: Callable[[], object], what: str = "the condition", *, seconds: float = PATIENCE) -> None:
    """Wait until `condition()` is true; raise AssertionError, which names `what`, after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.002)
