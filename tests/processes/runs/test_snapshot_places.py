"""What identifies a file, and which file may be mapped itself, where programs run: images, volumes, tmpfs."""

import fcntl
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from tests.support.children import call_in_child, fork, is_alive, status_of
from tests.support.mounts import Mounted, mounted, overlay_of
from tests.support.watched import Watched
from tests.support.writing import MIB

import onecopy as oc
from onecopy import _core
from onecopy.files.identity import contents_of
from onecopy.run.holder import Holder
from onecopy.store.snapshots import NoSnapshot, take


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.bin"
    path.write_bytes(b"x" * MIB)
    return path


def contents(path: Path) -> bytes:
    with take(str(path)) as taken:
        return os.pread(taken.descriptor, taken.nbytes, 0)


WRITE = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p
    fd = os.open(sys.argv[1], os.O_RDWR)
    page = (ctypes.c_char * 4096).from_address(libc.mmap(None, ctypes.c_size_t(4096), 3, 1, fd, ctypes.c_long(0)))
    os.close(fd)
    count = 0
"""
"""Lines for `Watched` that map a file and close it."""


@pytest.mark.parametrize("place", ["tmp_path", "overlay", "memory_disk"])
def test_a_write_through_a_mapping_is_seen(place: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(place)
    path = (found.path if isinstance(found, Mounted) else found) / "x.bin"
    path.write_bytes(b"0" * MIB)
    with Watched(WRITE, path, after="count += 1; page[0] = b'0abcdef'[count]") as writer:
        keys, before = set(), contents_of(path)
        for byte in "abcdef":
            writer.go_on()  # to a page that is dirty already, unless it was written back
            assert not before.are_in(path)
            before = contents_of(path)
            assert before.are_in(path)
            keys.add(oc.file_key(path))
            if place == "overlay":  # where nothing reports that the file may be written to
                assert contents(path)[:1] == byte.encode()
        assert len(keys) == 6


def test_looking_for_writers_disturbs_nobody(path: Path) -> None:
    with path.open("rb") as reader:
        fcntl.fcntl(reader, fcntl.F_SETLEASE, fcntl.F_RDLCK)  # a lease of a file server
        oc.file_key(path)
        assert fcntl.fcntl(reader, fcntl.F_GETLEASE) == fcntl.F_RDLCK
    writer = fork(lambda: [os.close(os.open(path, os.O_WRONLY)) for _ in range(20_000)])
    while is_alive(writer):
        oc.file_key(path)
    assert status_of(writer) == 0


def test_a_file_of_another_user_has_a_snapshot_when_it_is_a_minute_old(tmp_path: Path, nobody: int) -> None:
    old, new = Path("/etc/passwd"), Path("new")
    new.write_bytes(bytes(4096))
    new.chmod(0o644)
    os.utime(new, (0, 0))  # as a copy of an old file: only the time of the last change is new

    def place_of(path: Path) -> str:
        os.environ["ONECOPY_CACHE"] = str(folder)
        return take(str(path)).place

    if time.time() - old.stat().st_ctime < 60:
        pytest.skip("/etc/passwd was changed just now")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, nobody, -1)
        assert call_in_child(place_of, old, uid=nobody) == "store"
        with pytest.raises(NoSnapshot, match="only its owner can see"):
            call_in_child(place_of, new, uid=nobody)


def test_no_mount_of_a_writable_folder_protects_its_files(read_only_bind: Mounted, tmp_path: Path) -> None:
    """A read-only mount, and an overlay without a writable layer."""
    source = read_only_bind.source / "x.bin"
    source.write_bytes(b"a" * MIB)
    for one in overlay_of(read_only_bind.source, tmp_path / "overlay", writable=False):
        with take(str(one.path / "x.bin")) as taken:
            assert taken.place == "store"
    with take(str(read_only_bind.path / "x.bin")) as taken:
        assert taken.place == "store"
        with source.open("r+b") as file:
            file.write(b"b")
        os.truncate(source, 1)
        assert os.pread(taken.descriptor, taken.nbytes, 0) == b"a" * MIB


def test_a_file_system_that_is_read_only_itself_is_mapped(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(8 * MIB)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x.bin").write_bytes(b"a" * 4096)
    subprocess.run(["mkfs.ext4", "-q", "-d", tmp_path / "files", image], check=True, capture_output=True)
    for one in mounted(tmp_path / "files", tmp_path / os.fsdecode(b"disk\xff"), "-o", "loop,ro", str(image)):
        with take(str(one.path / "x.bin")) as taken:
            assert taken.place == "file"


def test_residency_warming_and_holding_tell_the_truth_in_an_image(overlay: Mounted) -> None:
    lower = overlay.source / "lower.bin"
    lower.write_bytes(os.urandom(8 * MIB))
    upper = overlay.path / "upper.bin"
    upper.write_bytes(os.urandom(8 * MIB))
    for path in (overlay.path / "lower.bin", upper):
        if (cached := oc.evict(path).cached_after) is None:
            pytest.skip("nothing reports here what is cached")
        assert cached == 0
        assert oc.residency(path).cached == 0
        path.read_bytes()
        assert oc.residency(path).cached == 8 * MIB
        assert oc.warm(path).filled == 0
        oc.evict(path)
        first, second = oc.warm(path), oc.warm(path)
        assert (first.filled, first.complete, second.filled, second.complete) == (8 * MIB, True, 0, True)
        with Holder([path], pin=0) as hold:
            assert hold.refresh()[0].resident == 8 * MIB
            assert hold.refresh() == []


def test_a_snapshot_is_as_large_as_the_file_was(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def identify(descriptor: int, expected: object) -> tuple[object, str]:
        os.truncate(path, 1 << 40)  # a download reserves its final size, right after the checks
        return expected, ""

    monkeypatch.setattr("onecopy.store.snapshots.identify_open", identify)
    with pytest.raises(NoSnapshot, match="the file changed while the snapshot was taken"):
        take(str(path))
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.stat().st_size > MIB]


@pytest.mark.usefixtures("keeper")
def test_a_file_that_is_written_while_it_is_copied_has_no_snapshot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = _core.take_snapshot

    def copy_and_write(*arguments: object, **options: object) -> _core.Mapping:
        made = copy(*arguments, **options)
        with path.open("r+b") as file:
            file.write(b"new")
        return made

    with monkeypatch.context() as patched:
        patched.setattr(_core, "take_snapshot", copy_and_write)
        with pytest.raises(NoSnapshot, match="the file changed while the snapshot was taken"):
            take(str(path))
    assert contents(path)[:3] == b"new"


def test_a_file_with_a_time_in_the_future_has_no_snapshot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.stat().st_ctime_ns - 1_000_000_000
    monkeypatch.setattr("onecopy.files.identity._now_of_files", lambda: before)
    with pytest.raises(NoSnapshot, match="its time of change is in the future"):
        take(str(path))
    assert "sha256" in oc.file_key(path)


@pytest.mark.usefixtures("keeper")
@pytest.mark.parametrize(("available", "place"), [(2 * MIB, "memory"), (2 * MIB - 1, "store")])
@pytest.mark.parametrize("store", ["tmp_path", "memory_disk"])  # which is another file system
def test_a_copy_takes_at_most_half_of_the_memory_and_follows_as_many_zeros_as_requested(
    path, monkeypatch, request, store, available, place
):
    folder = request.getfixturevalue(store)
    monkeypatch.setenv("ONECOPY_CACHE", f"{getattr(folder, 'path', folder)}/cache")
    monkeypatch.setattr(_core, "available_memory", lambda: (available, "the machine"))
    for lead in (0, 100):
        with take(str(path), lead) as taken:
            assert (taken.place, os.pread(taken.descriptor, 2 * MIB, 0)) == (place, bytes(lead) + b"x" * MIB)
