"""Run threads and coroutines so that they end when the waiting caller is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar, cast

from onecopy.errors import Error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

T = TypeVar("T")
_REPORT_S = 0.1
_CANCEL_S = 5.0
"""Maximum time to wait for obstore's threads to end, which takes milliseconds unless the machine is busy."""


class StoppedError(Error):
    """Ends a step because another step failed."""


def nothing() -> None:
    """Do nothing."""


def run(
    steps: Sequence[Callable[[], object]],
    stop: Callable[[], object] = nothing,
    report: Callable[[], object] = nothing,
    *,
    wait: bool = True,
) -> list[Any]:
    """Run each step in a thread until all have ended. Return their results, or raise the first exception of a step.

    `stop` is called when a step raises an exception, and must end the other steps. `report` is called about 10 times
    per second in this thread. Its exceptions and interrupts also stop the steps, which are awaited if `wait` is true.
    """
    errors: list[BaseException] = []
    results: list[Any] = [None] * len(steps)

    def run_step(number: int, ended: threading.Event) -> None:
        try:
            with contextlib.suppress(StoppedError):
                results[number] = steps[number]()
        except BaseException as error:
            errors.append(error)
            stop()
        finally:
            ended.set()

    # not Thread.join: in Python 3.11, a thread counts as ended after an interrupt during a join
    ends = [threading.Event() for _ in steps]
    threads = [threading.Thread(target=run_step, args=one, name="onecopy-step", daemon=True) for one in enumerate(ends)]
    for thread in threads:
        thread.start()
    try:
        for end in ends:
            while not end.wait(_REPORT_S):
                report()
        report()
    except BaseException:
        stop()
        for end in ends if wait else ():
            end.wait()
        raise
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def waited(work: Coroutine[Any, Any, T], report: Callable[[], object] = nothing) -> T:
    """Run a coroutine in a thread with a separate event loop. Return its result, or raise its exception.

    `report` is called about 10 times per second in this thread. If `report` raises an exception, or an interrupt
    arrives, the coroutine and its requests are cancelled immediately, even if the server does not answer.
    """
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    stopped = threading.Event()

    async def main() -> T:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        running.append((asyncio.get_running_loop(), task))
        if stopped.is_set():
            task.cancel()
        return await work

    def cancel() -> None:
        stopped.set()
        for loop, task in running:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)

    return cast("T", run([lambda: asyncio.run(main())], cancel, report)[0])


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread, which continues to run if this coroutine is cancelled."""
    future: Future[T] = Future()

    def work() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, name="onecopy-request", daemon=True).start()
    return await asyncio.wrap_future(future)


async def answered(future: Awaitable[T]) -> T:
    """Await an obstore future. If it is cancelled, wait until no obstore thread uses it any more."""
    try:
        return await future
    except asyncio.CancelledError:
        # A thread of obstore calls Python after the cancellation, and panics if the interpreter has ended by then.
        used, end = weakref.ref(future), time.monotonic() + _CANCEL_S
        del future
        while used() is not None and time.monotonic() < end:
            with contextlib.suppress(asyncio.CancelledError):  # from a caller that cancels all of its requests
                await asyncio.sleep(0.001)
        raise
