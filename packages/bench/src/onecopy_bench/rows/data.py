"""The rows that every peer holds, the file that contains them, and the checksums used to verify the rows after reading.

The rows are synthetic annotations with statistics like COCO train2017's: 860,001 dicts with 7 keys, about 610 bytes
each when pickled, with a median of 42 numbers per polygon.

A process loads them from a `Source`, a file of pickles with a thousand rows each, which is written once so that no
sample spends time generating rows. The `checksum` of a row is the CRC-32 of its position and of its contents as marshal
writes them. It depends on types, values, keys and their order, but not on other references to parts of the row.
"""

from __future__ import annotations

import marshal
import os
import pickle
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

COCO_ROWS = 860_001
"""The number of annotations in COCO train2017."""

CHUNK, SUMS = 1000, ".sums.npy"

PLAIN = 2
"""The version of marshal that produces the same bytes for equal values, whether or not they are shared."""


def coco(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield synthetic annotations, which depend only on the seed."""
    chance = random.Random(seed)  # noqa: S311 - data, not a secret
    for i in range(count):
        points = max(4, int(chance.lognormvariate(3.06, 0.62)))
        polygon = [round(chance.random() * 640, 2) for _ in range(2 * points)]
        x, y, w, h = (round(chance.random() * limit, 2) for limit in (500, 400, 140, 80))
        yield {
            "segmentation": [polygon],
            "bbox": [x, y, w, h],
            "area": round(0.6 * w * h, 4),
            "iscrowd": 0,
            "image_id": chance.randrange(1, 581_930),
            "category_id": chance.randrange(1, 91),
            "id": i + 100_000,
        }


def checksum(position: int, row: Any) -> int:
    """Return the CRC-32 of a row and its position. Raise ValueError if marshal cannot write the row."""
    return zlib.crc32(marshal.dumps(row, PLAIN), position & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows in a file of pickles of `CHUNK` rows. `pickled` is the total size of the rows if pickled separately.

    A second file with the suffix `SUMS` contains, for each row, the sum of the checksums up to that row.
    """

    path: str
    count: int
    pickled: int

    def rows(self) -> Iterator[Any]:
        """Yield the rows."""
        with Path(self.path).open("rb") as file:
            for _ in range(0, self.count, CHUNK):
                yield from pickle.load(file)  # noqa: S301 - written by this run, in a folder of its own

    def sums(self) -> NDArray[np.uint64]:
        """Return the sums of the checksums of the first n rows, for n from 0 to `count`."""
        return np.load(self.path + SUMS)  # type: ignore[no-any-return]


def write(folder: Path, rows: Iterator[Any], seen: Callable[[int], None] = lambda _: None) -> Source:
    """Write rows to a file in a folder, and return the source. `seen` is called with the number of rows so far."""
    path = folder / "rows.pickles"
    sums, pickled, count = [np.zeros(1, np.uint64)], 0, 0
    with path.open("wb") as file:
        while chunk := list(islice(rows, CHUNK)):
            pickle.dump(chunk, file, protocol=5)
            pickled += sum(len(pickle.dumps(row, 5)) for row in chunk)
            sums.append(np.array([checksum(i, row) for i, row in enumerate(chunk, count)], np.uint64))
            count += len(chunk)
            seen(count)
    np.save(f"{path}{SUMS}", np.cumsum(np.concatenate(sums), dtype=np.uint64))
    return Source(os.fspath(path), count, pickled)
