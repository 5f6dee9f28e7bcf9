"""`thumbnail`: create a small picture of an image of any size by averaging blocks of pixels from top to bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["thumbnail"]

_BAND = 16 << 20
"""Bytes of float32 values that are averaged at a time."""


def thumbnail(array: NDArray[Any], max_side: int = 1024, *, stretch: bool = True) -> NDArray[Any]:
    """Return a uint8 picture in which each pixel is the mean of a block of the image.

    Parameters
    ----------
    array
        An array or `Image` of shape (y, x) or (y, x, samples) and any numeric dtype. Images with three or four samples
        keep them; other numbers of samples are averaged.
    max_side
        Maximum length of the longer side in pixels.
    stretch
        True: map the range from the 0.1st to the 99.9th percentile to 0 to 255. False: map the range of the dtype (0 to
        1 for floats); uint8 images are not scaled.

    Raises
    ------
    ValueError
        The array has neither two nor three axes, or has no pixels.

    Examples
    --------
    >>> import numpy as np, onecopy as oc
    >>> oc.images.thumbnail(np.arange(16, dtype=np.uint8).reshape(4, 4), max_side=2)
    array([[ 2,  4],
           [10, 12]], dtype=uint8)
    """
    shape: tuple[int, ...] = array.shape
    if len(shape) not in (2, 3) or 0 in shape:
        raise ValueError(f"an image must have the shape (y, x) or (y, x, samples) and at least one pixel, not {shape}")
    if max_side < 1:
        raise ValueError(f"max_side must be at least 1, not {max_side}")
    step = -(-max(shape[:2]) // max_side)
    rows = -(-shape[0] // step)
    columns = np.arange(0, shape[1], step)
    widths = np.diff(np.append(columns, shape[1]))
    small = np.empty((rows, len(columns), *shape[2:]), np.float32)
    at_once = max(1, _BAND // (4 * step * shape[1] * (shape[2] if len(shape) == 3 else 1)))
    for first in range(0, rows, at_once):
        band = np.asarray(array[first * step : (first + at_once) * step])
        starts = np.arange(0, len(band), step)
        sums = np.add.reduceat(np.add.reduceat(band, starts, axis=0, dtype=np.float32), columns, axis=1)
        counts = np.diff(np.append(starts, len(band)))[:, None] * widths
        small[first : first + len(starts)] = sums / (counts if sums.ndim == 2 else counts[..., None])
    if small.ndim == 3 and small.shape[2] not in (3, 4):
        small = small.mean(axis=2)
    return _to_bytes(small, array.dtype, stretch)


def _to_bytes(small: NDArray[Any], dtype: Any, stretch: bool) -> NDArray[Any]:
    """Scale means to the range from 0 to 255."""
    if dtype == np.uint8:
        return small.clip(0, 255).astype(np.uint8)
    if dtype.kind == "b":
        return (small * 255).astype(np.uint8)
    finite = small[np.isfinite(small)]
    if stretch and finite.size:
        low, high = np.percentile(finite, [0.1, 99.9])
    elif dtype.kind in "iu":
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    else:
        low, high = 0.0, 1.0
    scaled = (small - low) * (255 / (high - low) if high > low else 0)
    picture: NDArray[Any] = np.nan_to_num(scaled, nan=0).clip(0, 255).astype(np.uint8)
    return picture
