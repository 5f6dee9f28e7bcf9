"""A control group whose processes write slowly to one disk, in version 1 or 2, whichever this machine has."""

import contextlib
import os
from collections.abc import Callable, Iterator

from tests.support.memory_group import ROOT, enter, remove


class NoSlowDiskError(OSError):
    """This machine does not limit how fast a disk is written to; the message says why."""


@contextlib.contextmanager
def slow_writing(device: int, bytes_per_s: int) -> Iterator[Callable[[], None]]:
    """Make a group that writes this fast to a disk; give a function that moves the calling process into it."""
    disk = f"{os.major(device)}:{os.minor(device)}"
    place, file, words = ROOT, "io.max", f"{disk} wbps={bytes_per_s}"
    if (ROOT / "blkio").exists():
        place, file, words = ROOT / "blkio", "blkio.throttle.write_bps_device", f"{disk} {bytes_per_s}"
    group = place / f"onecopy-tests-{os.getpid()}-disk"
    try:
        group.mkdir()
        (group / file).write_text(words)
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise NoSlowDiskError(f"{group}: {error.strerror}") from error
    try:
        yield lambda: enter(group)
    finally:
        enter(place)  # a group with a process in it cannot be removed
        remove(group)
