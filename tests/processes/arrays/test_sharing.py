"""Handles sent to other processes, and the memory of all of them together, as the kernel counts it."""

import fcntl
import multiprocessing
import os
import pickle
import signal
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import forked
from tests.support.watched import Watched

import onecopy as oc
from onecopy.memory import proc

MIB = 1 << 20
START_METHODS = ["fork", "spawn", "forkserver"]


def checksum(file: oc.Mapping | oc.ArrayFile) -> int:
    views = file.values() if isinstance(file, oc.ArrayFile) else [file.view()]
    return zlib.crc32(b"".join(bytes(view) for view in views))


def answer(connection: Connection) -> None:
    """In a child: receive handles, send back what they lead to, until the other end says None."""
    while (text := connection.recv_bytes()) != b"end":
        try:
            file = pickle.loads(text)
            connection.send((checksum(file), file.identity, type(file).__name__))
        except OSError as error:
            connection.send((type(error).__name__, error.errno, error.filename))


@pytest.mark.parametrize("method", START_METHODS)
def test_a_handle_leads_to_the_same_bytes_in_another_process(tmp_path, method):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"a": np.arange(1000), "b": np.random.default_rng(1).standard_normal((30, 7))})
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=answer, args=(theirs,), daemon=True)
    child.start()

    def ask(file: object) -> object:
        ours.send_bytes(pickle.dumps(file))
        assert ours.poll(60)
        return ours.recv()

    with oc.open(path) as arrays, oc.Mapping(path, 100, 5000) as part, oc.open(path, "copy") as copy:
        for file in (arrays, part, copy):
            assert ask(file) == (checksum(file), file.identity, type(file).__name__)
        stale = pickle.dumps(arrays)
    oc.save(path, {"a": np.arange(3)})
    ours.send_bytes(stale)
    assert ours.recv() == ("FileChanged", 116, str(path))
    ours.send_bytes(b"end")
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("touched", [64 * MIB, 24 * MIB])
def test_four_processes_hold_one_copy(tmp_path, touched):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"w": np.frombuffer(os.urandom(MIB) * 64, np.uint8)})
    code = """
        import sys
        import onecopy as oc
        mapping = oc.Mapping(sys.argv[1])
        touch(mapping.view(), end=int(sys.argv[2]))
    """
    with Watched(code, path, touched, count=4) as group:
        memory = [[region.memory for region in proc.regions_of(pid, path)] for pid in group.pids]
    together = sum(region.pss for regions in memory for region in regions)
    assert together <= 1.02 * touched
    assert all(sum(region.rss for region in regions) >= touched for regions in memory)
    assert sum(region.private_dirty + region.anonymous for regions in memory for region in regions) == 0


def is_huge(path: Path) -> float:
    memory = [region.memory for region in proc.regions_of(os.getpid(), path)]
    return sum(region.file_pmd_mapped for region in memory) / sum(region.rss for region in memory)


def needs_large_folios(folder: Path) -> None:
    """Skip where not even a file written by hand in 16 MiB pieces, reserved before, is mapped in 2 MiB pages."""
    path = folder / "probe"
    with path.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 64 * MIB)
        for _ in range(4):
            file.write(bytes(16 * MIB))
    with oc.Mapping(path) as mapping:
        sum(mapping.view()[::4096])
        share = is_huge(path)
    if share < 0.5:
        pytest.skip(
            f"the file system of {folder}, or this kernel, has no large folios: {share:.0%} of a probe are huge"
        )


@pytest.mark.parametrize("arrays", [1, 50])
def test_a_saved_file_is_mapped_in_2_mib_pages_at_once(tmp_path, arrays):
    needs_large_folios(tmp_path)
    path = tmp_path / "model.safetensors"
    oc.save(path, {f"w{i}": np.zeros(96 * MIB // arrays // 4, np.float32) for i in range(arrays)})
    with oc.Mapping(path) as mapping:
        sum(mapping.view()[::4096])
        assert is_huge(path) >= 0.95


@pytest.mark.parametrize("huge", [True, False])
def test_the_share_of_huge_pages_is_reported_as_the_kernel_counts_it(cold_file, huge):
    path = cold_file(16 * MIB)
    with oc.Mapping(path) as mapping:
        mapping.view()[0]  # something is mapped in, also where warming only reads
        report = oc.warm(mapping, huge=huge)
        told = oc.residency(mapping)
        assert report.huge_share == told.huge / told.mapped == is_huge(path)


# --- files that exist in memory only, sealed, as another program would share them -----------------------------------

WEIGHTS = np.random.default_rng(1).standard_normal((1000, 300))
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def sealed_copy(path: Path) -> int:
    """Put the bytes of a file into a sealed memory file; give its descriptor."""
    fd = os.memfd_create("shared", os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(path.read_bytes())
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


@pytest.fixture
def shared(tmp_path: Path, memfd: int) -> Iterator[int]:
    oc.save(tmp_path / "arrays", {"weights": WEIGHTS, "bias": np.arange(7)}, metadata={"step": "12"})
    fd = sealed_copy(tmp_path / "arrays")
    (tmp_path / "arrays").unlink()
    yield fd
    os.close(fd)


def test_the_arrays_of_a_sealed_memory_file_are_shown_by_its_path(shared):
    with oc.open(f"/proc/self/fd/{shared}", warm=True, verify=True) as file:
        assert list(file) == ["weights", "bias"]
        assert np.array_equal(file["weights"], WEIGHTS)
        assert (file.metadata, file.kind) == ({"format": "pt", "step": "12"}, "arrays")
        assert not file["weights"].flags.writeable
        assert not file.changed()


def test_another_process_opens_it_by_the_path_of_its_owner_which_may_die(tmp_path, memfd):
    oc.save(tmp_path / "arrays", {"weights": WEIGHTS})
    told, tell = os.pipe()

    def own() -> None:
        os.write(tell, b"%d" % sealed_copy(tmp_path / "arrays"))
        signal.pause()

    with forked(own) as owner:
        file = oc.open(f"/proc/{owner}/fd/{int(os.read(told, 20))}")
    with file:  # the owner has been killed
        assert np.array_equal(file["weights"], WEIGHTS)
    os.close(told)
    os.close(tell)


def test_a_handle_whose_number_means_another_file_elsewhere_is_an_error_there(shared, tmp_path, in_child):
    with oc.open(f"/proc/self/fd/{shared}") as file:
        handle = pickle.dumps(file)
    oc.save(tmp_path / "other", {"weights": np.arange(3)})

    def attach() -> None:
        with (tmp_path / "other").open("rb") as other:
            os.dup2(other.fileno(), shared)
            pickle.loads(handle)

    with pytest.raises(oc.errors.FileChanged, match="a different file"):
        in_child(attach)
