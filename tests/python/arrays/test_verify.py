"""Checksums: files are compared with what was written, and every difference is reported."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import onecopy as oc
from onecopy.errors import Kind
from onecopy.memory import proc

BLOCK = 2 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path / "model.safetensors"
    oc.save(path, {name: random.integers(0, 256, size, np.uint8) for name, size in (("a", BLOCK), ("b", 3 * BLOCK))})
    return path


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, offset)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1]), offset)


def test_whole_file_and_names(model: Path) -> None:
    seen: list[tuple[int, int]] = []
    with oc.open(model) as file:
        data = model.stat().st_size - 4096
        assert file.verify(threads=1, progress=lambda done, total: seen.append((done, total))).bytes == data
        assert seen[0][0] <= seen[-1][0] == seen[-1][1]
        assert file.verify(["a"]).bytes == 2 * BLOCK - 4096  # the second block is shared with "b"
        assert file.verify([("b", slice(2 * BLOCK, 2 * BLOCK + 1))]).bytes == BLOCK
        assert file.verify([]).bytes == 0
    with pytest.raises(ValueError, match="closed"):
        file.verify()


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("warm", [False, True])
def test_open_verifies(model: Path, mode: str, warm: bool) -> None:
    with oc.open(model, mode, verify=True, warm=warm) as file:
        assert len(file) == 2
    flip(model, 3 * BLOCK)
    with pytest.raises(oc.ChecksumError, match=r"block 3.*'b'") as caught:
        oc.open(model, mode, verify=True, warm=warm)
    (block,) = caught.value.blocks
    assert (block.number, block.offset, block.length, block.names) == (3, 3 * BLOCK, BLOCK, ("b",))
    assert f"CRC-32C {block.found:08x}, but {block.expected:08x} was stored" in str(caught.value)
    assert block.expected != block.found
    facts = (Kind.INCONSISTENT, block.offset, str(model))
    assert (caught.value.kind, caught.value.offset, caught.value.path) == facts


def test_every_damaged_block_is_reported_also_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    oc.save(
        path, {name: np.ones(size, np.uint8) for name, size in (("a", BLOCK - 4096), ("b", BLOCK), ("c", 2 * BLOCK))}
    )
    for offset in (4096, BLOCK, 2 * BLOCK, path.stat().st_size - 1):
        flip(path, offset)
    with oc.open(path) as file, pytest.raises(oc.ChecksumError, match=r"4 of 4 blocks are damaged") as caught:
        file.verify()
    # Not named: the arrays that end where a block begins.
    damaged = [(block.number, block.names) for block in caught.value.blocks]
    assert damaged == [(0, ("a",)), (1, ("b",)), (2, ("c",)), (3, ("c",))]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.blocks) == (str(caught.value), caught.value.blocks)


def test_warm_verifies_in_the_same_pass(model: Path) -> None:
    with oc.open(model) as file:
        file.evict()
        report = file.warm(verify=True)
        assert report.verified == model.stat().st_size - 4096
        assert file.warm().verified is None
        job = file.warm(["a"], verify=True, wait=False)
        assert job.wait().verified == 2 * BLOCK - 4096
    flip(model, BLOCK + 7)
    with oc.open(model) as file:
        with pytest.raises(oc.ChecksumError):
            file.warm(verify=True, wait=False).wait()
        file.warm([("b", slice(2 * BLOCK, None))], verify=True)  # the damage is elsewhere


def test_nothing_to_verify_against(tmp_path: Path, write_tensors: Callable[..., Path]) -> None:
    oc.save(tmp_path / "bare", {"a": np.zeros(3)}, checksum=False)
    for path in (tmp_path / "bare", write_tensors({"a": ("U8", [1], b"x")})):
        with oc.open(path) as file:
            with pytest.raises(oc.errors.NoChecksum, match="without checksums"):
                file.verify()
            with pytest.raises(oc.errors.NoChecksum):
                file.warm(verify=True)
        with pytest.raises(oc.errors.NoChecksum) as caught:
            oc.open(path, verify=True)
        assert (caught.typename, proc.regions_of(os.getpid(), path)) == ("NoChecksum", [])  # closed at once


def test_truncated_meanwhile(model: Path) -> None:
    with oc.open(model) as file:
        os.truncate(model, 2 * BLOCK + 1)
        with pytest.raises(oc.DataLost) as caught:
            file.verify()
        assert caught.value.offset == 2 * BLOCK + 1
        assert caught.value.filename == str(model)


def test_the_copy_is_checked_and_not_the_file(model: Path) -> None:
    with oc.open(model, "copy") as file:
        flip(model, BLOCK)
        assert file.verify().bytes == model.stat().st_size - 4096


@pytest.mark.parametrize("rows", [slice(-10, None), slice(-10, -1), slice(4086, None)])
def test_of_selected_rows_only_their_blocks_are_compared(rows, tmp_path):
    path = tmp_path / "w.oc"
    oc.save(path, {"w": np.zeros((4096, 1024), np.uint8)})
    flip(path, 4096)
    with oc.open(path, names=[("w", rows)]) as selected:
        assert selected.verify().bytes < 4 << 20
        flip(path, 4096 + 4090 * 1024)
        with pytest.raises(oc.ChecksumError):
            selected.verify()
