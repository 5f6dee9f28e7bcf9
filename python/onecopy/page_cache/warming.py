"""`warm`: read a file into the page cache at the speed of the device, in the foreground or as a `WarmJob`."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, Unpack, overload

from onecopy import _core
from onecopy.arguments import byte_count, thread_count
from onecopy.page_cache.targets import of_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy._core import WarmReport
    from onecopy.page_cache.targets import Range, Target

__all__ = ["Mechanism", "WarmJob", "WarmOptions", "warm"]

Mechanism: TypeAlias = Literal["auto", "populate", "read", "advise", "none"]


class WarmJob:
    """A `warm` that runs in threads in the background.

    It shares ownership of the mapping, so the file may be closed while it runs. After a fork it belongs to the parent:
    `wait` in the child raises OSError (ECHILD).

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
        """Wait until the job has finished and return its report.

        Parameters
        ----------
        timeout
            Seconds to wait; None: without a limit. The job continues after a timeout.
        progress
            Called about 20 times per second with (bytes done, bytes in total). An exception that it raises cancels the
            job and is passed on.

        Raises
        ------
        TimeoutError
            The job has not finished after `timeout` seconds.
        DataLost
            The file was truncated, or the device failed.
        KeyboardInterrupt
            Ctrl-C was pressed; the job is cancelled.
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
            raise TimeoutError(f"warming has read {done} of {total} bytes after {timeout} s, and continues")
        report = self._core.report()
        if progress is not None:
            progress(*self.progress)
        return report

    def cancel(self) -> None:
        """Stop after the pieces that are being read; `wait` then reports what was done."""
        self._core.cancel()

    @property
    def done(self) -> bool:
        """Whether the job has finished, so that `wait` returns immediately."""
        return self._core.wait_for(0.0)

    @property
    def progress(self) -> tuple[int, int]:
        """(bytes done, bytes in total); bytes that were in memory before count as done."""
        return self._core.progress

    def __repr__(self) -> str:
        done, total = self.progress
        try:
            state = ", done" if self.done else ""
        except OSError:  # this process was forked while it ran
            state = ", of the parent process"
        return f"<onecopy.WarmJob {done} of {total} bytes{state}>"


def _pause(deadline: float | None) -> float:
    """Return the seconds until progress and signals are checked again: 0.05, or less near the deadline."""
    return 0.05 if deadline is None else max(0.0, min(0.05, deadline - monotonic()))


class WarmOptions(TypedDict, total=False):
    """The options of `warm` that say how to read; they are documented there."""

    threads: int | None
    huge: bool | None
    max_bytes: int | str | None
    mechanism: Mechanism
    in_order: bool


@overload
def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    inspector: _core.Inspector | None = None,
    wait: Literal[True] = True,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[WarmOptions],
) -> WarmReport: ...


@overload
def warm(
    target: Target,
    ranges: Sequence[Range] | None = None,
    *,
    inspector: _core.Inspector | None = None,
    wait: Literal[False],
    **options: Unpack[WarmOptions],
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
    """Read a file into the page cache at the speed of the device, and map its pages into this process.

    Parameters
    ----------
    target
        An open file, a path, or a list of these, whose files are read at the same time. The pages of a path are not
        mapped; they stay in the page cache until the kernel reclaims the memory.
    ranges
        (offset, length) in bytes; None: the whole file. Small ranges with gaps between them are read without readahead,
        in small pages.
    threads
        Number of threads that read; None: 8, because they wait for the disk and need little CPU time.
    huge
        Whether to request 2 MiB pages before reading. None: yes, except for files larger than half of the available
        memory (a small access would read 512 times its size and evict other pages), and for ranges below 16 MiB with
        gaps between them. True: for those ranges as well.
    max_bytes
        Maximum number of bytes to read, as a number or text such as "2 GiB"; None: the available memory. The kernel may
        read a few MiB ahead.
    mechanism
        "auto", or "populate" (MADV_POPULATE_READ), "read" (pread), "advise" (only request huge pages), "none".
    in_order
        Whether the caller reads the whole file from front to back next. On devices with a readahead of 4 MiB or more
        that is as fast as warming, so only huge pages are requested.
    inspector
        Checks the bytes while they are read; see the parameter ``verify`` of `ArrayFile.warm`.
    wait
        False: return a `WarmJob` immediately.
    progress
        Called about 20 times per second with (bytes done, bytes in total). An exception that it raises cancels the work
        and is passed on.

    Returns
    -------
    WarmReport or WarmJob
        The report has the bytes, how many were cached before and after, the share of huge pages, page faults, GiB/s,
        the mechanism and the reason for it.

    Raises
    ------
    DataLost
        The file was truncated while it was mapped, or the device failed.
    OSError
        The path cannot be opened, or reading failed otherwise, such as with ENOMEM in a control group.

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
        raise ValueError("progress cannot be given with wait=False: give it to the wait() of the job")
    threads = thread_count(threads)
    limit = None if max_bytes is None else byte_count("max_bytes", max_bytes)
    portions = of_target(target, ranges, inspector)
    core = _core.start_warm(portions, threads=threads, huge=huge, budget=limit, mechanism=mechanism, in_order=in_order)
    job = WarmJob(core)
    return job.wait(progress=progress) if wait else job
