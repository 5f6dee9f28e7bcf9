"""What is made of the calls of several processes."""

import contextlib
import json
import mmap
import os
import re
from dataclasses import asdict, replace

import pytest

from onecopy.run import call_log
from onecopy.run.call_log import Call, parse_calls
from onecopy.run.report import Group, RunReport, Sampler

MODEL = Call("torch.load", "/m/model.pt", 1_500_000_000, 0, "", 1)


def call(pid, **changes):
    return Call(**{**asdict(MODEL), "pid": pid, **changes})


def test_a_process_keeps_a_limited_number_of_calls(monkeypatch):
    monkeypatch.setattr(call_log, "_known", {})
    monkeypatch.setattr(call_log, "MAX_CALLS", 3)
    for number in range(5):
        call_log.note("torch.load", f"/m/{number}", shared=1_500_000_000)
    assert [one.path for one in call_log.calls()] == ["/m/0", "/m/1", "/m/2"]


def test_private_bytes_of_all_mappings_of_a_file_are_added(tmp_path):
    (tmp_path / "file").write_bytes(bytes(1 << 16))
    with (tmp_path / "file").open("rb") as file, contextlib.ExitStack() as stack:
        for written in (1, 2):
            mapping = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
            mapping[: 4096 * written] = b"x" * 4096 * written
        assert call_log.private_bytes("self", {str(tmp_path / "file"): "name"}) == {"name": 3 * 4096}


@pytest.fixture
def sampled():
    """Give a function that samples this process after lines were written: (*lines) -> `Sampler`."""
    file = os.memfd_create("calls")
    sampler = Sampler(file, os.getpid())

    def sample(*lines):
        os.write(
            file, b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
        )
        sampler.sample()
        return sampler

    yield sample
    os.close(file)


def test_what_processes_hold_privately_is_the_most_that_they_have_reported(sampled):
    path, ended = MODEL.path, 1 << 22
    for nbytes, most in ((5, 5), (3, 5), (8, 8), (1 << 70, 1 << 62)):
        sampler = sampled({"private": {path: nbytes}, "pid": ended}, asdict(call(ended)))
        assert sampler.private == {ended: {path: most}}
    assert sampler.report(living=False).shared[0].pids == (ended,)
    sampled(asdict(call(os.getpid())))
    assert set(sampler.private) == {ended, os.getpid()}
    assert sampler.report(living=True).shared[0].pids == (os.getpid(),)


def test_where_the_copies_of_files_are_is_what_processes_have_reported(sampled):
    def places(mapped, path="/m/model.pt"):
        report = sampled({"mapped": mapped, "path": path}).report(living=False)
        return report.stored, report.in_memory

    assert places("/m/model.pt") == ((), False)
    assert places("/cache/1.oc") == (("/cache/1.oc",), False)
    assert places("/memfd:onecopy:/m/model.pt") == (("/cache/1.oc",), True)


def test_large_files_that_a_process_has_read_and_did_not_load_are_reported(sampled, tmp_path):
    size = 17 << 20
    with contextlib.ExitStack() as stack:
        for name, mode in (("read", "rb"), ("written", "r+b"), ("unread", "rb"), ("gone", "rb"), ("loaded", "rb")):
            (tmp_path / name).touch()
            os.truncate(tmp_path / name, size)
            file = stack.enter_context((tmp_path / name).open(mode, buffering=0))
            file.read(name != "unread")
        (tmp_path / "gone").unlink()
        (tmp_path / "small").write_bytes(bytes(1 << 20))
        stack.enter_context((tmp_path / "small").open("rb")).read(1)
        sampler = sampled(asdict(call(1, path=str(tmp_path / "loaded"))))
    (found,) = sampler.report(living=False).read
    assert (found.path, found.bytes, found.pids) == (str(tmp_path / "read"), size, (os.getpid(),))


def test_a_line_without_an_end_is_read_once(monkeypatch, sampled):
    sizes, read = [], os.pread
    monkeypatch.setattr("os.pread", lambda *given: sizes.append(len(data := read(*given))) or data)
    assert sampled(b"x" * (2 << 20)).calls == []
    assert sampled(b"\n", asdict(MODEL)).calls == [MODEL]
    assert sizes[0] == 2 << 20 > sizes[1]


def test_a_file_counts_once_however_many_functions_and_calls():
    names = ("torch.load", "torch.nn.Module.load_state_dict")
    report = RunReport.of(
        [call(pid, function=name) for pid in range(8) for name in names], {pid: {} for pid in range(8)}
    )
    assert report.saved == 7 * 1_500_000_000
    assert str(report).splitlines() == [
        "8 processes hold 1.50 GB of 1 file in one copy: 12.0 GB -> 1.50 GB",
        f"   8 x 1.50 GB   model.pt: {', '.join(names)}",
    ]


def test_only_what_was_sampled_and_not_written_to_is_saved():
    calls = [call(pid) for pid in range(4)]
    report = RunReport.of(calls, {0: {}, 1: {"/m/model.pt": 1_500_000_000}, 2: {"/m/other.pt": 5}})
    assert report.saved == 1_500_000_000
    assert report.shared[0].private == 1_500_000_000
    assert str(report).splitlines()[1].endswith("torch.load; 1.50 GB of it is private, because it was written to")
    assert RunReport.of(calls).saved == 0
    assert "one copy" not in str(RunReport.of([call(1)], {1: {"/m/model.pt": 7}}))


def test_what_is_not_shared_or_read_by_the_processes_themselves_has_its_reason_or_advice():
    read = (Group("", "/d/vectors.faiss", "map it", 2_000_000_000, (1, 2)),)
    report = RunReport.of(
        [call(pid, shared=0, copied=2_000_000, reason="map_location='cuda'") for pid in (1, 2)], {}, read
    )
    assert str(report).splitlines() == [
        "not shared:",
        "   2 x 2.00 MB   model.pt: torch.load: map_location='cuda'",
        "read by the processes themselves:",
        "   2 x 2.00 GB   vectors.faiss: map it",
    ]


def test_what_takes_most_memory_comes_first():
    calls = [call(1, path=path, shared=nbytes) for path, nbytes in (("/a", 2), ("/b", 3), ("/c", 3))]
    for path, nbytes, pid in (("/d", 5, 1), ("/e", 3, 1), ("/e", 3, 2)):
        calls.append(call(pid, path=path, shared=0, copied=nbytes, reason="x"))
    report = RunReport.of(calls)
    assert [one.path for one in report.shared] == ["/b", "/c", "/a"]
    assert [one.path for one in report.copied] == ["/e", "/d"]


def test_a_report_is_never_long_or_empty_and_names_of_files_cannot_control_the_terminal():
    calls = [call(1, path="/m/\x1b[31mred.pt"), call(1, shared=0, reason="\x1b]0;x\x07")]
    assert "\x1b" not in str(RunReport.of(calls))
    lines = str(RunReport.of([call(pid, path=f"/m/{i}.pt") for i in range(12) for pid in (1, 2)])).splitlines()
    assert lines[-1] == "  and 2 more"
    assert len(lines) == 12
    assert str(RunReport.of([])).startswith("no Python process loaded a file")


DAMAGED = [
    b"",
    b"{",
    b"[1]",
    b'{"mapped": [1, 2]}',
    b"[" * 100_000,
    b'{"function": "%s"}' % (b"x" * 1_000_000),
    b"\xff\xfe",
]
WRONG = {"function": "1", "shared": '"1"', "copied": "true", "pid": "1e999", "path": "1" + "0" * 300}


def test_damaged_lines_are_left_out_and_negative_sizes_count_as_nothing():
    good = json.dumps(asdict(MODEL)).encode()
    damaged = [
        re.sub(rf'"{name}": ("[^"]*"|\d+)', f'"{name}": {wrong}', good.decode()).encode()
        for name, wrong in WRONG.items()
    ]
    for line in (*DAMAGED, *damaged):
        assert line != good
        assert parse_calls(b"\n".join((good, line, good))) == [MODEL, MODEL]
    (found,) = parse_calls(json.dumps(asdict(call(1, shared=-5))).encode())
    assert found.shared == 0


def test_what_stays_in_the_store_is_named():
    report = RunReport.of([call(1)])
    assert "store" not in str(report)
    kept = replace(report, stored=tuple(f"/c/{number}.oc" for number in range(12)))
    paths = [f"  /c/{number}.oc" for number in range(10)]
    assert str(kept).splitlines()[2:] == ["kept in the store after this run:", *paths, "  and 2 more"]


def test_a_file_of_one_process_is_shared_with_other_runs():
    said = "one process of this run holds the shared files; other runs of this user map the same copy"
    assert str(replace(RunReport.of([call(1)]), in_memory=True)).splitlines()[-1] == said
    assert said not in str(replace(RunReport.of([call(1), call(2)]), in_memory=True))
    assert said not in str(replace(RunReport.of([call(1)]), stored=("/cache/1.oc",), in_memory=True))
    assert said not in str(RunReport.of([call(1)]))  # mapped itself
