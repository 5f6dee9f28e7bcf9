"""Building rows while the disk is full: the error names the folder or the file, and nothing is left."""

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
from tests.support.seccomp import refuse
from tests.support.writing import MIB, names_in

from onecopy import _core

pytestmark = pytest.mark.processes

ROWS = [os.urandom(1000) for _ in range(3000)]  # three pieces of the spool


def build(folder: Path) -> _core.RecordBuilder:
    builder = _core.RecordBuilder(str(folder), "list", {})
    builder.extend(ROWS, lambda _: None)
    return builder


@pytest.mark.parametrize(("call", "error"), [("pwrite64", errno.ENOSPC), ("pwrite64", errno.EIO)])
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_full_disk_under_the_spool_is_reported_with_its_folder(tmp_path, in_child, call, error, unnamed):
    def without() -> None:
        refuse(*([] if unnamed else ["O_TMPFILE"]))
        refuse(call, error=error)
        build(tmp_path)

    with pytest.raises(OSError, match="write to a spool file in") as raised:
        in_child(without)
    assert (raised.value.errno, raised.value.filename) == (error, str(tmp_path))
    assert names_in(tmp_path) == []


def test_a_spool_folder_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="create a spool file in") as raised:
        build(tmp_path / "missing")
    assert raised.value.filename == str(tmp_path / "missing")


def test_what_was_refused_by_the_disk_is_not_saved(tmp_path, in_child):
    def cut_short() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
        builder = _core.RecordBuilder(str(tmp_path), "list", {})
        with pytest.raises(OSError, match="File too large"):
            builder.extend(ROWS, lambda _: None)
        builder.save(tmp_path / "rows")

    with pytest.raises(ValueError, match="start a new builder"):
        in_child(cut_short)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("call", ["fallocate", "pwrite64", "fsync"])
def test_a_full_disk_under_the_file_is_reported_and_it_can_be_saved_elsewhere(tmp_path, in_child, call):
    spool, target, other = (tmp_path / name for name in ("spool", "target", "other"))
    for folder in (spool, target, other):
        folder.mkdir()
    (target / "rows").write_bytes(b"old")

    def fill() -> tuple[int, str]:
        builder = build(spool)
        refuse(call, error=errno.ENOSPC)
        with pytest.raises(OSError, match="No space left") as raised:
            builder.save(target / "rows")
        return raised.value.errno, raised.value.filename

    assert in_child(fill) == (errno.ENOSPC, str(target / "rows"))
    assert (target / "rows").read_bytes() == b"old"
    assert names_in(target) == ["rows"]
    assert names_in(spool) == []
    builder = build(spool)
    with pytest.raises(FileNotFoundError):
        builder.save(tmp_path / "missing" / "rows")
    builder.save(other / "rows")
    assert (other / "rows").stat().st_size > len(ROWS) * 1000
