"""What is in memory, judged by mincore; and asking for more or less of it."""

import contextlib
import math
import mmap
import os
import pickle
import random
import resource
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.support.page_cache import nearly

import onecopy as oc
from onecopy import _core
from onecopy.files.page_cache import EvictReport, PinReport, Residency, WarmReport, cachestat, residency
from onecopy.memory import proc

PAGE = mmap.PAGESIZE
MIB = 1 << 20


def pages_of(ranges: list[tuple[int, int]], size: int, offset: int = 0) -> set[int]:
    """List the pages of the file that some ranges of a mapping touch; the mapping begins at `offset`."""
    bytes_of = (range(offset + at, offset + min(at + length, size)) for at, length in ranges)
    return {page for some in bytes_of if some for page in range(some[0] // PAGE, some[-1] // PAGE + 1)}


# --- telling ----------------------------------------------------------------------------------------------------------


def touch_only(path: Path, pages: set[int]) -> None:
    """Read single pages into the page cache, without what the kernel would read ahead."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page in pages:
            os.pread(file.fileno(), 1, page * PAGE)


def test_residency_counts_the_pages_that_were_read(cold_file, cached, tells_dirty):
    path = cold_file(32 * PAGE)
    for count, page in enumerate(random.Random(3).sample(range(32), 12), 1):
        touch_only(path, {page})
        told = residency(path)
        assert told.cached == cached(path) == PAGE * count
        assert (told.share, told.bytes, told.mapped, told.huge) == (count / 32, 32 * PAGE, 0, 0)
        assert (told.source, told.dirty) == (("cachestat", 0) if tells_dirty else ("mincore", None))


ranges = st.lists(st.tuples(st.integers(0, 36 * PAGE), st.integers(0, 9 * PAGE)), min_size=1, max_size=5)
begins = st.integers(0, 9 * PAGE) | st.integers(0, 9).map(lambda page: page * PAGE)
ends = st.integers(20 * PAGE, 32 * PAGE) | st.integers(20, 32).map(lambda page: page * PAGE)


@pytest.fixture
def spotted(cold_file) -> tuple[Path, set[int]]:
    """Make a file of which every third page is in memory."""
    path = cold_file(32 * PAGE)
    spots = set(range(0, 32, 3))
    touch_only(path, spots)
    return path, spots


@given(ranges=ranges, begin=begins, end=ends)
def test_ranges_are_rounded_to_pages_cut_at_the_ends_and_counted_once(spotted, ranges, begin, end):
    path, spots = spotted

    def bytes_in(pages: set[int]) -> int:
        return sum(min((page + 1) * PAGE, end) - max(page * PAGE, begin) for page in pages)

    with oc.Mapping(path, begin, end - begin) as mapping:
        told = residency(mapping, ranges)
        asked = pages_of(ranges, len(mapping), begin)
        assert (told.bytes, told.cached) == (bytes_in(asked), bytes_in(asked & spots))


@given(ranges=ranges, begin=begins, end=ends, spots=st.sets(st.integers(0, 31)))
def test_warming_ranges_brings_in_those_of_their_pages_that_are_missing(
    cold_file, cached_pages, ranges, begin, end, spots
):
    path = cold_file(32 * PAGE)
    touch_only(path, spots)
    with oc.Mapping(path, begin, end - begin) as mapping:
        needed = pages_of(ranges, len(mapping), begin)
        report = oc.warm(mapping, ranges)
        assert report.complete
        assert report.bytes >= report.cached_after == nearly(report.bytes)
        assert residency(mapping, ranges).share == (1.0 if needed else None)
        assert needed <= cached_pages(path)  # the kernel may read ahead


def test_what_is_mapped_is_reported_of_this_process(cold_file):
    path = cold_file(8 * PAGE)
    path.read_bytes()
    with oc.Mapping(path) as mapping:
        before = residency(mapping)
        assert (before.cached, before.mapped) == (8 * PAGE, 0)
        mapping.view()[3 * PAGE]
        after = residency(mapping)
        assert 0 < after.mapped <= 8 * PAGE
        assert after.mapped == sum(region.memory.rss for region in proc.regions_of(os.getpid(), path))


def test_unsaved_pages_are_reported_or_unknown(cold_file, tells_dirty):
    path = cold_file(8 * PAGE)
    with path.open("r+b") as file:
        file.write(bytes(2 * PAGE))
    before = residency(path).dirty
    oc.evict(path)
    after = residency(path).dirty
    assert (before >= 2 * PAGE, after) == (True, 0) if tells_dirty else (before, after) == (None, None)


# --- warming ----------------------------------------------------------------------------------------------------------


def test_a_warm_brings_everything_in_and_reports_how(cold_file, cached):
    path = cold_file(20 * MIB)
    report = oc.warm(path)
    assert cached(path) == 20 * MIB
    assert (report.complete, report.bytes, report.filled) == (True, 20 * MIB, 20 * MIB)
    assert (report.cached_before, report.cached_after) == (0, nearly(20 * MIB))
    assert min(report.threads, report.seconds) > 0
    assert math.isclose(report.gib_per_s * report.seconds, 20 / 1024)


def test_a_second_warm_finds_everything_in_memory(cold_file):
    path = cold_file(4 * MIB)
    with oc.Mapping(path) as mapping:
        if oc.files.pin(mapping).pinned < 4 * MIB:
            pytest.skip("nothing may be locked, and the kernel may take back what is not")
        report = oc.warm(path)
    assert (report.filled, report.cached_before, report.complete) == (0, 4 * MIB, True)
    assert "already in memory" in report.reason


@pytest.mark.parametrize("mechanism", ["auto", "populate", "read"])
@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("huge", [None, True, False])
def test_every_way_of_reading_brings_everything_in(cold_file, cached, populates, mechanism, threads, huge):
    for _ in range(3):  # the kernel may take pages back at once, and on a busy machine it does
        path = cold_file(9 * MIB + 5)
        report = oc.warm(path, mechanism=mechanism, threads=threads, huge=huge)
        if cached(path) >= 9 * MIB + 5:
            break
    assert report.complete
    assert cached(path) >= 9 * MIB + 5
    assert report.mechanism == ("populate" if populates and mechanism != "read" else "read")
    assert ("cannot populate" in report.reason) == (not populates and mechanism != "read")
    assert threads is None or report.threads <= threads


@pytest.mark.parametrize("mechanism", ["advise", "none"])
def test_ways_that_do_not_read_bring_nothing_in_and_say_so(cold_file, cached, mechanism):
    path = cold_file(4 * MIB)
    report = oc.warm(path, mechanism=mechanism)
    assert (cached(path), report.filled, report.complete, report.mechanism) == (0, 0, False, mechanism)


def test_in_order_reads_everything_or_reports_that_the_readahead_will(cold_file, cached):
    path = cold_file(4 * MIB)
    report = oc.warm(path, in_order=True)
    assert report.complete == (cached(path) == 4 * MIB)
    assert report.complete or "ahead" in report.reason


@pytest.mark.parametrize("budget", [0, 1, 8 * MIB, 17 * MIB])
def test_no_more_than_the_budget_is_worked_on(cold_file, cached, budget):
    path = cold_file(64 * MIB)
    report = oc.warm(path, max_bytes=budget)
    assert report.filled <= budget
    assert report.filled <= cached(path) < 64 * MIB
    assert (report.filled > 0) == (budget >= 8 * MIB)  # it works in pieces
    assert not report.complete
    assert "budget" in report.reason


def test_a_copy_is_in_memory_already(cold_file, cached):
    path = cold_file(4 * MIB)
    with oc.Mapping(path, mode="copy") as mapping:
        oc.evict(path)
        report = oc.warm(mapping)
        assert (report.complete, report.filled, report.mechanism) == (True, 0, "none")
        assert cached(path) == 0


def test_a_memory_file_can_be_queried_warmed_and_evicted(memfd):
    os.write(memfd, b"abc" * 10_000)
    with oc.Mapping.from_descriptor(memfd) as mapping:
        assert oc.warm(mapping).complete
        assert residency(mapping).cached in (None, 30_000)
        oc.evict(mapping)
        assert bytes(mapping.view()) == b"abc" * 10_000  # it has no other place


# --- evicting ---------------------------------------------------------------------------------------------------------


def test_evict_takes_a_file_out_of_memory_and_saves_what_is_unsaved_first(cold_file, cached):
    path, content = cold_file(4 * MIB), os.urandom(4 * MIB)
    path.write_bytes(content)
    with oc.Mapping(path) as mapping:
        assert bytes(mapping.view()) == content
        report = oc.evict(mapping)
        assert (report.bytes, report.cached_before, report.cached_after) == (4 * MIB, nearly(4 * MIB), 0)
        assert cached(path) == residency(mapping).mapped == 0
        assert report.seconds > 0
        assert report.reason
        assert bytes(mapping.view()) == path.read_bytes() == content


def test_only_the_range_is_evicted(cold_file):
    path = cold_file(8 * MIB)
    oc.warm(path, huge=False)
    oc.evict(path, [(2 * MIB, 4 * MIB)])
    assert residency(path, [(0, 2 * MIB), (6 * MIB, 2 * MIB)]).share == 1.0
    assert residency(path, [(2 * MIB, 4 * MIB)]).cached < 4 * MIB


def test_changes_to_private_pages_survive_an_evict(cold_file):
    path = cold_file(4 * PAGE)
    with oc.Mapping(path, private=True) as mapping:
        mapping.view()[PAGE : PAGE + 7] = b"changed"
        oc.evict(mapping)
        assert bytes(mapping.view(PAGE, 7)) == b"changed"


def test_what_another_mapping_holds_stays_and_the_report_reports_it(cold_file, cached):
    path = cold_file(4 * MIB)
    with oc.Mapping(path) as holder:
        sum(holder.view()[::PAGE])
        report = oc.evict(path)
        assert report.cached_after == nearly(4 * MIB)
        assert cached(path) == 4 * MIB
        assert "mapped" in report.reason


# --- pinning ----------------------------------------------------------------------------------------------------------


def locked() -> int:
    return proc.status(os.getpid()).vm_lck


def test_pin_locks_until_unpin_or_until_the_mapping_is_gone(cold_file, cached):
    path = cold_file(16 * PAGE)
    before = locked()
    mapping = oc.Mapping(path)
    report = oc.files.pin(mapping, [(0, 3 * PAGE), (8 * PAGE, 1)])
    assert (report.bytes, report.pinned, report.outcome) == (4 * PAGE, 4 * PAGE, "applied")
    assert report.reason
    assert locked() - before == 4 * PAGE
    assert oc.files.pin(mapping).pinned == 16 * PAGE == locked() - before
    report = oc.evict(mapping)
    assert report.cached_after == cached(path) == 16 * PAGE
    assert "locked" in report.reason
    for ranges, left in (([(0, PAGE)], 15 * PAGE), (None, 0)):
        oc.files.unpin(mapping, ranges)
        assert locked() - before == left
    oc.files.pin(mapping)
    mapping.close()
    assert locked() == before


def test_a_pin_over_the_limit_is_reported_and_locks_nothing_more(cold_file, nobody, in_child):
    if 0 <= resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] < 16 * PAGE:
        pytest.skip("less than 16 pages may be locked here, and no process may raise that")
    cold_file(64 * PAGE, "model.bin").chmod(0o644)

    def pin() -> tuple[int, int, str, str, int]:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (16 * PAGE, 16 * PAGE))
        mapping = oc.Mapping("model.bin")
        report = oc.files.pin(mapping, [(0, 4 * PAGE), (32 * PAGE, 32 * PAGE)])
        return report.bytes, report.pinned, report.outcome, report.reason, locked()

    asked, pinned, outcome, reason, held = in_child(pin, uid=nobody)
    assert (asked, pinned, outcome, held) == (36 * PAGE, 4 * PAGE, "refused", 4 * PAGE)
    assert "limit" in reason


# --- asking wrongly ---------------------------------------------------------------------------------------------------


WRONG = {"threads": -1, "max_bytes": -1, "ranges": [(-1, 5)], "mechanism": "magic"}


@pytest.mark.parametrize("option", WRONG)
def test_negative_numbers_and_an_unknown_mechanism_are_value_errors(cold_file, option):
    with pytest.raises(ValueError, match=r"negative|populate"):
        oc.warm(cold_file(PAGE), **{option: WRONG[option]})


@pytest.mark.parametrize("call", [oc.warm, oc.evict, residency])
@pytest.mark.parametrize("ranges", [[], [(PAGE, 1), (2**64 - 1, 2**64 - 1)]])
def test_no_ranges_and_ranges_beyond_the_end_are_nothing(cold_file, call, ranges):
    assert call(cold_file(PAGE), ranges).bytes == 0


def test_cachestat_counts_the_pages_of_a_range_and_none_of_an_empty_one(tmp_path):
    (tmp_path / "data.bin").write_bytes(bytes(4 * PAGE))
    with (tmp_path / "data.bin").open("rb") as file:
        try:
            counts = [cachestat(file.fileno(), part).cached for part in (None, (PAGE, 2 * PAGE), (PAGE, 0))]
        except OSError:
            pytest.skip("the kernel has no cachestat")
    assert counts == [4 * PAGE, 2 * PAGE, 0]


def test_reports_travel_between_processes(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(1 << 20))
    with oc.Mapping(path) as mapping:
        reports = [call(mapping) for call in (oc.warm, residency, oc.files.pin, oc.evict)]
        assert [type(report) for report in reports] == [WarmReport, Residency, PinReport, EvictReport]
        assert all(str(1 << 20) in repr(report) for report in reports)
        with contextlib.suppress(OSError):  # a kernel may refuse either
            reports.append(cachestat(mapping.fileno()))
            reports.append(_core.mapped_in(os.getpid(), mapping.address, mapping.nbytes))
    for report in reports:
        again = pickle.loads(pickle.dumps(report))
        assert (type(again), repr(again)) == (type(report), repr(report))
    with pytest.raises(ValueError, match="the state does not belong to this report"):
        type(reports[0]).__new__(type(reports[0])).__setstate__((1,))
