"""How much memory may still be used, in a real control group: all that is charged to it, less what can be dropped."""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.children import in_a_child
from tests.support.kernel import needs_memory_files
from tests.support.memory_group import enter, group_or_skip

from onecopy import _core
from onecopy.files.page_cache import available_memory
from onecopy.memory import container

MIB = 1 << 20
LIMIT, TAKEN = 400 * MIB, 80 * MIB
NOISE = 12 * MIB
"""What Python itself takes and gives back meanwhile, and what the kernel charges in batches for each CPU."""


def fill(memory: mmap.mmap) -> mmap.mmap:
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    return memory


def anonymous(_: Path) -> object:
    return fill(mmap.mmap(-1, TAKEN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def memfd(_: Path) -> object:
    file = os.memfd_create("taken")
    os.truncate(file, TAKEN)
    with mmap.mmap(file, TAKEN) as memory:
        fill(memory)
    return file  # pages of a file in memory stay, mapped or not


def page_cache(folder: Path) -> object:
    with (folder / "file").open("wb") as file:
        for _ in range(TAKEN // MIB):
            file.write(bytes(MIB))
        os.fsync(file.fileno())
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    with group_or_skip(LIMIT) as group:
        yield group


def change(group: Path, take: Callable[[Path], object], folder: Path) -> tuple[int, int, str]:
    enter(group)
    before = available_memory() or 0
    held = take(folder)
    (after, limited_by) = _core.available_memory() or (0, "")
    assert held is not before
    return before, after, limited_by


@pytest.mark.parametrize("take", [anonymous, pytest.param(memfd, marks=needs_memory_files)])
def test_what_cannot_be_dropped_is_not_available(group, in_child, tmp_path, take) -> None:
    before, after, limited_by = in_child(change, group, take, tmp_path)
    assert before == pytest.approx(LIMIT, abs=NOISE)
    assert before - after == pytest.approx(TAKEN, abs=NOISE)
    assert f"onecopy-tests-{os.getpid()}" in limited_by


@in_a_child
def test_the_container_of_this_process_leaves_what_is_available(group) -> None:
    enter(group)
    held = anonymous(Path())
    (available, limited_by), found = _core.available_memory() or (0, ""), container()
    assert found is not None
    assert available == pytest.approx(found.left, abs=NOISE)
    assert limited_by == f"the control group {found.limited_by}"
    del held


def test_page_cache_is_available(group, in_child, tmp_path) -> None:
    before, after, _ = in_child(change, group, page_cache, tmp_path)
    assert before - after == pytest.approx(0, abs=NOISE)
