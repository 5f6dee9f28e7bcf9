"""A pytest plugin for other projects: objects that are built once per machine, and memory budgets.

    def test_a_search_finds(onecopy_cached):
        index = onecopy_cached("index", build_index)     # built once for all workers of xdist, and for later runs

    def test_a_batch_fits(memory_budget):
        with memory_budget(anonymous="200 MiB"):
            make_batch()

    @pytest.mark.memory_budget(anonymous="200 MiB")
    def test_an_epoch_fits(): ...

pytest loads it if onecopy-monitor is installed, unless ``-p no:onecopy_monitor.testing`` disables it. Until a test uses
a fixture or the marker, only this module and `onecopy` itself are loaded.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    from onecopy_monitor import Watch

__all__ = [
    "Cached",
    "MemoryBudget",
    "memory_budget",
    "onecopy_cached",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
]

T = TypeVar("T")
_LIMITS = ("anonymous", "file_dirty", "shmem", "page_tables", "real")
_OPTIONS = ("children", "files", "interval", "exact", "budget")
_MARKER = """memory_budget(anonymous=..., file_dirty=..., shmem=..., page_tables=..., real=..., grown=True, \
children=True, interval=0.02): fail the test if its memory exceeds one of the limits ("200 MiB"); \
see onecopy_monitor.testing"""


class MemoryBudget(Protocol):
    """The type of the fixture `memory_budget`."""

    def __call__(self, **limits: str | int | float | bool | None) -> AbstractContextManager[Watch]:
        """Return a context that fails the test if its block exceeds a limit of `onecopy_monitor.Watch.assert_peak`."""


@contextmanager
def _budget(**limits: Any) -> Iterator[Watch]:
    """Watch a block, and fail the test if a limit was exceeded. Exceptions of the block are passed on."""
    __tracebackhide__ = True
    from onecopy_monitor import watch

    unknown = limits.keys() - {*_LIMITS, *_OPTIONS, "grown"}
    if unknown:
        raise TypeError(f"memory_budget has no limit or option named {', '.join(sorted(unknown))}")
    if all(limits.get(name) is None for name in _LIMITS):
        raise TypeError(f"memory_budget requires at least one of the limits {', '.join(_LIMITS)}")
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

    The limits are those of `onecopy_monitor.Watch.assert_peak`, and apply to the memory that this process and its
    children add while the block runs. A limit on anonymous memory is the most useful one, because file pages are shared
    and the kernel drops them when needed. The options are those of `onecopy_monitor.watch`. Memory is sampled 50 times
    per second, so shorter peaks can be missed.
    """
    return _budget


class Cached(Protocol):
    """The type of the fixture `onecopy_cached`."""

    def __call__(self, key: str, build: Callable[[], T], *, private: bool = False) -> T:
        """Return the object that `build` makes once per machine, with arrays that all processes share."""


@pytest.fixture(scope="session")
def onecopy_cached(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cached:
    """Return a function that builds objects once per machine: ``onecopy_cached("index", build_index)``.

    One of the processes on the machine, including workers of pytest-xdist, calls the build function, and the others
    wait. All of them, and later runs, open the result from the default store (`onecopy.share_object`) within
    milliseconds, and share its arrays. Each call opens the result again. Arrays are read-only, or with ``private=True``
    writable on private pages.

    The object is built again when the function, the project's code that it uses, or the tests' root folder changes.
    Files that the function reads must be part of the key, as returned by `onecopy.file_key`. If it raises an exception,
    later tests of the run that need the object get a RuntimeError with the traceback, and the next run calls the
    function again. If the process is killed, another one calls it. ``pytest --onecopy-clear`` removes the objects.
    """
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent  # of all workers of the run

    def cached(key: str, build: Callable[[], T], *, private: bool = False) -> T:
        from onecopy.data.objects import stored_object
        from onecopy.store import Store, keys

        name = keys.name_of(build)
        failed = folder / f"onecopy-{keys.digest_of((key, name), 'the key')}"

        def make() -> T:
            if failed.exists():
                raise RuntimeError(f"cannot build the object: the function failed in this run\n{failed.read_text()}")
            try:
                return build()
            except Exception:
                failed.write_text(traceback.format_exc())
                raise

        name = f"{_prefix(request.config)}{key}, object by {name}"
        value: T = stored_object(make, name, Store(), None, private=private)
        return value

    return cached


def _prefix(config: pytest.Config) -> str:
    return f"pytest of {config.rootpath}: "


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line option ``--onecopy-clear``."""
    text = "before the tests, remove the objects that the fixture onecopy_cached has built for them"
    parser.getgroup("onecopy").addoption("--onecopy-clear", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `memory_budget`, and remove cached objects if requested."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--onecopy-clear", default=False) and not hasattr(config, "workerinput"):
        from onecopy.store import Store

        store = Store()
        store.prune(keys=[one.key for one in store.ls() if one.key.startswith(_prefix(config))])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Apply the budget in the marker `memory_budget` to a test."""
    __tracebackhide__ = True
    marker = item.get_closest_marker("memory_budget")
    if marker is None:
        return (yield)
    if marker.args:
        raise TypeError('memory_budget accepts keyword arguments only: memory_budget(anonymous="200 MiB")')
    with _budget(**marker.kwargs):
        return (yield)
