"""Small files with one bit flipped, 10,000 times, or cut at every 512 bytes. A child opens them, and must survive."""

import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.damage import flipped

import onecopy as oc

MIB = 1 << 20
FLIPS = 2000  # in each of the files below

RANDOM = np.random.default_rng(1)
SMALL = {"weight": RANDOM.random((17, 19), np.float32), "bias": np.arange(7, dtype=np.int8), "step": np.int64(3)}
MANY = {f"layers.{i}.\u00e9\n": RANDOM.integers(0, 9, i % 50, np.int16) for i in range(300)}
LARGE = {"first": RANDOM.integers(0, 255, 3 * MIB, np.uint8), "second": RANDOM.random(2 * MIB // 8 + 5)}
FILES = {
    "plain": (SMALL, None),
    "aligned": (SMALL, 64),
    "of many arrays": (MANY, None),
    "of many aligned arrays": (MANY, 64),
    "of four blocks": (LARGE, None),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder in memory: what is written here is written 30,000 times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def save(folder: Path, kind: str) -> Path:
    arrays, align = FILES[kind]
    path = folder / "model"
    oc.save(path, arrays, {"note": "\u00e9\n"}, align)
    return path


def outcome(path: Path) -> str:
    """Open, look at each entry, and verify; return "passed", or the error's name."""
    try:
        with oc.open(path) as file:
            size = path.stat().st_size
            assert all(0 <= entry.offset <= entry.offset + entry.nbytes <= size for entry in file.entries)
            file.verify(threads=1)
    except (oc.FormatError, OSError) as error:
        return type(error).__name__
    return "passed"


def flip(path: Path) -> Counter[str]:
    """Flip one bit after the other, half of them in the header, each back again; count the outcomes."""
    warnings.simplefilter("ignore")  # a wrong checksum of the header is a warning
    assert outcome(path) == "passed"
    size = path.stat().st_size
    data = min(entry.offset for entry in oc.open(path).entries)
    dice = random.Random(size)
    counts: Counter[str] = Counter()
    for number in range(FLIPS):
        with flipped(path, dice.randrange(data if number % 2 else size), 1 << dice.randrange(8)):
            counts[outcome(path)] += 1
    assert outcome(path) == "passed"
    return counts


def cut(path: Path) -> Counter[str]:
    """Cut at every multiple of 512 and one byte before and behind it, from the end to the beginning."""
    warnings.simplefilter("error")  # not a warning, an error
    size = path.stat().st_size
    places = {place + by for place in range(0, size + 512, 512) for by in (-1, 0, 1)}
    counts: Counter[str] = Counter()
    with path.open("r+b") as file:
        for place in sorted((place for place in places if 0 <= place < size), reverse=True):
            file.truncate(place)
            counts[outcome(path)] += 1
    return counts


@pytest.mark.parametrize("kind", FILES)
def test_every_flipped_bit_is_refused_on_opening_or_found_by_verify(folder, in_child, kind):
    counts = in_child(flip, save(folder, kind))
    assert counts.total() == FLIPS
    assert set(counts) <= {"FormatError", "ChecksumError", "NoChecksum"}
    assert counts["ChecksumError"] > FLIPS // 20


@pytest.mark.parametrize("kind", FILES)
def test_a_cut_file_is_refused_wherever_it_is_cut(folder, in_child, kind):
    path = save(folder, kind)
    places = -(-path.stat().st_size // 512) * 3 - 3
    counts = in_child(cut, path)
    assert set(counts) == {"FormatError", "OSError"}
    assert counts["OSError"] == 1  # the empty file
    assert counts.total() >= places
