"""The location of a file's data, and the checksum of the touched bytes, with which every loader is verified.

A comparison of loaders is fair only if all of them read the same bytes. Therefore the parent parses the header of a
safetensors file once, with the short reader below and not with the code under test, and each worker receives the table
of names, offsets and lengths. Any other file is treated as one piece. The reader validates nothing: if it cannot parse
a header, the file is treated as one piece, and the loaders report the error.

A file counts as read when one byte of each of its 4 KiB pages has been read. This must take little time compared with
the measured loading, and its result must depend only on the file, so that a copy, a mapping and a tensor at an odd
offset agree. For each piece, the checksum covers the name, the bytes at 0, 4096, 8192, ... *relative to the piece* and
the last byte; every page of a piece contains one of these. The file's checksum is the sum of the pieces' CRCs modulo
2**64, whatever the order of the pieces.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.system import READ, STRIDE

Kind = Literal["safetensors", "bytes"]
MAX_HEADER = 100_000_000
"""The longest header that the safetensors format allows, in bytes."""
WHOLE_FILE = "(the whole file)"


@dataclass(frozen=True, slots=True)
class Piece:
    """One named part of the file: `nbytes` bytes from byte `offset`."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The contents of a file: its format, its size in bytes, and its pieces in the order in which they are touched."""

    kind: Kind
    size: int
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """Total bytes of all pieces: the file without its header and padding."""
        return sum(piece.nbytes for piece in self.pieces)


def parse_safetensors(header: bytes, size: int) -> Layout | None:
    """Return the layout that a safetensors header describes, or None if it does not describe a file of `size` bytes.

    The header is the JSON text after the eight length bytes.
    """
    pieces, start = [], 8 + len(header)
    try:
        for name, entry in json.loads(header).items():
            if name != "__metadata__":
                begin, end = map(int, entry["data_offsets"])
                pieces.append(Piece(name, start + begin, end - begin))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    inside = all(p.nbytes >= 0 and start <= p.offset <= size and p.nbytes <= size - p.offset for p in pieces)
    if not pieces or not inside:
        return None
    return Layout("safetensors", size, tuple(sorted(pieces, key=lambda p: (p.offset, p.name))))


def read_layout(path: str | os.PathLike[str]) -> Layout:
    """Return the layout of the file at `path`. Raise OSError if it cannot be read."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        found = parse_safetensors(file.read(length), size) if 8 + length <= size and length <= MAX_HEADER else None
    return found or Layout("bytes", size, (Piece(WHOLE_FILE, 0, size),))


def checksum_of_piece(name: str, touched: bytes) -> int:
    """Return the CRC-32 of a piece's name followed by its touched bytes."""
    return zlib.crc32(touched, zlib.crc32(name.encode("utf-8", "surrogatepass")))


def touch_array(name: str, array: NDArray[np.generic]) -> int:
    """Read one byte of every page of an array, and return their `checksum_of_piece`. No other bytes are copied."""
    flat = array.reshape(-1).view(np.uint8)
    return checksum_of_piece(name, flat[::STRIDE].tobytes() + flat[-1:].tobytes())


def combine(checksums: Iterable[int]) -> int:
    """Combine the checksums of a file's pieces into the checksum of the file."""
    return sum(checksums) % 2**64


def checksum_of_file(path: str | os.PathLike[str], layout: Layout) -> int:
    """Compute the checksum that every loader must produce, with plain reads instead of the code under test."""
    with Path(path).open("rb", buffering=0) as file, memoryview(bytearray(READ)) as buffer:
        sums = []
        for piece in layout.pieces:
            touched, last = b"", b""
            for done in range(0, piece.nbytes, READ):
                part = buffer[: min(READ, piece.nbytes - done)]
                read_exactly(file.fileno(), part, piece.offset + done)
                touched, last = touched + part[::STRIDE].tobytes(), bytes(part[-1:])
            sums.append(checksum_of_piece(piece.name, touched + last))
    return combine(sums)


def read_exactly(fd: int, view: memoryview, offset: int) -> None:
    """Fill `view` with the file's bytes from `offset`. Raise EOFError with the position if the file ends early."""
    done = 0
    while done < len(view):
        got = os.preadv(fd, [view[done:]], offset + done)
        if got == 0:
            raise EOFError(f"the file ends at byte {offset + done}; expected {len(view) - done} more bytes")
        done += got
