"""`warm`: a file into memory at the device's speed, waited for or as a `WarmJob`."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from onecopy import _core
from onecopy.arguments import byte_count, thread_count
from onecopy.page_cache.targets import of_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy._core import WarmReport
    from onecopy.page_cache.targets import Range, Target

__all__ = ["Mechanism", "WarmJob", "warm"]

Mechanism: TypeAlias = Literal["auto", "populate", "read", "advise", "none"]


class WarmJob:
    """A warming that runs beside your other work.

    It owns a share of the mapping, so the file may be closed meanwhile. After a fork it belongs to the parent: waiting
    in the child raises OSError (ECHILD).

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> job = oc.warm(path, wait=False)
    >>> job.wait().complete
    True
    """

    def __init__(self, core: _core.WarmJob) -> None:
        self._core = core

    def wait(self, timeout: float | None = None, *, progress: Callable[[int, int], object] | None = None) -> WarmReport:
        """Wait for the end and return the report.

        Parameters
        ----------
        timeout
            Seconds; TimeoutError after that, and the job goes on. None waits as long as it takes.
        progress
            Called about 20 times a second with (bytes done, bytes in total).

        Raises
        ------
        DataLost
            The file was truncated, or the device failed.
        KeyboardInterrupt
            Ctrl-C; the job is cancelled first. So it is by any exception of `progress`.
        """
        deadline = None if timeout is None else monotonic() + timeout
        try:
            if progress is not None:
                progress(*self.progress)
            while not self._core.wait_for(_pause(deadline)):
                if progress is not None:
                    progress(*self.progress)
                if deadline is not None and monotonic() >= deadline:
                    break
        except BaseException:
            self.cancel()
            raise
        if not self.done:
            done, total = self.progress
            raise TimeoutError(f"warming has done {done} of {total} bytes after {timeout} s; it goes on")
        report = self._core.report()
        if progress is not None:
            progress(*self.progress)
        return report

    def cancel(self) -> None:
        """Stop after the pieces in flight; `wait` then reports what was done."""
        self._core.cancel()

    @property
    def done(self) -> bool:
        """True when `wait` would return at once."""
        return self._core.wait_for(0.0)

    @property
    def progress(self) -> tuple[int, int]:
        """(bytes done, bytes in total); what was in memory before counts as done."""
        return self._core.progress

    def __repr__(self) -> str:
        done, total = self.progress
        try:
            state = ", done" if self.done else ""
        except OSError:  # this process was forked while it ran
            state = ", of the parent process"
        return f"<onecopy.WarmJob {done} of {total} bytes{state}>"


def _pause(deadline: float | None) -> float:
    """Return how long to wait before looking at progress and signals again, in seconds."""
    return 0.05 if deadline is None else max(0.0, min(0.05, deadline - monotonic()))


@overload
def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    threads: int | None = None,
    huge: bool | None = None,
    max_bytes: int | str | None = None,
    mechanism: Mechanism = "auto",
    in_order: bool = False,
    inspector: _core.Inspector | None = None,
    wait: Literal[True] = True,
    progress: Callable[[int, int], object] | None = None,
) -> WarmReport: ...


@overload
def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    threads: int | None = None,
    huge: bool | None = None,
    max_bytes: int | str | None = None,
    mechanism: Mechanism = "auto",
    in_order: bool = False,
    inspector: _core.Inspector | None = None,
    wait: Literal[False],
    progress: None = None,
) -> WarmJob: ...


def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    threads: int | None = None,
    huge: bool | None = None,
    max_bytes: int | str | None = None,
    mechanism: Mechanism = "auto",
    in_order: bool = False,
    inspector: _core.Inspector | None = None,
    wait: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> WarmReport | WarmJob:
    """Bring a file into memory at the device's speed.

    Parameters
    ----------
    target
        An open file, or a path. A path's pages stay in the page cache, as long as nobody needs the memory.
    ranges
        (offset, length) in bytes; None: everything. Small ranges with gaps between them are read alone, without what
        the device would read ahead, and then in small pages.
    threads
        Threads that read; None: 8, because they wait for the disk and not for processors.
    huge
        Ask for 2 MiB pages before reading. None: yes, unless the file is larger than half of the memory that may be
        used (a small access would then read 512 times too much, and push out what is needed), and not for ranges below
        16 MiB with gaps beside them. True: for these as well.
    max_bytes
        Bytes to bring in at most, a number or words such as "2 GiB"; None: what memory is available. The kernel may
        read a few MiB ahead of it.
    mechanism
        "auto", or "populate" (MADV_POPULATE_READ), "read" (pread), "advise" (only ask for huge pages), "none".
    in_order
        You will touch everything from front to back right after: where the device reads far ahead (4 MiB and more),
        touching is then as fast as warming, so only huge pages are asked for.
    inspector
        Looks at the bytes in the same pass; see `ArrayFile.warm` and its ``verify``.
    wait
        False returns a `WarmJob` at once.
    progress
        Called about 20 times a second with (bytes done, bytes in total) while waiting; raising in it cancels.

    Returns
    -------
    WarmReport or WarmJob
        Bytes, cached before and after, huge share, faults, GiB/s, mechanism and reason.

    Raises
    ------
    DataLost
        The file was truncated under the mapping, or the device failed.
    OSError
        A path that cannot be opened; what ends the reading otherwise, such as ENOMEM in a control group.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "data.bin")
    >>> _ = path.write_bytes(bytes(1 << 20))
    >>> report = oc.warm(path)
    >>> report.bytes, report.complete
    (1048576, True)
    """
    if progress is not None and not wait:
        raise ValueError("progress is called while waiting: give it to the job's wait()")
    threads = thread_count(threads)
    most = None if max_bytes is None else byte_count("max_bytes", max_bytes)
    portions = of_target(target, ranges, inspector)
    job = WarmJob(_core.start_warm(portions, threads, huge, most, mechanism, in_order))
    return job.wait(progress=progress) if wait else job
