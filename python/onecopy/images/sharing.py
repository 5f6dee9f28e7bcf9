"""`share`: the images of a dataset, decoded once per machine into one file that all processes map."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from onecopy.arguments import path_text
from onecopy.arrays.file import OneFile
from onecopy.identity import settled_identity
from onecopy.images.codecs import LIBRARIES, PILLOW, installed
from onecopy.images.dataset import Images
from onecopy.images.facts import CodecError
from onecopy.store import Store, keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from onecopy.identity import FileIdentity
    from onecopy.images.facts import Facts

_SAMPLES = {"L": 1, "RGB": 3, "RGBA": 4}
"""Samples of a pixel by colour mode."""


class Form(NamedTuple):
    """The colour mode, size and orientation of images; None, None and False: images as they are decoded."""

    color: str | None
    """Name of one of Pillow's modes, or None for that of the image."""
    size: tuple[int, int] | int | None
    """(height, width), or the number of pixels of the longer side, or None for the size of the image."""
    upright: bool
    """Whether images are turned as their EXIF orientation says."""

    @classmethod
    def of(cls, color: str | None, size: tuple[int, int] | int | None, upright: bool) -> Form:
        """Return the form of three arguments of `onecopy.images.share`; ValueError if one is invalid."""
        if color is not None and color not in _SAMPLES:
            raise ValueError(f"color must be one of {', '.join(map(repr, _SAMPLES))} or None, not {color!r}")
        sides = size if isinstance(size, tuple) else (1, 1) if size is None else (size, size)
        if len(sides) != 2 or not all(isinstance(side, int) and 0 < side < 1 << 16 for side in sides):
            raise ValueError(f"size must be (height, width) or the longer side, each from 1 to 65535, not {size!r}")
        return cls(color, size, upright)

    @property
    def is_original(self) -> bool:
        """Whether images stay as they are decoded."""
        return self.color is None and self.size is None and not self.upright

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) of an image of this height and width.

        Examples
        --------
        >>> Form("RGB", 640, False).sides(1080, 1920), Form("RGB", (224, 224), False).sides(1080, 1920)
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


_VERSION = "1"
"""Version of the artefacts, part of their keys: with a new version all datasets are decoded again."""
_SHOWN = 5
"""Number of damaged images in an error message."""


def share(
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    size: tuple[int, int] | int | None = None,
    color: Literal["RGB", "RGBA", "L"] | None = "RGB",
    upright: bool = False,
    transform: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    version: str = "",
    on_error: Literal["raise", "skip"] = "raise",
    private: bool = False,
    store: Store | str | os.PathLike[str] | None = None,
    max_bytes: int | str | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Images:
    """Decode the images of a dataset once per machine, into one file that all processes map.

    The first process that calls it decodes, in threads; the others wait, and they and all later runs map the file
    within milliseconds. The key of the file has path and identity of every image (`onecopy.file_key`), their order, the
    options, what `transform` reaches, and the versions of the decoding libraries. If the decoding process is
    killed, the next call decodes the images that are missing. ``onecopy store prune`` removes the file.

    Parameters
    ----------
    paths
        Paths of the images, in the order of the result; or a pattern such as ``"train/**/*.jpg"``, whose matches are
        sorted.
    size
        None: images keep their sizes. (height, width): all images are resized to it, whatever their proportions.
        A number: the longer side is resized to it, and the other one in proportion (rounded, at least 1). Images are
        reduced or enlarged by Pillow's bilinear filter. A JPEG that is reduced to a quarter or less is decoded at 1/2,
        1/4 or 1/8 of its size first, so that pixels differ a little from those of a whole decode.
    color
        The mode that Pillow converts images to: "RGB" and "RGBA" have three axes, "L" (grey) has two. None: each image
        as it is decoded, which must be of one dtype and number of axes for all; without `size` and `upright` by the
        libraries of `onecopy.images.codecs`, 16-bit TIFF files included. Palettes then stay indices.
    upright
        Whether images are turned or mirrored as the orientation in their EXIF data says, as ``ImageOps.exif_transpose``
        of Pillow does; `size` is that of the upright image. False: pixels are in the order of the file, as those of
        ``PIL.Image.open``.
    transform
        A function from an array, which it may change, to an array with any dtype of array files. It is called in
        threads of the process that decodes. The shape of its result may depend only on the shape of its argument; it is
        called twice for the first image of each shape. Its code, defaults and closed-over values are part of the key,
        but functions that it calls are not: change `version` with them.
    version
        Any text that is part of the key.
    on_error
        What happens if images are damaged. "raise": after the others are decoded, CodecError, which names them.
        "skip": their pixels are zeros, and `Images.errors` has the reasons by number. Both make the same file, so that
        a call with "skip" after an error decodes nothing again.
    private
        Whether arrays are writable, on copy-on-write pages, as with `onecopy.open`: ``torch.from_numpy(images[i])``
        then makes a tensor without a copy and without a warning. Pages that are written become private.
    store
        Where the file is kept: a `onecopy.Store` or a folder; None: the default folder on disk.
    max_bytes
        Maximum size of one decoded image, before it is resized; a larger one counts as damaged. None: as for
        `onecopy.images.open`.
    threads
        Number of threads that decode; None: the CPUs of this process. Each holds one decoded image in memory.
    progress
        Called with (images done, images in total) if this process decodes; images that an earlier process decoded
        count as done. An exception from it stops the decoding.

    Raises
    ------
    OSError
        A file does not exist, is not a regular file, or cannot be read. ENOSPC: no space for the pixels, found before
        they are decoded.
    CodecError
        Images are damaged, no installed library can read them, or they are larger than `max_bytes`.
    FileChanged
        An image was replaced or written during the decoding.
    ValueError
        There are no images, or their dtypes or numbers of axes differ.
    TypeError
        The transform reaches a value without a stable identity; the message names it.
    TimeoutError
        Another process is still decoding when the timeout of the store has passed.

    Exceptions of the transform are passed on, with a note that has the path of the image.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> from PIL import Image
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for number in range(3):
    ...     Image.fromarray(np.full((60, 80, 3), number, np.uint8)).save(folder / f"{number}.png")
    >>> images = oc.images.share(folder.glob("*.png"), size=(30, 40), store=folder / "store")
    >>> len(images), images[2].shape, images.report.built
    (3, (30, 40, 3), True)
    >>> oc.images.share(folder.glob("*.png"), size=(30, 40), store=folder / "store").report.built
    False
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    form, named = Form.of(color, size, upright), _named(paths)
    opened = Store.of(store).with_options(durable=False)
    if progress is not None:
        opened = opened.with_options(where="here")
    identities, digest = _identified(named, [_VERSION, repr(form), version, str(max_bytes), *_code(form, transform)])
    key = f"dataset of {len(named)} images, {digest}"

    def build(target: Path) -> None:
        from onecopy.images import _decoding

        job = _decoding.Job(named, identities, form, transform, max_bytes)
        _decoding.build(target, key, job, threads, progress)

    artefact = opened.get_or_build(key, build)
    images = Images(OneFile(artefact.path, private=private, handle=artefact.handle))
    images.report = artefact.without_handle()
    if images.errors and on_error == "raise":
        reasons, count = list(images.errors.values()), len(images)
        images.close()
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise CodecError(
            f"{len(reasons)} of {count} images cannot be decoded: {'; '.join(reasons[:_SHOWN])}{more}: the others are "
            "decoded: give on_error='skip' to use them"
        )
    return images


def _named(paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return the paths as text; ValueError if there are none."""
    if isinstance(paths, str | os.PathLike):
        from glob import glob

        pattern = path_text(paths)
        if os.path.isdir(pattern):  # noqa: PTH112 - text
            raise ValueError(f"{pattern}: a folder: give a pattern of images in it, such as {pattern}/**/*.jpg")
        found = sorted(glob(pattern, recursive=True))  # noqa: PTH207 - an absolute pattern too
        if not found:
            raise ValueError(f"{pattern}: no file matches this pattern")
        return found
    found = [path_text(path) for path in paths]
    if not found:
        raise ValueError("a dataset needs 1 image or more, not 0")
    return found


def _identified(paths: list[str], words: list[str]) -> tuple[list[FileIdentity], str]:
    """Return the identity of each file, and a digest of all of them, their real paths, and words."""
    folders: dict[str, str] = {}
    identities: list[FileIdentity] = []
    lines = words
    for path in paths:
        identity, _ = settled_identity(path)
        begin = path.rfind("/") + 1
        folder = path[:begin]
        if folder not in folders:  # resolving each path would take most of the time
            folders[folder] = os.path.realpath(folder or ".")
        identities.append(identity)
        lines.append(f"{folders[folder]}/{path[begin:]}\0{' '.join(map(str, identity))}")
    return identities, keys.digest_of("\n".join(lines), "the images")


def _code(form: Form, transform: Callable[[NDArray[Any]], NDArray[Any]] | None) -> list[str]:
    """Return the versions of the libraries that decode, and the identity of the transform."""
    libraries = LIBRARIES if form.is_original else (PILLOW,)
    words = [codec.version for codec in map(installed, libraries) if codec is not None]
    return words if transform is None else [*words, f"by {keys.name_of(transform)}"]
