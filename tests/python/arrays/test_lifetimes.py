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


@pytest.mark.parametrize("closes", [True, False])
def test_views_are_counted_and_keep_the_memory_also_when_nobody_closes(path, closes):
    mapping = oc.Mapping(path)
    view = mapping.view(100, 50)
    part = view[10:]  # of the same view
    array = np.frombuffer(mapping.view(8, 80), np.float64)
    assert mapping.views == 2
    if closes:
        mapping.close()
    assert mapping.closed == closes
    del view
    assert mapping.views == 2
    assert bytes(part) == DATA[110:150]
    part.release()
    assert mapping.views == 1
    del mapping
    assert array.tobytes() == DATA[8:88]
    assert is_mapped(path)
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
    assert bytes(view[-100:]) == DATA[-100:]  # a copy of much would stay in the heap
    del view
    assert anonymous() - before < SIZE


def test_the_kernel_shows_read_only_and_shared_or_private(path):
    def permissions(**options) -> set[str]:
        mapping = oc.Mapping(path, **options)
        inode = os.fstat(mapping.fileno()).st_ino
        return {region.perms for region in proc.maps(os.getpid()) if region.inode == inode}

    assert permissions() == {"r--s"}
    assert permissions(private=True) == {"rw-p"}
    assert permissions(mode="copy") == set()


# --- which file it is -------------------------------------------------------------------------------------------------


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
    "renamed": lambda path: path.rename(path.with_suffix(".away")),
    "removed": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_and_a_handle_of_another_file_is_refused(path, change):
    with oc.Mapping(path) as mapping:
        text = pickle.dumps(mapping)
        assert not mapping.changed()
        CHANGES[change](path)
        assert mapping.changed()
        assert bytes(mapping.view(7, 10)) == DATA[7:17]
    with pytest.raises(oc.errors.FileChanged if path.exists() else FileNotFoundError) as raised:
        pickle.loads(text)
    assert raised.value.errno == (errno.ESTALE if path.exists() else errno.ENOENT)
    assert raised.value.filename == str(path)


def test_a_write_to_a_page_that_is_dirty_already_is_seen(path):
    writer = np.memmap(path, mode="r+")
    writer[0] ^= 1  # later writes to this page leave no time, unless it was written back
    with oc.Mapping(path) as mapping:
        assert not mapping.changed()
        time.sleep(0.02)  # a tick of the clock
        writer[0] ^= 1
        assert mapping.changed()


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
    facts = path.stat()
    assert again.identity == mapping.identity == (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    assert again.view().readonly == mapping.view().readonly
    assert is_mapped(path) == (options.get("mode") != "copy")


def test_a_relative_path_is_found_from_another_folder(path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    mapping = oc.Mapping(path.name)
    assert mapping.path == path.name
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert bytes(pickle.loads(pickle.dumps(mapping)).view()) == DATA


# --- words ------------------------------------------------------------------------------------------------------------


CALLS = [len, oc.warm, oc.evict, oc.residency, oc.files.pin, oc.files.unpin, pickle.dumps]


def test_a_closed_mapping_reports_it(path):
    mapping = oc.Mapping(path.rename(path.with_name("spoiled\udcff")), mode="copy")
    assert repr(mapping) == f"<onecopy.Mapping {mapping.path!r} {SIZE} bytes, copy>"
    mapping.close()
    assert repr(mapping) == f"<onecopy.Mapping {mapping.path!r} closed>"
    properties = [lambda name=name: getattr(mapping, name) for name in ("address", "identity", "nbytes")]
    calls = [lambda call=call: call(mapping) for call in CALLS]
    for use in (mapping.view, mapping.changed, mapping.fileno, *properties, *calls):
        with pytest.raises(ValueError, match="the file is closed: ") as raised:
            use()
        assert str(raised.value).endswith(mapping.path)
