"""Memory limits: what does not fit into a control group is an error with the numbers, and no process is ever killed."""

import errno
import mmap
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import in_a_child
from tests.support.kernel import needs_memory_files
from tests.support.limited_program import MIB, NUMBERS, Run, write_files
from tests.support.memory_group import NoMemoryGroupError, enter, group_or_skip, memory_groups
from tests.support.rounds import rounds

import onecopy as oc
from onecopy import _core
from onecopy.arrays.scratch import alloc
from onecopy.errors import NotEnoughMemory
from onecopy.files.page_cache import available_memory, expect_memory
from onecopy.memory import container
from onecopy.memory.cgroup import charged_to, kills
from onecopy.memory.proc import maps
from onecopy_images import mosaic

LIMITS = (48, 64, 96)
"""MiB. Any read of a file can end a process that leaves less than two windows of read-ahead, here 16 MiB: the heap of a
test session, copied on write, is up to 20 MiB."""
SIZES = [8, 16, 32, 48, 64, 96, 128, 192, 256]
"""MiB of the files: up to four times a limit."""
FIRST_SEED = int(os.environ.get("ONECOPY_FIRST_SEED", "0"))


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[int, Path]:
    return write_files(tmp_path_factory.mktemp("files"), SIZES)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_random_sequence_of_operations_in_a_small_group_is_killed(files, tmp_path, in_child, monkeypatch) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + rounds(20)):
        limit = random.Random(seed).choice(LIMITS) * MIB
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setenv("ONECOPY_CACHE", str(folder / "cache"))
        with group_or_skip(limit) as group:
            run = Run(seed, files, folder, limit)
            try:
                found = in_child(lambda group=group, run=run: (enter(group), run.all())[1])
            except Exception as error:
                error.add_note(f"seed {seed}, limit {limit}: {run.log.read_text()}")
                raise
            assert kills(group) == 0, f"seed {seed}, limit {limit}: a child: {found}"
        shutil.rmtree(folder)


def writes_to_all(path: Path, folder: Path) -> None:
    with oc.open(path, private=True) as file:
        assert f"bytes ends the process (limited by the control group {container().limited_by})" in file.mode_reason  # type: ignore[union-attr]
        expect_memory(sum(entry.nbytes for entry in file.entries), "write to", str(path))


WORKS: dict[str, Callable[[Path, Path], object]] = {
    "large arrays": lambda *_: alloc((96, MIB), "u1", heap_below="1 TB"),
    "a copy": lambda path, _: oc.open(path, mode="copy"),
    "a file in memory": lambda path, _: oc.save("/dev/shm/made.safetensors", oc.open(path)),
    "an object in memory": lambda path, _: oc.share_object(
        lambda: dict(oc.open(path)), "an object", store=oc.Store(place="memory")
    ),
    "scratch in memory": lambda *_: oc.scratch((96, MIB), "u1", "/dev/shm", anywhere=True),
    "large tiles": lambda path, folder: mosaic([path.with_suffix(".tif")] * 2, [(0, 0), (9, 9)], folder=folder),
    "an image that is decoded": lambda _, folder: oc.images.open(folder / "large.png", store=folder / "store"),
    "writes to all": writes_to_all,
}


@pytest.mark.parametrize("work", WORKS)
def test_what_does_not_fit_into_the_group_is_a_memory_error_with_the_numbers(
    files, tmp_path, in_child, small_group, work
) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(np.zeros((8000, 6000), np.uint8)).save(tmp_path / "large.png")

    def refused() -> None:
        enter(small_group)
        with pytest.raises(NotEnoughMemory) as raised:
            WORKS[work](files[256], tmp_path)
        assert isinstance(raised.value, MemoryError)
        assert NUMBERS.search(str(raised.value))
        assert str(small_group) in str(raised.value)
        assert raised.value.errno == errno.ENOMEM

    in_child(refused)
    assert not list(Path("/dev/shm").glob("made*"))


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Give a group of 48 MiB, in which no process may be killed."""
    with group_or_skip(48 * MIB) as group:
        yield group
        assert kills(group) == 0


@in_a_child
def test_in_a_small_group_no_more_is_locked_than_fits_and_parts_of_large_files_can_be_written(files, small_group):
    enter(small_group)
    with oc.open(files[256]) as file:
        report = oc.files.pin(file)
    assert (report.pinned, report.outcome) == (0, "refused")
    assert NUMBERS.search(report.reason)
    with oc.open(files[16]) as file:  # what is locked already is not counted again
        assert oc.files.pin(file).pinned == oc.files.pin(file).pinned > 16 * MIB
    with oc.open(files[256], private=True) as file:
        file["part.3"][:1024] += 1  # 4 MiB
        assert file["part.3"][1023, 1] == np.float32(float(3 * 8192 * 1024 + 1023 * 1024 + 1)) + 1


def test_the_group_that_reads_a_file_first_pays_and_explain_says_so(files, in_child) -> None:
    path, size = files[64], files[64].stat().st_size

    def usage(work: Callable[[], object]) -> tuple[int, object]:
        before = container()
        answer, after = work(), container()
        assert before is not None
        assert after is not None
        return (after.usage or 0) - (before.usage or 0), answer

    def warm() -> object:
        groups["warmer"]()
        oc.evict(path)
        return usage(lambda: oc.warm(path).complete)

    def read() -> object:
        groups["reader"]()
        with oc.open(path) as file:
            return usage(lambda: (sum(float(file[name][:, ::512].sum()) for name in file), str(oc.explain(file)))[1])

    try:
        with memory_groups(400 * MIB, "warmer", "reader") as groups:
            paid, complete = in_child(warm)
            if not complete:
                pytest.skip("the kernel drops pages before they are used")
            shared, text = in_child(read)
            hidden = in_child(charges_of_libraries, uid=65534)
    except NoMemoryGroupError as error:
        pytest.skip(str(error))
    assert paid > size * 0.9
    assert shared < size * 0.2
    assert "/warmer" in text or "only root can see which one" in text
    assert "/reader" not in text
    assert hidden is None


def charges_of_libraries() -> object:
    regions = [region for region in maps(os.getpid()) if region.inode]
    return charged_to(os.getpid(), [(region.start, region.end - region.start) for region in regions])


# --- how much may still be used: all that is charged, less what can be dropped --------------------------------------

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
    _held = take(folder)  # until the end
    (after, limited_by) = _core.available_memory() or (0, "")
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
