"""Whether a call lets other threads run."""

import sys
import threading
import time
from collections.abc import Callable


def turns_of_another_thread(call: Callable[[], object]) -> int:
    """Count how often another thread gets its turn during a call: only when the call gives the GIL away."""
    turns = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0)  # releases the GIL, which no thread requests here

    before = sys.getswitchinterval()
    counter = threading.Thread(target=count)
    sys.setswitchinterval(1000)
    try:
        counter.start()
        first = turns
        call()
        return turns - first
    finally:
        sys.setswitchinterval(before)
        stop.set()
        counter.join()
