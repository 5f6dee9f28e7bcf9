"""`Form`: the colour mode and the size that images of a dataset are converted to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onecopy.images.facts import CodecError

if TYPE_CHECKING:
    from onecopy.images.facts import Facts

_SAMPLES = {"L": 1, "RGB": 3, "RGBA": 4}
"""Samples of a pixel by colour mode."""


class Form(NamedTuple):
    """The colour mode and the size of images; both None: images as they are decoded."""

    color: str | None
    """Name of one of Pillow's modes, or None for that of the image."""
    size: tuple[int, int] | int | None
    """(height, width), or the number of pixels of the longer side, or None for the size of the image."""

    @classmethod
    def of(cls, color: str | None, size: tuple[int, int] | int | None) -> Form:
        """Return the form of two arguments of `onecopy.images.share`; ValueError if one is invalid."""
        if color is not None and color not in _SAMPLES:
            raise ValueError(f"color must be one of {', '.join(map(repr, _SAMPLES))} or None, not {color!r}")
        sides = size if isinstance(size, tuple) else (1, 1) if size is None else (size, size)
        if len(sides) != 2 or not all(isinstance(side, int) and 0 < side < 1 << 16 for side in sides):
            raise ValueError(f"size must be (height, width) or the longer side, each from 1 to 65535, not {size!r}")
        return cls(color, size)

    @property
    def is_original(self) -> bool:
        """Whether images stay as they are decoded."""
        return self.color is None and self.size is None

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) of an image of this height and width.

        Examples
        --------
        >>> Form("RGB", 640).sides(1080, 1920), Form("RGB", (224, 224)).sides(1080, 1920)
        ((360, 640), (224, 224))
        """
        if self.size is None:
            return height, width
        if isinstance(self.size, tuple):
            return self.size
        longer = max(height, width)
        return max(1, round(height * self.size / longer)), max(1, round(width * self.size / longer))

    def applied(self, path: str, facts: Facts) -> tuple[tuple[int, ...], str]:
        """Return shape and dtype of an image in this form; CodecError if its values do not fit into the mode."""
        if self.is_original:
            return facts.shape, facts.dtype
        height, width = self.sides(*facts.shape[:2])
        if self.color is None:
            return (height, width, *facts.shape[2:]), facts.dtype
        if facts.dtype not in ("|u1", "|b1"):
            raise CodecError(
                f"{path}: elements of {facts.dtype} cannot be converted to {self.color!r} without loss: give color=None"
            )
        samples = _SAMPLES[self.color]
        return (height, width) if samples == 1 else (height, width, samples), "|u1"
