"""Hostile files are refused as their table says; what only looks hostile opens; both in little memory."""

import contextlib
import os
import re
import resource
import warnings
from pathlib import Path

import pytest
from tests.support import hostile_files as files
from tests.support.refusals import refusal

import onecopy as oc
from onecopy import cli

pytestmark = pytest.mark.timeout(100)  # no hang; the machine may be busy
MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hostile.safetensors"


def check_refused(path: Path, hostile: files.Hostile, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(hostile.make())
    for mode in ("map", "copy"):
        with pytest.raises(oc.FormatError) as raised:
            oc.open(path, mode)
        assert (refusal(raised.value), raised.value.path) == (hostile.refusal, str(path))
    assert cli.main(["ls", str(path)]) == 1
    assert capsys.readouterr() == ("", f"onecopy: {raised.value}\n")


@pytest.mark.parametrize("kind", files.REFUSED)
def test_what_is_no_safetensors_file_is_refused_and_reported(path, kind, capsys):
    check_refused(path, files.REFUSED[kind], capsys)


@pytest.mark.parametrize("kind", files.BLOCK_LISTS)
def test_a_list_of_checksums_that_is_none_is_refused_and_reported(path, kind, capsys):
    check_refused(path, files.BLOCK_LISTS[kind], capsys)


@pytest.mark.parametrize("kind", files.ACCEPTED)
@pytest.mark.slow
def test_what_only_seems_hostile_opens_and_is_listed(path, kind, capsys):
    path.write_bytes(files.ACCEPTED[kind]())
    with oc.open(path) as file:
        names = list(file)
        assert [entry.name for entry in file.entries] == names
        for name in names[:100]:
            if len(file.entry(name).shape) <= 64 and max(file.entry(name).shape) < 2**63:  # numpy has no larger ones
                assert file[name].nbytes == file.entry(name).nbytes
        assert sum(entry.nbytes for entry in file.entries) == file.nbytes
        assert all(file.entry(name).name == name for name in names)
    assert cli.main(["ls", str(path)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert all(character.isprintable() or character == "\n" for character in told.out)


def test_an_empty_file_is_reported(path, capsys):
    path.touch()
    with pytest.raises(OSError, match=re.escape(f"[Errno 61] map: the file is empty: '{path}'")):
        oc.open(path)
    assert cli.main(["ls", str(path)]) == 1
    assert capsys.readouterr().err == f"onecopy: {path}: map: the file is empty\n"


@pytest.mark.parametrize("digits", ["ffffffff", "xxxxxxxx", "0", "\\u0030" * 8])
def test_arrays_with_a_wrong_checksum_of_the_header_open_as_foreign_with_a_warning(path, digits):
    path.write_bytes(files.ours(f'{{"version":1,"kind":"arrays","align":64,"crc32c":{{"header":"{digits}"}}}}'))
    with pytest.warns(UserWarning, match="checksum"):
        file = oc.open(path)
    assert (file.kind, list(file)) == ("foreign", ["a"])


def test_a_right_checksum_of_the_header_opens_without_a_warning(path):
    path.write_bytes(files.ours(files.checksums(2**21, files.ONE_BLOCK)))
    assert oc.open(path).kind == "arrays"


def test_a_pickle_is_never_executed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("a pickle", "a pickle of protocol 0"):
        path.write_bytes(files.REFUSED[kind].make())
        with pytest.raises(oc.FormatError):
            oc.open(path)
    assert list(tmp_path.iterdir()) == [path]


def peak() -> int:
    """Return the largest memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def open_all(folder: Path) -> dict[str, tuple[int, int]]:
    """Open each file under a limit of addresses; return, by name, its bytes and what the peak of memory grew by."""
    grown = {}
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 256 * MIB, used + 256 * MIB))
    warnings.simplefilter("ignore")
    paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_size)
    for path in paths[:1] + paths:  # what the first error loads is no matter of the file
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = peak()
        with contextlib.suppress(oc.FormatError):
            oc.open(path).close()
        grown[path.name] = (path.stat().st_size, peak() - before)
    return grown


@pytest.mark.unsanitized  # whose memory beside each block counts too
def test_no_lie_in_a_header_costs_memory(tmp_path, in_child):
    makers = [hostile.make for hostile in (files.REFUSED | files.BLOCK_LISTS).values()] + list(files.ACCEPTED.values())
    for number, make in enumerate(makers):
        (tmp_path / str(number)).write_bytes(make())
    grown = in_child(open_all, tmp_path)
    assert len(grown) == len(makers)
    # A header is read once and its arrays are listed: a small multiple of what really stands in the file.
    assert [(name, size, more) for name, (size, more) in grown.items() if more > 2 * MIB + 4 * size] == []


def test_a_sparse_file_of_a_terabyte_opens_and_is_listed_as_fast_as_a_small_one(path, in_child, capsys):
    size = 1 << 40
    path.write_bytes(files.file_of("{" + files.entry(shape=[size], data_offsets=[0, size]) + "}"))
    os.truncate(path, path.stat().st_size + size)

    def open_it() -> tuple[int, int]:
        before = peak()
        with oc.open(path) as file:
            return file["a"].nbytes, peak() - before

    nbytes, grown = in_child(open_it)
    assert nbytes == size
    assert grown < 32 * MIB
    assert cli.main(["ls", str(path)]) == 0
    assert "1.10 TB" in capsys.readouterr().out


def test_a_sparse_file_of_a_terabyte_with_holes_for_a_header_is_refused(path):
    path.write_bytes((100_000_000).to_bytes(8, "little"))
    os.truncate(path, 1 << 40)
    with pytest.raises(oc.FormatError) as raised:
        oc.open(path)
    assert str(raised.value) == f"{path}: the header does not begin with '{{'"
