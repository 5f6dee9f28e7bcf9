"""`Image`: an image as a mapped array, from an artefact of the store or from an uncompressed image file."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.errors import FormatError
from onecopy.files import Closeable, Mapping
from onecopy.images.facts import PALETTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.images.facts import Facts
    from onecopy.store import Artefact

NAME = "data"
"""Name of the one array in an artefact."""


class About(NamedTuple):
    """Metadata of the pixels: level, axes, codec, and their place in an image file."""

    level: int
    levels: tuple[tuple[int, ...], ...]
    axes: str
    codec: str
    in_place: tuple[int, str, tuple[int, ...]] | None = None
    """(offset, dtype, shape) of pixels in an image file; None for the array of an artefact."""

    @classmethod
    def of_facts(cls, facts: Facts) -> About:
        """Return the metadata of an image with these facts."""
        place = None if facts.in_place is None else (*facts.in_place, facts.shape)
        return cls(facts.level, facts.levels, facts.axes, facts.codec, place)

    @classmethod
    def of_file(cls, file: ArrayFile) -> About:
        """Return the metadata that `metadata` wrote, or defaults for an array file without them.

        FormatError if the file has several arrays and none is called "data", or if the metadata are damaged.
        """
        if len(file) != 1 and NAME not in file:
            raise FormatError(f"{file.path}: not an image: {len(file)} arrays, and none is called {NAME!r}")
        name = NAME if NAME in file else next(iter(file))
        shape = file.entry(name).shape
        axes = ("YX", "YXS")[len(shape) - 2] if len(shape) in (2, 3) else "?" * len(shape)
        text = file.metadata.get("image")
        if text is None:
            return cls(0, (shape,), axes, "")
        try:
            found = json.loads(text)
            levels = tuple(tuple(map(int, one)) for one in found["levels"])
            return cls(int(found["level"]), levels, str(found["axes"]), str(found["codec"]))
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
        self, path: str, file: ArrayFile | Mapping, about: About, reason: str, artefact: Artefact | None = None
    ) -> None:
        self.file = file
        """The mapped file, for `onecopy.warm`, `evict`, `pin` and `residency`."""
        self.path = path
        """Path of the image file, as given."""
        self.level = about.level
        """Level of the image pyramid; 0 is the largest."""
        self.levels = about.levels
        """Shapes of all levels; the first one is the largest."""
        self.axes = about.axes
        """One letter per axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
        self.codec = about.codec
        """The library that decoded the image, with versions; empty if nothing was decoded."""
        self.reason = reason
        """A sentence on where the pixels come from: decoded by this call, decoded before, or mapped from the file.
        For palette images it adds that the pixels are palette indices."""
        self.artefact = artefact
        """The decoded image in the store; None if the image file itself is mapped."""
        if about.codec.endswith(PALETTE) and PALETTE not in reason:  # after unpickling, the reason has it already
            self.reason += f"; its pixels are {PALETTE}, not colours"
        self._about = about
        self._array: NDArray[Any] | None = None  # numpy is imported by the first access

    @property
    def array(self) -> NDArray[Any]:
        """The pixels as a read-only array without a copy; ValueError if the image is closed."""
        if self.file.closed:
            raise ValueError(f"{self.path}: the image is closed")
        if self._array is None:
            self._array = _array_of(self.file, self._about)
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

        array = self.array
        if copy is False and dtype is not None and np.dtype(dtype) != array.dtype:
            raise ValueError(
                f"{self.path}: a conversion from {array.dtype} to {np.dtype(dtype)} needs a copy, and copy is False"
            )
        if copy:
            return np.array(array, dtype)
        return array if dtype is None else array.astype(dtype, copy=False)

    def close(self) -> None:
        """Close the image. The mapping is released with the last view of it. Closing twice has no effect."""
        self._array = None  # this reference would keep the mapping alive
        self.file.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.file.closed

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.file, self._about, self.reason, self.artefact)

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.images.Image {self.path!r} closed>"
        shape = " x ".join(map(str, self.shape))
        return f"<onecopy.images.Image {self.path!r} level {self.level}, {shape} {self.dtype}, {self.reason}>"


def _array_of(file: ArrayFile | Mapping, about: About) -> NDArray[Any]:
    import numpy as np

    if isinstance(file, Mapping):
        assert about.in_place is not None
        _, dtype, shape = about.in_place  # the mapping begins there
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return np.ndarray(shape, dtype, file.view(0, size))
    return file[NAME if NAME in file else next(iter(file))]
