"""An image as a mapped array: the pixels of an artefact of the store, or of the file in which they lie as in memory."""

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
"""Of the one array in an artefact."""


class About(NamedTuple):
    """What is known of the pixels, beside their bytes."""

    level: int
    levels: tuple[tuple[int, ...], ...]
    axes: str
    codec: str
    in_place: tuple[int, str, tuple[int, ...]] | None = None
    """(offset, dtype, shape) in an image file; None: the array of an artefact says it."""

    @classmethod
    def of_facts(cls, facts: Facts) -> About:
        """Return what a header says."""
        place = None if facts.in_place is None else (*facts.in_place, facts.shape)
        return cls(facts.level, facts.levels, facts.axes, facts.codec, place)

    @classmethod
    def of_file(cls, file: ArrayFile) -> About:
        """Read what `metadata` wrote; of arrays of others, what can be said of any array.

        FormatError where the file has not one array, or its metadata are not what was written.
        """
        if len(file) != 1 and NAME not in file:
            raise FormatError(f"{file.path}: it holds {len(file)} arrays, and none is called {NAME!r}: no image")
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
            raise FormatError(f"{file.path}: what its metadata say of an image is damaged: {error!r}") from None

    def metadata(self, source: str) -> dict[str, str]:
        """Return the texts that stand in an artefact."""
        about = {"level": self.level, "levels": self.levels, "axes": self.axes, "codec": self.codec}
        return {"image": json.dumps(about), "source": source}


class Image(Closeable):
    """A read-only image, whose pixels are pages that all processes of the machine share.

    Made by `open`. It pickles as the path and the identity of the file that is mapped: another process maps the same
    pages. Views of `array` keep the memory, also after `close`. The attributes of the array (``image.shape``) are
    there too, and ``np.asarray(image)`` is the array itself.
    """

    def __init__(
        self, path: str, file: ArrayFile | Mapping, about: About, reason: str, artefact: Artefact | None = None
    ) -> None:
        self.file = file
        """What is mapped: for `onecopy.warm`, `evict`, `pin` and `onecopy.residency`."""
        self.path = path
        """The image file, as given."""
        self.level = about.level
        """Of its pyramid: 0 is the largest."""
        self.levels = about.levels
        """The shape of each level."""
        self.axes = about.axes
        """A letter for each axis: "YX", "YXS" (S: samples of a pixel), "ZYX"."""
        self.codec = about.codec
        """What decoded it, with its versions; empty where nothing did."""
        self.reason = reason
        """Whether it was decoded now, before or not at all: a sentence. Of an image with a palette it says that the
        pixels are the numbers of colours, not colours."""
        self.artefact = artefact
        """The decoded file in the store; None: the file itself is mapped."""
        if about.codec.endswith(PALETTE) and PALETTE not in reason:  # it is there already where it was unpickled
            self.reason += f"; its pixels are {PALETTE}, not colours"
        self._about = about
        self._array: NDArray[Any] | None = None  # numpy comes with the first look

    @property
    def array(self) -> NDArray[Any]:
        """The pixels, read-only, without a copy; ValueError where the image is closed."""
        if self.file.closed:
            raise ValueError(f"{self.path}: the image is closed")
        if self._array is None:
            self._array = _array_of(self.file, self._about)
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """Of the array; of an image that is looked at in its file, with the byte order of the file."""
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels."""
        return self.array.nbytes

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __len__(self) -> int:
        return len(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        array = self.array
        if copy is False and dtype is not None and np.dtype(dtype) != array.dtype:
            raise ValueError(f"elements of {array.dtype} become {np.dtype(dtype)} by a copy only")
        if copy:
            return np.array(array, dtype)
        return array if dtype is None else array.astype(dtype, copy=False)

    def close(self) -> None:
        """Release the mapping; memory goes with the last view. Closing twice is fine."""
        self._array = None  # a view of it keeps the memory, ours would too
        self.file.close()

    @property
    def closed(self) -> bool:
        """True after `close`."""
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
