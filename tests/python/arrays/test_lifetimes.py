"""Who keeps the memory, and how long: the kernel's own list of this process's mappings is the judge."""

import errno
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

import onecopy as oc
from onecopy.memory import proc

SIZE = 4 << 20
DATA = os.urandom(SIZE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    return path


def is_mapped(path: Path) -> bool:
    inode = path.stat().st_ino
    return any(region.inode == inode for region in proc.maps(os.getpid()))


def test_the_mapping_goes_with_its_owner_when_nobody_closes(path):
    mapping = oc.Mapping(path)
    view = mapping.view()
    del mapping
    assert bytes(view) == DATA
    assert is_mapped(path)
    del view
    assert not is_mapped(path)


def test_a_view_keeps_the_memory_after_close(path):
    with oc.Mapping(path) as mapping:
        view = mapping.view(100, 50)
        part = view[10:]
        array = np.frombuffer(part, np.uint8)[5:]
    assert mapping.closed
    del view, part
    assert is_mapped(path)
    assert array.tobytes() == DATA[115:150]
    del array
    assert not is_mapped(path)


@pytest.mark.unsanitized  # AddressSanitizer keeps freed memory for a while
def test_a_copy_gives_its_memory_back_with_the_last_view(path):
    path.write_bytes(DATA * 16)

    def anonymous() -> int:
        return proc.status(os.getpid()).rss_anon

    before = anonymous()
    with oc.Mapping(path, mode="copy") as mapping:
        view = mapping.view()
    assert anonymous() - before > 15 * SIZE
    assert bytes(view[-SIZE:]) == DATA
    del view
    assert anonymous() - before < SIZE


def test_views_are_counted(path):
    mapping = oc.Mapping(path)
    assert mapping.views == 0
    first = mapping.view()
    second = np.frombuffer(mapping.view(8, 80), np.float64)
    part = first[5:]  # of the same view
    assert mapping.views == 2
    mapping.close()
    assert mapping.views == 2
    del first
    assert mapping.views == 2
    part.release()
    del part
    assert mapping.views == 1
    del second
    assert mapping.views == 0


def test_the_kernel_shows_read_only_and_shared_or_private(path):
    def permissions(**options) -> set[str]:
        mapping = oc.Mapping(path, **options)
        inode = os.fstat(mapping.fileno()).st_ino
        return {region.perms for region in proc.maps(os.getpid()) if region.inode == inode}

    assert permissions() == {"r--s"}
    assert permissions(private=True) == {"rw-p"}
    assert permissions(mode="copy") == set()


# --- which file it is -------------------------------------------------------------------------------------------------


def test_the_identity_is_that_of_stat(path):
    facts = path.stat()
    assert oc.Mapping(path).identity == (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)


def replaced(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(DATA)
    other.replace(path)


def written(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(1, 1))  # a write within one tick of the clock would not show


CHANGES = {
    "replaced": replaced,
    "written": written,
    "truncated": lambda path: os.truncate(path, SIZE - 1),
    "made longer": lambda path: os.truncate(path, SIZE + 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(path, change):
    with oc.Mapping(path) as mapping:
        assert not mapping.changed()
        CHANGES[change](path)
        assert mapping.changed()


def test_a_write_to_a_page_that_is_dirty_already_is_seen(path):
    writer = np.memmap(path, mode="r+")
    writer[0] ^= 1  # later writes to this page leave no time, unless it was written back
    with oc.Mapping(path) as mapping:
        assert not mapping.changed()
        time.sleep(0.02)  # a tick of the clock
        writer[0] ^= 1
        assert mapping.changed()


@pytest.mark.parametrize("leave", [Path.unlink, lambda path: path.rename(path.with_suffix(".away"))])
def test_a_path_that_leads_nowhere_is_a_change(path, leave):
    with oc.Mapping(path) as mapping:
        leave(path)
        assert mapping.changed()
        assert bytes(mapping.view(0, 10)) == DATA[:10]


def test_reading_linking_and_new_rights_are_no_change(path):
    with oc.Mapping(path) as mapping:
        path.read_bytes()
        path.chmod(0o600)
        path.with_suffix(".link").hardlink_to(path)
        assert not mapping.changed()


# --- to another process and back --------------------------------------------------------------------------------------


class Weights(oc.Mapping):
    pass


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", [oc.Mapping, Weights])
@pytest.mark.parametrize("options", [{}, {"mode": "copy", "threads": 2}, {"private": True}])
def test_a_pickle_is_a_small_handle_that_opens_the_same_range(path, protocol, kind, options):
    mapping = kind(path, 5, 1000, **options)
    text = pickle.dumps(mapping, protocol)
    assert len(text) < 600 + len(str(path))
    again = pickle.loads(text)
    assert type(again) is kind
    assert bytes(again.view()) == DATA[5:1005]
    assert again.identity == mapping.identity
    assert again.view().readonly == mapping.view().readonly
    assert is_mapped(path) == (options.get("mode") != "copy")


def test_a_relative_path_is_found_from_another_folder(path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    mapping = oc.Mapping(path.name)
    assert mapping.path == path.name
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert bytes(pickle.loads(pickle.dumps(mapping)).view()) == DATA


@pytest.mark.parametrize("change", CHANGES)
def test_a_handle_of_another_file_is_refused(path, change):
    text = pickle.dumps(oc.Mapping(path, length=100))
    CHANGES[change](path)
    with pytest.raises(oc.errors.FileChanged) as raised:
        pickle.loads(text)
    assert (raised.value.errno, raised.value.filename) == (errno.ESTALE, str(path))
    assert isinstance(raised.value, OSError)


def test_a_handle_of_a_file_that_is_gone_is_a_missing_file(path):
    text = pickle.dumps(oc.Mapping(path))
    path.unlink()
    with pytest.raises(FileNotFoundError) as raised:
        pickle.loads(text)
    assert raised.value.filename == str(path)


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_the_repr_reports_path_size_and_mode_and_after_close_that_it_is_closed(path, mode):
    mapping = oc.Mapping(path, mode=mode)
    assert repr(mapping) == f"<onecopy.Mapping {str(path)!r} {SIZE} bytes, {mode}>"
    mapping.close()
    assert repr(mapping) == f"<onecopy.Mapping {str(path)!r} closed>"


def test_a_closed_mapping_reports_it(path):
    mapping = oc.Mapping(path)
    mapping.close()
    for use in (
        mapping.view,
        mapping.changed,
        mapping.fileno,
        lambda: len(mapping),
        lambda: mapping.address,
        lambda: mapping.identity,
        lambda: oc.warm(mapping),
        lambda: oc.evict(mapping),
        lambda: oc.files.pin(mapping),
        lambda: oc.files.unpin(mapping),
        lambda: oc.residency(mapping),
        lambda: pickle.dumps(mapping),
    ):
        with pytest.raises(ValueError, match="closed"):
            use()
