"""Twins hold the same tensors, live as long as their run, and are missed with a reason."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from onecopy_bench.engine.ways import missing
from onecopy_bench.files import sampling
from onecopy_bench.files.loaders import Loader, Opened, Twin
from onecopy_bench.files.rivals import ROWS

READING_TWINS = [entry for entry in ROWS if entry.twin is not None]


def row(name: str, suffix: str) -> Loader:
    return Loader(name, "", open=lambda _: Opened(None), needs=(), twin=Twin(suffix, lambda *_: None))


@pytest.fixture
def copying(monkeypatch):
    """Write twins as copies of the file with a few bytes more, and count them."""
    made = []

    def write(configuration, job, target):
        made.append(target.name)
        target.write_bytes(Path(job.path).read_bytes() + b"more")
        return replace(job, path=str(target), size=job.size + 4)

    monkeypatch.setattr(sampling, "_write", write)
    return made


def test_rows_of_one_container_share_a_file_beside_the_original(job, copying):
    rows = [row("a", ".x"), row("b", ".x"), row("c", ".y")]
    with sampling.twins([*rows, ROWS[0]], job) as (jobs, absent):
        assert sorted(jobs) == ["a", "b", "c"]
        assert jobs["a"] == jobs["b"] != jobs["c"]
        assert Path(jobs["a"].path).parent.parent == Path(job.path).parent
        assert (jobs["a"].size, jobs["a"].pieces) == (job.size + 4, job.pieces)
    assert copying == ["twin.x", "twin.y"]
    assert absent == ()
    assert not list(Path(job.path).parent.glob(sampling.PREFIX + "*"))


@pytest.mark.processes
def test_a_writer_that_fails_is_a_missing_row_with_its_last_line(job):
    rows = [replace(ROWS[0], name="odd", twin=Twin(".x", os.mkdir))]
    with sampling.twins(rows, job) as (jobs, (absent,)):
        assert jobs == {}
        assert absent.name == "odd"
        assert "its file could not be written: exit status 1" in absent.reason
        assert "TypeError: " in absent.reason


def test_a_folder_that_cannot_be_written_to_is_a_missing_row(job, tmp_path):
    with sampling.twins([row("a", ".x")], replace(job, path=str(tmp_path / "none/file"))) as (jobs, (absent,)):
        assert jobs == {}
        assert absent.reason == "its file could not be written: No such file or directory"


@pytest.mark.processes
@pytest.mark.parametrize("entry", READING_TWINS, ids=lambda entry: entry.name)
def test_every_rival_writes_a_twin_that_holds_the_tensors(entry, job):
    if lacks := missing(entry.needs):
        pytest.skip(f"not installed: {', '.join(lacks)}")
    with sampling.twins([entry], job) as (jobs, absent):
        assert absent == ()
        assert jobs[entry.name].size == Path(jobs[entry.name].path).stat().st_size >= job.size - 8192
