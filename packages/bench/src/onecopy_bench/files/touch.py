"""The same cheap work for every configuration: one byte of each page, and a checksum of what was seen.

"All resident" means that each 4 KiB of the data has been read once. The work has to be small beside the
loading that is measured, and its result has to depend on the file alone, so that a copy, a mapping and a
tensor at an odd offset agree: of each piece the bytes at 0, 4096, 8192, ... *relative to the piece* and its
last byte. Every page that a piece covers holds one of these. The CRC of name and bytes is taken per piece,
the sum of the CRCs (modulo 2**64) is the checksum of the file, whatever the order of the pieces.

`of_file` computes it with plain `pread` and none of the code under test: it is the judge.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine.raw import READ, STRIDE, read_exactly
from onecopy_bench.files.layout import Layout, Piece


def of_piece(name: str, samples: bytes) -> int:
    """Return the CRC-32 of one piece: its name, then the bytes that were touched."""
    return zlib.crc32(samples, zlib.crc32(name.encode("utf-8", "surrogatepass")))


def of_array(name: str, array: NDArray[np.generic]) -> int:
    """Touch every page of an array and return its CRC-32; nothing but the touched bytes is copied."""
    flat = array.reshape(-1).view(np.uint8)
    return of_piece(name, flat[::STRIDE].tobytes() + flat[-1:].tobytes())


def combine(checksums: Iterable[int]) -> int:
    """Return the checksum of a file from those of its pieces."""
    return sum(checksums) % 2**64


def of_arrays(arrays: Iterable[tuple[str, NDArray[np.generic]]]) -> int:
    """Touch every page of all arrays and return their checksum."""
    return combine(of_array(name, array) for name, array in arrays)


def of_file(path: str | os.PathLike[str], layout: Layout) -> int:
    """Return the checksum that every configuration has to reach, by reading the whole file in order."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        buffer = bytearray(READ)
        return combine(of_piece(piece.name, _samples(fd, piece, buffer)) for piece in layout.pieces)
    finally:
        os.close(fd)


def _samples(fd: int, piece: Piece, buffer: bytearray) -> bytes:
    """Return the bytes of a piece that a touch reads."""
    samples, last = b"", b""
    with memoryview(buffer) as view:
        for done in range(0, piece.nbytes, READ):
            part = view[: min(READ, piece.nbytes - done)]
            read_exactly(fd, part, piece.offset + done)
            samples, last = samples + part[::STRIDE].tobytes(), bytes(part[-1:])
    return samples + last
