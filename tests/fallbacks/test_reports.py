"""What is said and done where the kernel refuses: the next best way, by its name, and never a number that is not so."""

import errno
import mmap
import os
import re
import resource
from pathlib import Path

import numpy as np
import pytest
from tests.fallbacks.run import disable_huge_pages, refuse_list
from tests.support.memory_group import NoMemoryGroupError, memory_group
from tests.support.seccomp import refuse

import onecopy as oc
from onecopy.files.page_cache import residency
from onecopy.memory import proc

pytestmark = pytest.mark.processes

PAGE = mmap.PAGESIZE
MIB = 1 << 20


def test_without_cachestat_mincore_is_called_and_dirt_is_unknown(cold_file, cached, in_child):
    path = cold_file(32 * PAGE)
    with path.open("rb", buffering=0) as file:
        file.read(5 * PAGE)

    def look() -> tuple[str, int | None, int | None]:
        refuse("cachestat")
        told = residency(path)
        return told.source, told.cached, told.dirty

    assert in_child(look) == ("mincore", cached(path), None)


@pytest.mark.parametrize("touched", [0, 9, 20, 31])
def test_without_a_scan_of_pages_no_more_of_a_range_is_mapped_than_in_truth(cold_file, in_child, touched):
    path = cold_file(32 * PAGE)

    def look(*refused: str) -> list[int | None]:
        refuse(*refused)
        mapping = oc.Mapping(path)
        mapping.view()[touched * PAGE]
        parts = [[(0, PAGE)], [(PAGE, 31 * PAGE)], [(8 * PAGE, 4 * PAGE)], None]
        return [residency(mapping, part).mapped for part in parts]

    truth, told = in_child(look), in_child(look, "PAGEMAP_SCAN")
    assert all(number in (None, right) for number, right in zip(told, truth, strict=True))
    assert told[-1] == truth[-1]  # smaps reports the whole mapping too


@pytest.mark.parametrize(
    ("refused", "facts", "words"),
    [
        ("MADV_POPULATE_READ", {"mechanism": "read"}, "cannot populate"),
        ("MADV_HUGEPAGE", {"huge": "unsupported"}, "2 MiB pages: unsupported"),
    ],
)
def test_a_warm_without_an_advice_is_complete_and_the_report_has_the_reason(
    cold_file, cached, in_child, refused, facts, words
):
    path = cold_file(9 * MIB)

    def warm() -> tuple[dict[str, str | None], str, bool]:
        refuse(refused)
        report = oc.warm(path, huge="huge" in facts)
        return {name: getattr(report, name) for name in facts}, report.reason, report.complete

    told, reason, complete = in_child(warm)
    assert (told, complete, cached(path)) == (facts, True, 9 * MIB)
    assert words in reason


def test_with_huge_pages_off_for_the_process_everything_comes_in_small_ones(cold_file, cached, in_child):
    path = cold_file(9 * MIB)

    def warm() -> tuple[bool, int | None, bool]:
        disable_huge_pages()
        mapping = oc.Mapping(path)
        complete = oc.warm(mapping, huge=True).complete
        sum(mapping.view()[::PAGE])
        return complete, residency(mapping).huge, bytes(oc.Mapping(path, mode="copy").view()) == mapping.view()

    assert in_child(warm) == (True, 0, True)
    assert cached(path) == 9 * MIB


@pytest.mark.parametrize("refused", ["O_TMPFILE,linkat", "fallocate=EOPNOTSUPP,sync_file_range"])
def test_without_unnamed_files_or_reservations_a_save_leaves_one_file(tmp_path, in_child, refused):
    def save() -> None:
        refuse_list(refused)
        for count in (9, 5):
            oc.save(tmp_path / "model", {"a": np.arange(count)})

    in_child(save)
    assert oc.open(tmp_path / "model")["a"].tolist() == [0, 1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("refused", [["O_DIRECT"], ["cachestat"], ["O_DIRECT", "cachestat"], ["threads"]])
def test_a_copy_is_right_by_every_way_of_reading(cold_file, in_child, refused):
    path = cold_file(20 * MIB + 77)

    def copy() -> bool:
        content = path.read_bytes()
        refuse(*refused)
        oc.evict(path, [(0, 9 * MIB)])
        return bytes(oc.Mapping(path, 5, mode="copy").view()) == content[5:]

    assert in_child(copy)


def test_without_cachestat_a_copy_of_what_is_cached_does_not_go_to_the_disk(cold_file, in_child):
    path = cold_file(20 * MIB)

    def read_from_disk(*, warm_first: bool) -> int:
        refuse("cachestat")
        oc.evict(path)
        held = oc.Mapping(path)
        if warm_first:
            assert oc.files.pin(held).pinned == 20 * MIB  # the kernel may not drop them again
        before = proc.io(os.getpid()).read_bytes
        oc.Mapping(path, mode="copy").close()
        return proc.io(os.getpid()).read_bytes - before

    assert in_child(lambda: read_from_disk(warm_first=True)) < MIB  # code of this process may be read meanwhile
    assert in_child(lambda: read_from_disk(warm_first=False)) >= 20 * MIB  # or the judge would not see the disk


def test_without_threads_the_one_there_is_does_the_work(cold_file, cached, in_child, tmp_path):
    path = cold_file(40 * MIB)

    def work() -> tuple[bool, bool, int]:
        refuse("threads")
        job = oc.warm(path, [(0, 33 * MIB)], wait=False)
        waited = job.wait().complete
        oc.save(tmp_path / "model", {"a": np.zeros(5 * MIB, np.uint8)})
        oc.evict(path)
        again = oc.warm(path, threads=4)
        return waited, again.complete, again.threads

    assert in_child(work) == (True, True, 1)
    assert cached(path) == 40 * MIB


def test_nothing_may_be_locked_and_the_report_has_the_reason(cold_file, nobody, in_child):
    cold_file(4 * PAGE, "model.bin").chmod(0o644)

    def pin() -> tuple[int, str, str]:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        report = oc.files.pin(oc.Mapping("model.bin"))
        return report.pinned, report.outcome, report.reason

    pinned, outcome, reason = in_child(pin, uid=nobody)
    assert (pinned, outcome) == (0, "refused")
    assert "limit" in reason


@pytest.mark.parametrize("call", [oc.Mapping, oc.open, oc.warm])
def test_addresses_that_run_out_are_an_error_that_names_the_file(tmp_path, in_child, call):
    path = tmp_path / "model"
    oc.save(path, {"a": np.zeros(64 * MIB, np.uint8)})

    def work() -> str:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
        resource.setrlimit(resource.RLIMIT_AS, (used + 32 * MIB, used + 32 * MIB))
        try:
            call(path)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        return "it fitted"

    assert re.fullmatch(re.escape(str(path)) + f": .*{os.strerror(errno.ENOMEM)}", in_child(work))


@pytest.fixture
def group():
    """Give a control group of 64 MiB, or skip with the reason."""
    try:
        with memory_group(64 * MIB) as join:
            yield join
    except NoMemoryGroupError as error:
        pytest.skip(str(error))


def test_a_file_larger_than_its_control_group_is_not_pushed_through_it_and_can_be_read(cold_file, group, in_child):
    path = cold_file(160 * MIB)

    def warm_and_read() -> tuple[bool, int, str | None, str, int]:
        group()
        report = oc.warm(path)
        total = int(np.frombuffer(oc.Mapping(path).view(), np.uint8).sum())
        return report.complete, report.filled, report.huge, report.reason, total

    complete, filled, huge, reason, total = in_child(warm_and_read)
    assert (complete, huge) == (False, None)
    assert 0 < filled <= 64 * MIB
    assert "160.0 MiB is more than half of the 6" in reason  # what the group has left of its 64 MiB
    assert "stopped at" in reason
    assert total == int(np.frombuffer(path.read_bytes(), np.uint8).sum(dtype=np.int64))
