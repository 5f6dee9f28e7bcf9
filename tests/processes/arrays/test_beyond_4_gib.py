"""Files of more than 4 GiB of data, no holes: what lies behind byte 2**32 is saved, found, warmed and verified."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.damage import flipped

import onecopy as oc
import onecopy.records
from onecopy.files.page_cache import available_memory, residency

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

MIB = 1 << 20
LIMIT = 1 << 32
PIECES = 4301  # of 1 MiB: 4.2 GiB
SIZE = PIECES * MIB
DISK = 12 << 30  # a source and a copy of it, or a spool and what it becomes
MEMORY = 6 << 30
LETTERS = np.random.default_rng(4).integers(ord("A"), ord("z"), MIB, np.uint8)
LAST = np.arange(1000, dtype=np.int64)
BEHIND = [0, 1, 4094, 4095, 4096, 4097, *range(4200, PIECES, 20), PIECES - 1]  # 4096: the first behind 4 GiB


def piece(number: int) -> np.ndarray:
    """Return 1 MiB of letters, whose number stands at the begin of each of its pages."""
    made = LETTERS.copy()
    made.reshape(-1, 4096)[:, :8] = np.frombuffer(f"{number:08}".encode(), np.uint8)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("beyond")
    if shutil.disk_usage(made).free < DISK:
        pytest.skip(f"{DISK >> 30} GiB of disk are needed in {made}, free are {shutil.disk_usage(made).free >> 30}")
    available = available_memory()
    if available is not None and available < MEMORY:
        pytest.skip(f"{MEMORY >> 30} GiB of memory are needed, available are {available >> 30}")
    return made


# First, since there is not enough space for the model beside them.
@pytest.mark.parametrize("kind", [bytes, str])
def test_records_behind_4_gib_are_read(folder, kind):
    def value(number: int) -> bytes | str:
        content = piece(number).tobytes()
        return content if kind is bytes else content.decode()

    path = folder / "rows.oc"
    onecopy.records.save(path, ({"id": number, "value": value(number)} for number in range(PIECES)))
    try:
        size = path.stat().st_size
        assert size > SIZE
        assert path.stat().st_blocks * 512 >= SIZE
        with oc.open_records(path) as rows:
            assert len(rows) == PIECES
            assert [n for n in BEHIND if rows[n] != {"id": n, "value": value(n)}] == []
            assert rows[-1]["value"] == value(PIECES - 1)
            assert [row["id"] for row in rows[4090:4100]] == list(range(4090, 4100))
        report = oc.warm(path)
        assert (report.bytes, report.complete) == (size, True)
    finally:
        path.unlink()


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[Path]:
    """Give a file of one array of 4.2 GiB and a small one behind it."""
    source, path = folder / "source.bin", folder / "model.safetensors"
    with source.open("wb") as file:
        for number in range(PIECES):
            file.write(piece(number))
    big = np.memmap(source, np.uint8, "r", shape=(PIECES, MIB))
    oc.save(path, {"big": big, "last": LAST}, align=4096)
    del big
    source.unlink()
    assert path.stat().st_blocks * 512 >= SIZE  # no holes
    yield path
    path.unlink()


def test_an_array_that_crosses_4_gib_is_what_was_saved(model):
    with oc.open(model) as file:
        assert [(entry.name, entry.nbytes) for entry in file.entries] == [("big", SIZE), ("last", LAST.nbytes)]
        assert file.entry("last").offset > LIMIT
        assert (file["last"] == LAST).all()
        big = file["big"]
        assert big.shape == (PIECES, MIB)
        assert [number for number in BEHIND if (big[number] != piece(number)).any()] == []
        assert (file.slice("big", slice(-1, None))[0] == piece(PIECES - 1)).all()


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("offset", [LIMIT - 5, LIMIT, LIMIT + 4096 + 5])
def test_part_of_a_file_is_mapped_behind_4_gib(model, mode, offset):
    with model.open("rb") as file:
        expected = os.pread(file.fileno(), 3 * MIB, offset)
    with oc.Mapping(model, offset=offset, length=3 * MIB, mode=mode) as mapping:
        assert bytes(mapping.view()) == expected


def test_warm_brings_in_all_of_it_and_reports_it(model, mechanism):
    size = model.stat().st_size
    evicted = oc.evict(model)
    assert (evicted.bytes, evicted.cached_after) == (size, 0)
    told = []
    report = oc.warm(model, mechanism=mechanism, progress=lambda done, total: told.append((done, total)))
    assert (report.bytes, report.cached_before, report.filled) == (size, 0, size)
    assert (report.complete, report.mechanism) == (True, mechanism)
    assert report.cached_after > LIMIT
    assert told[-1] == (size, size)
    assert all(0 <= done <= total == size for done, total in told)


def test_a_range_behind_4_gib_is_warmed_alone(model):
    oc.evict(model)
    report = oc.warm(model, [(LIMIT + 8 * MIB, 16 * MIB)], huge=False)
    assert (report.bytes, report.filled, report.complete) == (16 * MIB, 16 * MIB, True)
    assert residency(model, [(8 * MIB, 16 * MIB)]).cached == 0  # where it would be in 32 bits
    assert residency(model, [(LIMIT + 8 * MIB, 16 * MIB)]).cached > 15 * MIB


@pytest.mark.parametrize("place", ["big", "last"])
@pytest.mark.parametrize("warm", [True, False])
def test_verify_finds_a_flipped_byte_behind_4_gib(model, place, warm):
    def verify() -> None:
        with oc.open(model) as file:
            checked = file.warm(verify=True).verified if warm else file.verify().bytes
            assert checked >= SIZE

    with oc.open(model) as file:
        offset = LIMIT + 12345 if place == "big" else file.entry("last").offset + 4567
    with flipped(model, offset), pytest.raises(oc.ChecksumError) as raised:
        verify()
    [block] = raised.value.blocks
    assert block.offset <= offset < block.offset + block.length
    assert place in block.names
    verify()
