"""`Images`: the decoded images of a dataset, in one mapped file. `onecopy.images.share` returns it."""

from __future__ import annotations

import json
import operator
import os
from typing import TYPE_CHECKING, Any

from onecopy.errors import FormatError
from onecopy.files import Closeable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.page_cache import WarmJob, WarmOptions, WarmReport
    from onecopy.store import Artefact


class Images(Closeable):
    """A read-only sequence of decoded images, whose pixels are mapped pages that all processes share.

    ``images[i]`` is an array of shape (height, width) or (height, width, samples) without a copy. If all images have
    one shape, ``images[2:5]`` and ``images[[7, 1]]`` are arrays with one more axis, the first as a view, the second as
    a copy. Arrays keep the mapping alive after `close`.

    A pickle has the path and the identity of the file, a few hundred bytes: another process (fork, spawn or forkserver)
    maps the same pages. Unpickling raises `onecopy.FileChanged` if the file was replaced or written since.

    Raises
    ------
    FormatError
        The file is not one of a dataset of images.
    """

    report: Artefact | None = None
    """Whether this call decoded the images, the path, and the time; None after unpickling."""

    mapped_by_onecopy = True  # `onecopy.torch.share_dataset` leaves it as it is

    def __init__(self, file: ArrayFile) -> None:
        if "pixels" not in file or "paths" not in file or ("offsets" in file) != ("shapes" in file):
            raise FormatError(f"{file.path}: not a dataset of images: arrays 'pixels' and 'paths' are missing")
        self.file = file
        """The mapped file, for `onecopy.warm`, `evict`, `pin` and `residency`."""
        self._pixels: NDArray[Any] | None = file["pixels"]
        self._ragged = (file["offsets"], file["shapes"]) if "offsets" in file else None
        self._paths: list[str] | None = None
        self._errors: dict[int, str] | None = None
        self._check()

    def _check(self) -> None:
        """Raise FormatError unless the offsets and shapes are those of the pixels."""
        if self._ragged is None:
            return
        offsets, shapes = self._ragged
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
            raise FormatError(f"{self.file.path}: the offsets and shapes of the images do not agree with the pixels")

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
                f"images of different shapes are indexed by one number, not by {index!r}: share them with a size to "
                "index several at once"
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
        """All images as one array of shape (images, height, width[, samples]); ValueError if shapes differ."""
        if self._ragged is not None:
            raise ValueError(f"{self.file.path}: the images have different shapes: share them with a size")
        return self._all

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    @property
    def shapes(self) -> NDArray[Any]:
        """Shapes of the images, as int64 of shape (images, axes)."""
        import numpy as np

        if self._ragged is not None:
            return self._ragged[1]
        count, *shape = self._all.shape
        return np.broadcast_to(np.array(shape, np.int64), (count, len(shape)))

    @property
    def dtype(self) -> Any:
        """Numpy dtype of the pixels."""
        return self._all.dtype

    @property
    def nbytes(self) -> int:
        """Size of the pixels in bytes."""
        return self._all.nbytes

    @property
    def paths(self) -> list[str]:
        """Absolute paths of the image files, in the order in which they were shared first."""
        if self._paths is None:
            names = bytes(self.file["paths"]).split(b"\0")
            self._paths = [os.fsdecode(name) for name in names[: len(self)]]
        return self._paths

    @property
    def errors(self) -> dict[int, str]:
        """The reason by the number of each image that could not be decoded; its pixels are zeros."""
        if self._errors is None:
            text = bytes(self.file["errors"]) if "errors" in self.file else b"{}"
            try:
                self._errors = {int(number): str(reason) for number, reason in json.loads(text).items()}
            except (ValueError, AttributeError) as error:
                raise FormatError(f"{self.file.path}: the list of damaged images is damaged: {error}") from None
        return self._errors

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.file.path

    def warm(self, **options: Unpack[WarmOptions]) -> WarmReport | WarmJob:
        """Read the pixels into memory before they are accessed; options are those of `onecopy.warm`."""
        return self.file.warm(**options)

    def close(self) -> None:
        """Close the file. The mapping is released with the last array of it. Closing twice has no effect."""
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
