"""`Image`: an image as a mapped array; `Facts`: what its header says; the errors of images that cannot be read."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.arrays.entries import TYPES
from onecopy.errors import FormatError
from onecopy.files import Closeable, Mapping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.store import Artefact

NAME = "data"
"""Name of the one array in an artefact."""
PALETTE = "palette indices"
"""Suffix of `Facts.codec` for pixels that are indices into a palette, which is not read."""


class CodecError(FormatError):
    """No installed library can read an image: its format is not supported, or its bytes are damaged.

    The message has the path of the file and the error of each library.
    """


class DamagedError(CodecError):
    """An image file is truncated, or its header claims an implausible size.

    No other library is tried: some fill in missing pixels, and all need the memory.
    """


class NoLevelError(ValueError):
    """The image has no such level."""


def no_level(path: str, level: int, levels: int) -> NoLevelError:
    """Return the error for a missing level."""
    have = "one level, 0" if levels == 1 else f"levels 0 to {levels - 1}"
    return NoLevelError(f"{path}: no level {level}: the image has {have}")


class InPlace(NamedTuple):
    """The place of uncompressed pixels in a file, which can be mapped."""

    offset: int
    """Offset of the first pixel in bytes."""
    dtype: str
    """Element type in numpy's notation, in the byte order of the file: ">u2"."""


class Facts(NamedTuple):
    """The facts that the header of an image has about one level."""

    codec: str
    """The decoding library with versions: "tifffile 2026.3.3, imagecodecs 2026.3.6"; for palette images "pillow
    12.0.0, palette indices"."""
    shape: tuple[int, ...]
    """Shape of the level, in elements."""
    dtype: str
    """Element type in numpy's notation, little-endian."""
    axes: str
    """One letter per axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
    level: int
    """Number of the level; 0 is the largest."""
    levels: tuple[tuple[int, ...], ...]
    """Shapes of all levels; the first one is the largest."""
    in_place: InPlace | None = None
    """Place of the pixels in the file if they are uncompressed; None if they have to be decoded."""
    at_once: int = 0
    """Bytes of the largest strip or tile of a TIFF, which is decoded in memory beside the pixels."""
    decoded: int = 0
    """Bytes of all strips or tiles of a TIFF when decoded, with what lies outside the image."""

    @property
    def nbytes(self) -> int:
        """Size of the decoded level in bytes."""
        import numpy as np

        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @classmethod
    def of_file(cls, file: ArrayFile) -> Facts:
        """Return the facts of an array file: those that `metadata` wrote, or defaults for a file without them.

        FormatError if the file has several arrays and none is called "data", or if the metadata are damaged.
        """
        if len(file) != 1 and NAME not in file:
            raise FormatError(f"{file.path}: not an image: {len(file)} arrays, and none is called {NAME!r}")
        entry = file.entry(NAME if NAME in file else next(iter(file)))
        dtype = {one.name: one.numpy for one in TYPES}.get(entry.dtype) or entry.dtype
        axes = ("YX", "YXS")[len(entry.shape) - 2] if len(entry.shape) in (2, 3) else "?" * len(entry.shape)
        text = file.metadata.get("image")
        if text is None:
            return cls("", entry.shape, dtype, axes, 0, (entry.shape,))
        try:
            about = json.loads(text)
            levels = tuple(tuple(map(int, one)) for one in about["levels"])
            return cls(str(about["codec"]), entry.shape, dtype, str(about["axes"]), int(about["level"]), levels)
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{file.path}: the image metadata are damaged: {error!r}") from None

    def metadata(self, source: str) -> dict[str, str]:
        """Return the metadata that an artefact is saved with."""
        about = {"level": self.level, "levels": self.levels, "axes": self.axes, "codec": self.codec}
        return {"image": json.dumps(about), "source": source}


class Image(Closeable):
    """A read-only image whose pixels are mapped pages, shared by all processes of the machine. `open` returns it.

    An image pickles as the path and the identity of the mapped file: another process maps the same pages. Views of
    `array` keep the mapping alive after `close`. ``np.asarray(image)`` returns `array` without a copy.
    """

    def __init__(
        self, path: str, file: ArrayFile | Mapping, facts: Facts, reason: str, artefact: Artefact | None = None
    ) -> None:
        self.file = file
        """The mapped file, for `onecopy.warm`, `evict`, `pin` and `residency`."""
        self.path = path
        """Path of the image file, as given."""
        self.level = facts.level
        """Level of the image pyramid; 0 is the largest."""
        self.levels = facts.levels
        """Shapes of all levels; the first one is the largest."""
        self.axes = facts.axes
        """One letter per axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
        self.codec = facts.codec
        """The library that decoded the image, with versions; empty if nothing was decoded."""
        self.reason = reason
        """A sentence on where the pixels come from: decoded by this call, decoded before, or mapped from the file.
        For palette images it adds that the pixels are palette indices."""
        self.artefact = artefact
        """The decoded image in the store; None if the image file itself is mapped."""
        if facts.codec.endswith(PALETTE) and PALETTE not in reason:  # after unpickling, the reason has it already
            self.reason += f"; its pixels are {PALETTE}, not colours"
        self._facts = facts
        self._array: NDArray[Any] | None = None  # numpy is imported by the first access

    @property
    def array(self) -> NDArray[Any]:
        """The pixels as a read-only array without a copy; ValueError if the image is closed."""
        if self.file.closed:
            raise ValueError(f"{self.path}: the image is closed")
        if self._array is None:
            if isinstance(self.file, Mapping):
                import numpy as np

                assert self._facts.in_place is not None
                view = self.file.view(0, self._facts.nbytes)  # the mapping begins with the pixels
                self._array = np.ndarray(self._facts.shape, self._facts.in_place.dtype, view)
            else:
                self._array = self.file[NAME if NAME in self.file else next(iter(self.file))]
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `array`."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """Numpy dtype of `array`; in the byte order of the file if the image file itself is mapped."""
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        """Size of the pixels in bytes."""
        return self.array.nbytes

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __len__(self) -> int:
        return len(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        if copy is False and dtype is not None and np.dtype(dtype) != self.dtype:
            conversion = f"from {self.dtype} to {np.dtype(dtype)}"
            raise ValueError(f"{self.path}: a conversion {conversion} needs a copy, and copy is False")
        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    def close(self) -> None:
        """Close the image. The mapping is released with the last view of it. Closing twice has no effect."""
        self._array = None  # this reference would keep the mapping alive
        self.file.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.file.closed

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.file, self._facts, self.reason, self.artefact)

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.images.Image {self.path!r} closed>"
        shape = " x ".join(map(str, self.shape))
        return f"<onecopy.images.Image {self.path!r} level {self.level}, {shape} {self.dtype}, {self.reason}>"
