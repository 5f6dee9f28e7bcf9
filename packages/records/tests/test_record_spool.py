"""Building rows while the disk is full: the error names the folder or the file, and nothing is left."""

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
from tests.support.children import in_a_child
from tests.support.seccomp import refuse
from tests.support.writing import MIB, names_in

from onecopy import _core

ROWS = [os.urandom(1000) for _ in range(3000)]  # three pieces of the spool


def build(folder: Path) -> _core.RecordBuilder:
    builder = _core.RecordBuilder(str(folder), "list", {})
    builder.extend(ROWS, lambda _: None)
    return builder


@pytest.mark.parametrize(("call", "error"), [("pwrite64", errno.ENOSPC), ("pwrite64", errno.EIO)])
@pytest.mark.parametrize("unnamed", [True, False])
@in_a_child
def test_a_full_disk_under_the_spool_is_reported_with_its_folder(tmp_path, call, error, unnamed):
    refuse(*([] if unnamed else ["O_TMPFILE"]))
    refuse(call, error=error)
    with pytest.raises(OSError, match="write to a spool file in") as raised:
        build(tmp_path)
    assert (raised.value.errno, raised.value.filename) == (error, str(tmp_path))
    assert names_in(tmp_path) == []


def test_a_spool_folder_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="create a spool file in") as raised:
        build(tmp_path / "missing")
    assert raised.value.filename == str(tmp_path / "missing")


@in_a_child
def test_what_was_refused_by_the_disk_is_not_saved(tmp_path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
    builder = _core.RecordBuilder(str(tmp_path), "list", {})
    with pytest.raises(OSError, match="File too large"):
        builder.extend(ROWS, lambda _: None)
    with pytest.raises(ValueError, match="create a new builder"):
        builder.save(tmp_path / "rows")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("call", ["fallocate", "pwrite64", "fsync"])
@in_a_child
def test_a_full_disk_under_the_file_is_reported_with_its_path_and_leaves_the_old_file(tmp_path, call):
    spool, target = tmp_path / "spool", tmp_path / "target"
    spool.mkdir()
    target.mkdir()
    (target / "rows").write_bytes(b"old")
    builder = build(spool)
    with pytest.raises(FileNotFoundError):
        builder.save(tmp_path / "missing" / "rows")
    refuse(call, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as raised:
        builder.save(target / "rows")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(target / "rows"))
    assert (target / "rows").read_bytes() == b"old"
    assert (names_in(target), names_in(spool)) == (["rows"], [])


def test_rows_that_one_folder_refused_can_be_saved_in_another(tmp_path):
    builder = build(tmp_path)
    with pytest.raises(FileNotFoundError):
        builder.save(tmp_path / "missing" / "rows")
    builder.save(tmp_path / "rows")
    assert (tmp_path / "rows").stat().st_size > len(ROWS) * 1000
