"""A pytest plugin with memory budgets for the tests of other projects, as a fixture and as a marker.

    pytest_plugins = ["onecopy_monitor.testing"]                # in conftest.py; or pytest -p onecopy_monitor.testing

    def test_a_batch_fits(memory_budget):
        with memory_budget(anonymous="200 MiB"):
            make_batch()

    @pytest.mark.memory_budget(anonymous="200 MiB")
    def test_an_epoch_fits(): ...

Until a test uses a budget, only this module and `onecopy` itself are loaded.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import AbstractContextManager

    from onecopy_monitor import Watch

__all__ = ["MemoryBudget", "memory_budget", "pytest_configure", "pytest_runtest_call"]

_LIMITS = ("anonymous", "file_dirty", "shmem", "page_tables", "real")
_OPTIONS = ("children", "files", "interval", "exact", "budget")
_MARKER = """memory_budget(anonymous=..., file_dirty=..., shmem=..., page_tables=..., real=..., grown=True, \
children=True, interval=0.02): fail the test if its memory exceeds one of the limits ("200 MiB"); \
see onecopy_monitor.testing"""


class MemoryBudget(Protocol):
    """The type of the fixture `memory_budget`."""

    def __call__(self, **limits: str | int | float | bool | None) -> AbstractContextManager[Watch]:
        """Return a context that fails the test if its block exceeds limits of `onecopy_monitor.Watch.assert_peak`."""


@contextmanager
def _budget(**limits: Any) -> Iterator[Watch]:
    """Watch a block, and fail the test if a limit was exceeded; an exception of the block is passed on instead."""
    __tracebackhide__ = True
    from onecopy_monitor import watch

    unknown = limits.keys() - {*_LIMITS, *_OPTIONS, "grown"}
    if unknown:
        raise TypeError(f"memory_budget has no limit or option named {', '.join(sorted(unknown))}")
    if all(limits.get(name) is None for name in _LIMITS):
        raise TypeError(f"memory_budget needs a limit, one of {', '.join(_LIMITS)}")
    options: dict[str, Any] = {
        "interval": 0.02,
        "files": limits.get("real") is not None or limits.get("file_dirty") is not None,
    }
    options |= {name: limits[name] for name in _OPTIONS if name in limits}
    with watch(**options) as watched:
        yield watched
    excess = ""
    try:
        watched.assert_peak(**{name: limits[name] for name in (*_LIMITS, "grown") if name in limits})
    except AssertionError as error:
        excess = str(error)
    if excess:
        pytest.fail(excess)


@pytest.fixture
def memory_budget() -> MemoryBudget:
    """Return a context manager that limits the memory of its block: ``with memory_budget(anonymous="200 MiB"): ...``.

    The limits are those of `onecopy_monitor.Watch.assert_peak`, and apply to the memory added while the block runs, by
    this process and its children. A limit on anonymous memory is the most useful one: pages of files are shared, and
    the kernel drops them when needed. The options are those of `onecopy_monitor.watch`. Memory is sampled 50 times per
    second, so shorter peaks can be missed.
    """
    return _budget


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `memory_budget`."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Apply the budget of the marker `memory_budget` to a test."""
    __tracebackhide__ = True
    marker = item.get_closest_marker("memory_budget")
    if marker is None:
        return (yield)
    if marker.args:
        raise TypeError('memory_budget takes keyword arguments only: memory_budget(anonymous="200 MiB")')
    with _budget(**marker.kwargs):
        return (yield)
