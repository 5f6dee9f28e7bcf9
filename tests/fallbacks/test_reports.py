"""What is said and done where the kernel refuses: the next best way, by its name, and never a number that is not so."""

import errno
import mmap
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fallbacks.run import disable_huge_pages
from tests.support.children import call_in_child, facts, in_a_child
from tests.support.memory_group import enter, group_or_skip
from tests.support.seccomp import refuse

import onecopy as oc
from onecopy.files.page_cache import residency
from onecopy.memory import proc

PAGE = mmap.PAGESIZE
MIB = 1 << 20


@in_a_child
def test_without_cachestat_mincore_is_called_and_dirt_is_unknown(cold_file, cached):
    path = cold_file(32 * PAGE)
    with path.open("rb", buffering=0) as file:
        file.read(5 * PAGE)
    expected = cached(path)
    refuse("cachestat")
    told = residency(path)
    assert (told.source, told.cached, told.dirty) == ("mincore", expected, None)


@pytest.mark.parametrize("touched", [0, 9, 20, 31])
@in_a_child
def test_without_a_scan_of_pages_no_more_of_a_range_is_mapped_than_in_truth(cold_file, touched):
    # One mapping, asked twice: how many neighbours a fault maps depends on what is cached at that moment.
    mapping = oc.Mapping(cold_file(32 * PAGE))
    mapping.view()[touched * PAGE]
    parts = [[(0, PAGE)], [(PAGE, 31 * PAGE)], [(8 * PAGE, 4 * PAGE)], None]
    truth = [residency(mapping, part).mapped for part in parts]
    refuse("PAGEMAP_SCAN")
    told = [residency(mapping, part).mapped for part in parts]
    assert all(number in (None, right) for number, right in zip(told, truth, strict=True))
    assert told[-1] == truth[-1] > 0  # smaps reports the whole mapping too


@in_a_child
def test_a_warm_without_an_advice_is_complete_and_the_report_has_the_reason(cold_file, cached):
    path = cold_file(9 * MIB)
    refuse("MADV_POPULATE_READ", "MADV_HUGEPAGE")
    report = oc.warm(path, huge=True)
    assert (report.mechanism, report.huge, report.complete, cached(path)) == ("read", "unsupported", True, 9 * MIB)
    assert "cannot populate" in report.reason
    assert "2 MiB pages: unsupported" in report.reason


@in_a_child
def test_with_huge_pages_off_for_the_process_everything_comes_in_small_ones(cold_file, cached):
    path = cold_file(9 * MIB)
    disable_huge_pages()
    mapping = oc.Mapping(path)
    assert oc.warm(mapping, huge=True).complete
    sum(mapping.view()[::PAGE])
    assert residency(mapping).huge == 0
    assert bytes(oc.Mapping(path, mode="copy").view()) == mapping.view()
    assert cached(path) == 9 * MIB


@pytest.mark.parametrize("refused", [["O_DIRECT"], ["cachestat"], ["O_DIRECT", "cachestat"], ["threads"]])
@in_a_child
def test_a_copy_is_right_by_every_way_of_reading(cold_file, refused):
    path = cold_file(20 * MIB + 77)
    content = path.read_bytes()
    refuse(*refused)
    oc.evict(path, [(0, 9 * MIB)])
    assert bytes(oc.Mapping(path, 5, mode="copy").view()) == content[5:]


@pytest.mark.parametrize("is_cached", [True, False])  # not cached: or the judge would not see the disk
@in_a_child
def test_without_cachestat_a_copy_of_what_is_cached_does_not_go_to_the_disk(cold_file, is_cached):
    path = cold_file(20 * MIB)
    refuse("cachestat")
    held = oc.Mapping(path)
    if is_cached:
        assert oc.files.pin(held).pinned == 20 * MIB  # the kernel may not drop them again
    before = proc.io(os.getpid()).read_bytes
    oc.Mapping(path, mode="copy").close()
    read = proc.io(os.getpid()).read_bytes - before
    assert read < MIB if is_cached else read >= 20 * MIB  # code of this process may be read meanwhile


@in_a_child
def test_without_threads_the_one_there_is_does_the_work(cold_file, cached, tmp_path):
    path = cold_file(40 * MIB)
    refuse("threads")
    assert oc.warm(path, [(0, 33 * MIB)], wait=False).wait().complete
    oc.save(tmp_path / "model", {"a": np.zeros(5 * MIB, np.uint8)})
    oc.evict(path)
    again = oc.warm(path, threads=4)
    assert (again.complete, again.threads, cached(path)) == (True, 1, 40 * MIB)


def test_nothing_may_be_locked_and_the_report_has_the_reason(cold_file, nobody, in_child):
    cold_file(4 * PAGE, "model.bin").chmod(0o644)

    def pin() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        report = oc.files.pin(oc.Mapping("model.bin"))
        assert (report.pinned, report.outcome) == (0, "refused")
        assert "limit" in report.reason

    in_child(pin, uid=nobody)


@pytest.mark.parametrize("call", [oc.Mapping, oc.open, oc.warm])
@in_a_child
def test_addresses_that_run_out_are_an_error_that_names_the_file(tmp_path, call):
    path = tmp_path / "model"
    oc.save(path, {"a": np.zeros(64 * MIB, np.uint8)})
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + 32 * MIB, used + 32 * MIB))
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)) as raised:
        call(path)
    assert raised.value.filename == str(path)


def test_a_file_larger_than_its_control_group_is_not_pushed_through_it_and_can_be_read(cold_file):
    path = cold_file(160 * MIB)
    expected = int(np.frombuffer(path.read_bytes(), np.uint8).sum(dtype=np.int64))
    oc.evict(path)

    def warm_and_read() -> tuple[Any, int]:
        enter(group)
        report = facts(oc.warm(path))
        return report, int(np.frombuffer(oc.Mapping(path).view(), np.uint8).sum(dtype=np.int64))

    with group_or_skip(64 * MIB) as group:
        report, found = call_in_child(warm_and_read)
    assert (report.complete, report.huge) == (False, None)
    assert 0 < report.filled <= 64 * MIB
    assert "160.0 MiB is more than half of the 6" in report.reason  # what the group has left of its 64 MiB
    assert "stopped at" in report.reason
    assert found == expected
