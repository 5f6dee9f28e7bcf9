"""Files of twice the memory of a control group: what reads them whole keeps little of them in the page cache.

Another file was cached in the group before, and has to stay there: the kernel would drop it first.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.children import call_in_child
from tests.support.memory_group import enter, group_or_skip

import onecopy as oc
from onecopy.files.page_cache import residency

MIB = 1 << 20
GROUP, LARGE, OTHER = 256 * MIB, 512 * MIB, 64 * MIB
WINDOW = 64 * MIB
SLACK = 64 * MIB
"""What the kernel reads ahead of what it is asked for."""


class Files(NamedTuple):
    large: Path
    other: Path
    outside: Path
    target: Path


class Seen(NamedTuple):
    answer: Any
    peak: int
    """Bytes of the large file in the page cache, at most."""
    other: float
    """The part of the other file that was left in the page cache."""
    outside: float
    """The same of a file that was cached outside the group: less than all of it was dropped by the machine itself."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    folder = tmp_path_factory.mktemp("larger than memory")
    files = Files(*(folder / f"{name}.oc" for name in Files._fields))
    rng = np.random.default_rng(5)
    block = rng.integers(0, 255, (256, 32 << 10), np.uint8)
    oc.save(files.large, {f"a{i}": block + np.uint8(i) for i in range(LARGE // block.nbytes)})
    for path in files.other, files.outside:
        oc.save(path, {"other": np.ones(OTHER, np.uint8)})
    yield files
    for path in files:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def highest_cached(path: Path) -> Iterator[list[int]]:
    """Sample how much of a file is in the page cache; give a list with the maximum so far."""
    highest, ended = [0], threading.Event()

    def sample() -> None:
        with oc.open(path) as file:
            while not ended.is_set():
                highest[0] = max(highest[0], file.residency().cached or 0)
                time.sleep(0.002)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield highest
    finally:
        ended.set()
        thread.join()


def part_in_cache(path: Path) -> float:
    seen = residency(path)
    assert seen.cached is not None
    return seen.cached / seen.bytes


@pytest.fixture
def in_group(files: Files) -> Callable[[Callable[[Files], Any]], Seen]:
    """Give a function that calls work(files) in a child, in the group, where the other file is cached."""

    def run(work: Callable[[Files], Any]) -> Seen:
        def child(group: Path) -> Any:
            enter(group)
            oc.warm(files.other)
            with highest_cached(files.large) as highest:
                answer = work(files)
            return Seen(answer, highest[0], part_in_cache(files.other), part_in_cache(files.outside))

        for _ in range(5):
            oc.evict([files.large, files.other])
            oc.warm(files.outside)
            with group_or_skip(GROUP) as group:
                seen: Seen = call_in_child(child, group)
            if seen.outside == 1:
                return seen
            files.target.unlink(missing_ok=True)
        pytest.skip("this machine drops what is cached by itself")

    return run


def sums(path: Path) -> dict[str, int]:
    with oc.open(path) as file:
        return {name: int(array.sum(dtype=np.int64)) for name, array in file.items()}


def verify(files: Files) -> int:
    with oc.open(files.large) as file:
        return file.verify().bytes


def stream(files: Files) -> int:
    with oc.open(files.large) as file:
        return sum(array.nbytes for _, _, array in file.stream(window=WINDOW))


def save(files: Files) -> int:
    with oc.open(files.large) as file:
        oc.save(files.target, file)
        return file.nbytes


@pytest.mark.parametrize(
    ("work", "window"),
    [(verify, 0), (stream, WINDOW), (save, GROUP // 4)],
)
def test_a_file_of_twice_the_memory_displaces_no_other(in_group, files, work, window):
    seen = in_group(work)
    assert seen.answer == LARGE
    assert seen.peak <= window + SLACK
    assert seen.other >= 0.95
    if files.target.exists():
        assert residency(files.target).cached <= SLACK
        assert sums(files.target) == sums(files.large)
        files.target.unlink()


def test_plain_reading_displaces_the_other(in_group):
    """What the tests above would see without a window: the group is too small for both files."""
    seen = in_group(lambda files: sums(files.large))
    assert seen.peak > WINDOW + SLACK
    assert seen.other < 0.95
