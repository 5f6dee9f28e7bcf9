"""Recordings: what was written is read, a cut one too, and no file does more than be refused."""

import contextlib
import json

import pytest
from hypothesis import given, strategies as st
from packages.monitor.tests.samples import NUMBERS, ROWS

import onecopy as oc
from onecopy_monitor import COLUMNS, End, FileSample, ProcessSample, Recorder, Sample, Series, read_recording

texts = st.text(max_size=8)
processes = st.builds(
    ProcessSample,
    pid=st.integers(1, 5),
    started=st.sampled_from([1.5, 2.5]),
    parent=st.integers(0, 3),
    name=texts,
    row=ROWS,
    peak_rss=st.none() | NUMBERS,
    minor_faults=NUMBERS,
    major_faults=NUMBERS,
    cpu_s=st.integers(0, 99).map(float),
)
files = st.builds(
    FileSample,
    key=st.tuples(st.integers(0, 3), st.integers(1, 3)),
    path=texts,
    kind=st.sampled_from(["file", "shmem"]),
    size=st.none() | NUMBERS,
    dirty=st.none() | NUMBERS,
    once=NUMBERS,
    saves=NUMBERS,
    sharers=NUMBERS,
)
looks = st.lists(
    st.tuples(
        ROWS,
        st.lists(processes, max_size=3, unique_by=lambda one: one.pid),
        st.lists(files, max_size=3, unique_by=lambda one: one.key),
    ),
    min_size=1,
    max_size=8,
)


def facts(series: Series) -> object:
    """All that a series knows, as plain values."""
    curve = {name: series.total.numbers(name) for name in ("times", *COLUMNS)}
    everyone = [
        (one.pid, one.started, one.parent, one.name, one.peak_rss, one.minor_faults, one.first, one.last, one.highest)
        for one in series.processes
    ]
    return curve, everyone, series.peak, series.samples, [(one.once, one.dirty, one.size) for one in series.files]


@given(looks, st.lists(texts, max_size=3))
def test_a_recording_reads_back_as_what_was_seen(tmp_path, found, command):
    seen = Series()
    path = tmp_path / "run.jsonl"
    end = End(3.5, exit=-9, max_rss=7, major_faults=1, user_s=0.5, looks=len(found))
    kinds: dict[object, str] = {}
    with Recorder(path, command, force=True) as recorder:
        for at, (total, some, mapped) in enumerate(found):
            same_kind = tuple(one._replace(kind=kinds.setdefault(one.key, one.kind)) for one in mapped)
            look = Sample(at / 8, total, tuple(some), same_kind)
            seen.add(look)
            recorder.add(look)
        recorder.end(end)
    recording = read_recording(path)
    assert facts(recording.series) == facts(seen)
    assert (recording.command, recording.end, recording.cut) == (tuple(command), end, False)


def lines_of(path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


@pytest.fixture
def written(tmp_path):
    """Give a recording of two looks."""
    path = tmp_path / "run.jsonl"
    row = tuple(range(10, 10 + len(COLUMNS)))
    process = ProcessSample(7, 1.5, 1, "na\x1bme</script>", row, 99, 1, 2, 0.5)
    file = FileSample((1, 2), "/big\udc80", "file", 50, 5, 40, 0, 1)
    with Recorder(path, ["python", "x.py"], options={"interval": 0.1}) as recorder:
        recorder.add(Sample(0.0, row, (process,), (file,)))
        recorder.add(Sample(1.0, row, (process,), (file,)))
        recorder.end(End(1.0, exit=0))
    return path


def test_a_recording_cut_anywhere_is_reported_or_refused_and_keeps_whole_samples(written):
    series, whole = read_recording(written).series, written.read_bytes()
    assert (series.processes[0].name, series.files[0].path) == ("na\x1bme</script>", "/big\udc80")
    header = whole.index(b"\n") + 1
    for length in range(len(whole)):
        written.write_bytes(whole[:length])
        if length < header - 1:
            with pytest.raises(oc.FormatError, match=r"run\.jsonl: (line 1: the line is not JSON|the file is empty)"):
                read_recording(written)
            continue
        recording = read_recording(written)
        assert len(recording.series.total) == whole[:length].count(b'"at":') - (
            recording.cut and b'"at":' in last(whole[:length])
        )
        assert recording.end is None or length >= len(whole) - 1


def last(text: bytes) -> bytes:
    return text.rpartition(b"\n")[2]


@pytest.mark.parametrize(
    ("number", "line", "message"),
    [
        (0, "[]", "line 1: expected an object, found a list"),
        (0, '{"hello": 1}', "line 1: not a onecopy recording: 'format' is None"),
        (0, '{"format": "onecopy memory", "version": 2}', "version 2 is newer than 1"),
        (0, '{"format": "onecopy memory", "version": true}', "'version' must be a whole number"),
        (0, '{"format": "onecopy memory", "version": 1, "columns": ["rss"]}', "'columns' is"),
        (1, '{"process": 0, "pid": -1, "parent": 1, "name": "x", "started": 1}', "'pid' must be a whole number"),
        (1, '{"process": 0, "pid": 1, "parent": 1, "name": 5, "started": 1}', "'name' must be a string"),
        (2, '{"file": 0, "path": "x", "kind": "odd", "size": 1}', "'kind' must be 'file' or 'shmem', not 'odd'"),
        (3, '{"at": NaN}', "NaN is not a number"),
        (3, '{"at": 1e999}', "'at' must be a number of seconds, not inf"),
        (3, '{"at": -1}', "'at' must be a number of seconds, not -1"),
        (3, '{"at": 2, "total": [1], "processes": []}', "expected a list of 8 numbers"),
        (3, '{"at": 2, "total": [1,2,3,4,5,6,7,8.5], "processes": []}', "sum_of_rss must be a whole number"),
        (3, f'{{"at": 2, "total": [{2**63},2,3,4,5,6,7,8], "processes": []}}', "a number of 64 bits"),
        (3, '{"at": 2, "total": [' + "9" * 5000 + "]}", "the line is not JSON"),
        (3, '{"at": 2, "total": [1,2,3,4,5,6,7,8], "processes": [[9]]}', "a process in a sample must be a list of 6"),
        (3, '{"at": 2, "total": [1,2,3,4,5,6,7,8], "processes": [[[], 1, 1, 1, 1, 1]]}', "there is no process []"),
        (3, '{"at": 2, "total": [1,2,3,4,5,6,7,8], "processes": [], "files": [[5,1,1,1,1]]}', "there is no file 5"),
        (4, '{"at": 0.0', "line 5: the line is not JSON"),
        (5, '{"end": 1, "exit": "0"}', "exit must be a whole number"),
        (5, "[" * 100_000, "line 6: the line is not JSON"),
        (5, '{"end":' + '{"a":' * 100_000, "line 6: the line is not JSON"),
    ],
)  # fmt: skip
def test_a_line_that_makes_no_sense_is_named(written, number, line, message):
    lines = lines_of(written)
    lines[number] = line + "\n"
    written.write_text("".join(lines))
    with pytest.raises(oc.FormatError) as raised:
        read_recording(written)
    assert message in str(raised.value)
    assert str(written) in str(raised.value)


def test_time_does_not_go_back_and_a_process_is_there_once(written):
    lines = lines_of(written)
    look = json.loads(lines[4])
    twice = {"processes": look["processes"] * 2}
    for kept, change, message in (
        (4, twice, "duplicate process"),
        (5, {"at": 0.5}, r"0\.5, which is before the previous sample at 1\.0"),
    ):
        written.write_text("".join([*lines[:kept], json.dumps({**look, **change}) + "\n"]))
        with pytest.raises(oc.FormatError, match=message):
            read_recording(written)


@pytest.mark.parametrize("line", ['{"mark": "epoch 1"}', '{"at": -0.0, "total": [1,2,3,4,5,6,7,8], "processes": []}'])
def test_lines_of_later_kinds_are_passed_over_and_zero_may_be_negative(written, line):
    lines = lines_of(written)
    written.write_text("".join([*lines[:2], f"{line}\n", *lines[2:]]))
    assert len(read_recording(written).series.total) == 2 + ("at" in line)


@given(st.data(), st.binary(max_size=300))
def test_a_flipped_recording_is_read_or_refused_and_any_bytes_are_refused(written, data, content):
    whole, copy = bytearray(written.read_bytes()), written.with_name("flipped.jsonl")
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    copy.write_bytes(whole)
    with contextlib.suppress(oc.FormatError):
        assert read_recording(copy).series.samples <= 2
    copy.write_bytes(content)
    with pytest.raises(oc.FormatError):
        read_recording(copy)


def test_a_file_that_is_there_is_not_written_over_and_nothing_is_left_of_a_recorder_that_does_not_begin(written):
    before, new = written.read_bytes(), written.with_name("new")
    Recorder(new).discard()
    assert not new.exists()
    with pytest.raises(FileExistsError, match=r"run\.jsonl"):
        Recorder(written)
    assert written.read_bytes() == before
    Recorder(written, force=True).discard()
    assert written.read_bytes() == before  # nothing was recorded
    with Recorder(new) as recorder:
        recorder.end(End(0.5, exit=3))
    assert read_recording(new).end.exit == 3  # although there is no sample
    for path in (written, new):
        with Recorder(path, force=True) as recorder:
            recorder.begin()
            assert path.stat().st_size < len(before)
            recorder.discard()  # too late
        assert path.exists()
