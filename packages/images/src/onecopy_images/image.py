"""`Image` and `Images` (mapped pixels), `Facts` (the contents of a header), and errors for unreadable images."""

from __future__ import annotations

import json
import operator
import os
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.arrays.entries import TYPES
from onecopy.errors import Error, FormatError, Kind
from onecopy.files.mapping import Closeable, Mapping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.files.page_cache import WarmJob, WarmOptions, WarmReport
    from onecopy.store import Artefact

NAME = "data"
"""Name of the only array in an artefact."""
PALETTE = "palette indices"
"""Suffix of `Facts.codec` if pixels are indices into a palette, which is not read."""


class CodecError(FormatError):
    """No installed library can read an image, because its format is not supported or its bytes are damaged.

    The message contains the path of the file and the error of each library.
    """


class DamagedError(CodecError):
    """An image file is truncated, or its header declares an implausible size.

    No other library is tried, because some would fill in missing pixels, and all would need the same memory.
    """


class NoLevelError(Error, ValueError):
    """The image does not have the requested level."""


def no_level(path: str, level: int, levels: int) -> NoLevelError:
    """Return the error for a missing level."""
    have = "one level, 0" if levels == 1 else f"levels 0 to {levels - 1}"
    return NoLevelError(f"{path}: there is no level {level}: the image has {have}")


def expect_shape(path: str, now: tuple[int, ...], into: NDArray[Any]) -> None:
    """Raise CodecError unless an image has the shape that its header declared when `into` was created."""
    if now != into.shape:
        message = f"the image was replaced: its shape is now {now}, not {into.shape}"
        raise CodecError(message, Kind.INCONSISTENT, path=path)


def bands(into: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield parts of an array, each of about 4 MiB, from top to bottom, and the number of each part's first row."""
    rows = max(1, (4 << 20) * len(into) // max(1, into.nbytes))
    return ((top, into[top : top + rows]) for top in range(0, len(into), rows))


class InPlace(NamedTuple):
    """The location of uncompressed pixels in a file, which can be mapped."""

    offset: int
    """Offset of the first pixel in bytes."""
    dtype: str
    """Element type in NumPy's notation, in the byte order of the file: ">u2"."""


class Facts(NamedTuple):
    """The facts about one level of an image, from its header."""

    codec: str
    """The decoding library, with versions: "tifffile 2026.3.3, imagecodecs 2026.3.6"; for palette images "pillow
    12.0.0, palette indices"."""
    shape: tuple[int, ...]
    """Shape of the level in elements."""
    dtype: str
    """Element type in NumPy's notation, little-endian."""
    axes: str
    """One letter per axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
    level: int
    """Number of the level; 0 is the largest."""
    levels: tuple[tuple[int, ...], ...]
    """Shapes of all levels; the first one is the largest."""
    in_place: InPlace | None = None
    """Location of the pixels in the file if they are uncompressed, or None if they must be decoded."""
    at_once: int = 0
    """Size in bytes of a TIFF file's largest strip or tile, which is decoded into additional memory."""
    decoded: int = 0
    """Total size in bytes of a TIFF file's decoded strips or tiles, including parts outside of the image."""

    @property
    def nbytes(self) -> int:
        """Size of the decoded level in bytes."""
        import numpy as np

        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @classmethod
    def of_file(cls, file: ArrayFile) -> Facts:
        """Return the facts in an array file's metadata (see `metadata`), or defaults for a file without metadata.

        Raise FormatError if the file contains several arrays and none is named "data", or if the metadata is damaged.
        """
        if len(file) != 1 and NAME not in file:
            raise FormatError(
                f"not an image: none of the {len(file)} arrays is named {NAME!r}", Kind.NOT_THIS_FORMAT, path=file.path
            )
        entry = file.entry(NAME if NAME in file else next(iter(file)))
        in_numpy, *_ = TYPES.get(entry.dtype, (None,))
        dtype = in_numpy or entry.dtype
        axes = ("YX", "YXS")[len(entry.shape) - 2] if len(entry.shape) in (2, 3) else "?" * len(entry.shape)
        text = file.metadata.get("image")
        if text is None:
            return cls("", entry.shape, dtype, axes, 0, (entry.shape,))
        try:
            about = json.loads(text)
            levels = tuple(tuple(map(int, one)) for one in about["levels"])
            return cls(str(about["codec"]), entry.shape, dtype, str(about["axes"]), int(about["level"]), levels)
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"the image metadata is damaged: {error!r}", path=file.path) from None

    def metadata(self, source: str) -> dict[str, str]:
        """Return the metadata to save in an artefact."""
        source = os.fsencode(source).decode(errors="backslashreplace")  # metadata must be UTF-8, names need not
        about = {"level": self.level, "levels": self.levels, "axes": self.axes, "codec": self.codec}
        return {"image": json.dumps(about), "source": source}


class Image(Closeable):
    """A read-only image, returned by `open`, whose pixels are mapped pages that all processes on the machine share.

    An image's pickle consists of the path and identity of the mapped file, so another process maps the same pages.
    Views of `array` keep the mapping alive after `close`. ``np.asarray(image)`` returns `array` without a copy.
    """

    def __init__(
        self, path: str, file: ArrayFile | Mapping, facts: Facts, reason: str, artefact: Artefact | None = None
    ) -> None:
        self.file = file
        """The mapped file, for `onecopy.warm`, `evict`, `pin` and `residency`."""
        self.path = path
        """Path of the image file, as passed to `open`."""
        self.level = facts.level
        """Level of the image pyramid; 0 is the largest."""
        self.levels = facts.levels
        """Shapes of all levels; the first one is the largest."""
        self.axes = facts.axes
        """One letter per axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
        self.codec = facts.codec
        """The library that decoded the image, with versions, or "" if nothing was decoded."""
        self.reason = reason
        """Where the pixels came from, as a sentence: decoded by this call, decoded earlier, or mapped from the file.
        For palette images it also states that the pixels are palette indices."""
        self.artefact = artefact
        """The decoded image in the store, or None if the image file itself is mapped."""
        if facts.codec.endswith(PALETTE) and PALETTE not in reason:  # an unpickled reason already includes it
            self.reason += f"; its pixels are {PALETTE}, not colours"
        self._facts = facts
        self._array: NDArray[Any] | None = None  # numpy is imported by the first access

    @property
    def array(self) -> NDArray[Any]:
        """The pixels as a read-only array, without copying. Raise ValueError if the image is closed."""
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
        """NumPy dtype of `array`. If the image file itself is mapped, it has the byte order of the file."""
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
            raise ValueError(f"{self.path}: a conversion {conversion} requires a copy, but copy is False")
        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    def close(self) -> None:
        """Close the image. The mapping is released with its last view. Closing twice has no effect."""
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


class Images(Closeable):
    """A read-only sequence of decoded images whose pixels are mapped pages that all processes share.

    ``images[i]`` is an array of shape (height, width) or (height, width, samples), not a copy. If all images have
    the same shape, ``images[2:5]`` and ``images[[7, 1]]`` are arrays with an additional axis; the first is a view, the
    second a copy. The arrays keep the mapping alive after `close`.

    A pickle contains only the path and identity of the file (a few hundred bytes), so any other process maps the same
    pages. Unpickling raises `onecopy.errors.FileChanged` if the file has been replaced or modified.

    Raises
    ------
    FormatError
        The file does not contain an image dataset.
    """

    report: Artefact | None = None
    """A report with the path, the duration, and whether this call decoded the images; None after unpickling."""

    mapped_by_onecopy = True  # `onecopy.torch.share_dataset` leaves it as it is

    def __init__(self, file: ArrayFile) -> None:
        if "pixels" not in file or "paths" not in file or ("offsets" in file) != ("shapes" in file):
            raise FormatError(
                "not a dataset of images: expected arrays 'pixels' and 'paths'", Kind.NOT_THIS_FORMAT, path=file.path
            )
        self.file = file
        """The mapped file, for `onecopy.warm`, `evict`, `pin` and `residency`."""
        self._pixels: NDArray[Any] | None = file["pixels"]
        self._ragged = (file["offsets"], file["shapes"]) if "offsets" in file else None
        if self._ragged is not None:
            self._check(*self._ragged)

    def _check(self, offsets: NDArray[Any], shapes: NDArray[Any]) -> None:
        """Raise FormatError unless the offsets and shapes match the pixels."""
        right = (
            offsets.shape == (len(shapes) + 1,)
            and shapes.ndim == 2
            and self._all.ndim == 1
            and offsets[0] == 0
            and offsets[-1] == len(self._all)
            and (shapes >= 0).all()
            and (shapes.prod(axis=1) == offsets[1:] - offsets[:-1]).all()
        )
        if not right:
            raise FormatError(
                "the offsets and shapes of the images do not match the pixels",
                Kind.INCONSISTENT,
                path=self.file.path,
            )

    @property
    def _all(self) -> NDArray[Any]:
        if self._pixels is None:
            raise ValueError(f"{self.file.path}: the images are closed")
        return self._pixels

    # --- images ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._all) if self._ragged is None else len(self._ragged[1])

    def __getitem__(self, index: Any) -> NDArray[Any]:
        pixels = self._all
        if self._ragged is None:
            image: NDArray[Any] = pixels[index]
            return image
        offsets, shapes = self._ragged
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"an index into images of different shapes must be one number, not {index!r}: to index several at "
                "once, share them with a size"
            ) from None
        if not -len(shapes) <= number < len(shapes):
            raise IndexError(f"image index {number} is out of range: there are {len(shapes)} images")
        number %= len(shapes)
        one: NDArray[Any] = pixels[int(offsets[number]) : int(offsets[number + 1])].reshape(shapes[number])
        return one

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return map(self.__getitem__, range(len(self)))

    @property
    def array(self) -> NDArray[Any]:
        """All images as one array of shape (images, height, width[, samples]). Raise ValueError if shapes differ."""
        if self._ragged is not None:
            raise ValueError(f"{self.file.path}: the images have different shapes: share them with a size")
        return self._all

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    @property
    def shapes(self) -> NDArray[Any]:
        """Shapes of the images, as an int64 array of shape (images, axes)."""
        import numpy as np

        if self._ragged is not None:
            return self._ragged[1]
        count, *shape = self._all.shape
        return np.broadcast_to(np.array(shape, np.int64), (count, len(shape)))

    @property
    def dtype(self) -> Any:
        """NumPy dtype of the pixels."""
        return self._all.dtype

    @property
    def nbytes(self) -> int:
        """Size of the pixels in bytes."""
        return self._all.nbytes

    @cached_property
    def paths(self) -> list[str]:
        """Absolute paths of the image files, in the order in which they were first shared."""
        return [os.fsdecode(name) for name in bytes(self.file["paths"]).split(b"\0")[: len(self)]]

    @cached_property
    def errors(self) -> dict[int, str]:
        """The number of each image that could not be decoded, with the reason. The pixels of these images are zeros."""
        text = bytes(self.file["errors"]) if "errors" in self.file else b"{}"
        try:
            return {int(number): str(reason) for number, reason in json.loads(text).items()}
        except (ValueError, AttributeError) as error:
            raise FormatError(f"the list of undecodable images is damaged: {error}", path=self.file.path) from None

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.file.path

    def warm(self, **options: Unpack[WarmOptions]) -> WarmReport | WarmJob:
        """Read the pixels into memory before they are accessed. See `onecopy.warm` for the options."""
        return self.file.warm(**options)

    def close(self) -> None:
        """Close the file. The mapping is released with its last array. Closing twice has no effect."""
        self._pixels = self._ragged = None  # these references would keep the mapping alive
        self.file.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.file.closed

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.file,)

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.images.Images {self.file.path!r} closed>"
        shape = "of different shapes" if self._ragged is not None else " x ".join(map(str, self._all.shape[1:]))
        return f"<onecopy.images.Images {self.file.path!r} {len(self)} images {shape}, {self.dtype}>"
