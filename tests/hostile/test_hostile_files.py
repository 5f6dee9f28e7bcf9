"""Hostile files are refused as their table says; what only looks hostile opens; both in little memory."""

import contextlib
import os
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
ALL_REFUSED = files.REFUSED | files.BLOCK_LISTS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hostile.safetensors"


@pytest.mark.parametrize("kind", ALL_REFUSED)
def test_what_is_no_safetensors_file_is_refused_and_reported(path, kind, capsys):
    path.write_bytes(ALL_REFUSED[kind].make())
    for mode in ("map", "copy"):
        with pytest.raises(oc.FormatError) as raised:
            oc.open(path, mode)
        assert (refusal(raised.value), raised.value.path) == (ALL_REFUSED[kind].refusal, str(path))
    assert cli.main(["ls", str(path)]) == 1
    assert capsys.readouterr() == ("", f"onecopy: {raised.value}\n")


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


@pytest.mark.parametrize("digits", ["ffffffff", "xxxxxxxx", "0", "\\u0030" * 8])
def test_arrays_with_a_wrong_checksum_of_the_header_open_as_foreign_with_a_warning(path, digits):
    path.write_bytes(files.ours(f'{{"version":1,"kind":"arrays","align":64,"crc32c":{{"header":"{digits}"}}}}'))
    with pytest.warns(UserWarning, match="checksum"):
        file = oc.open(path)
    assert (file.kind, list(file)) == ("foreign", ["a"])


def test_a_pickle_is_never_executed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("a pickle", "a pickle of protocol 0"):
        path.write_bytes(files.REFUSED[kind].make())
        with pytest.raises(oc.FormatError):
            oc.open(path)
    assert list(tmp_path.iterdir()) == [path]


def peak() -> int:
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
    makers = [hostile.make for hostile in ALL_REFUSED.values()] + list(files.ACCEPTED.values())
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
