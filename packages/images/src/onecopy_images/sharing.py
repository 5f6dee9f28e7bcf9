"""`share`: decode the images of a dataset once per machine, into a file that all processes map.

`share` finds the file by its key. If it does not exist, `_build` decodes the images in threads: a `Job` describes how
to decode each image, and a `Layout` its location in the file. If a build is killed, the next one continues it.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from onecopy.arrays.entries import of_numpy
from onecopy.arrays.file import OneFile
from onecopy.arrays.open_mode import OpenMode
from onecopy.base.text import cpu_count, path_text, thread_count
from onecopy.errors import FileChanged
from onecopy.files.identity import contents_of
from onecopy.store import Store, keys, report_progress
from onecopy_images import codecs
from onecopy_images.image import CodecError, Images
from onecopy_images.silenced import silenced

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor
    from pathlib import Path

    from numpy.typing import NDArray

    from onecopy.files.identity import Contents
    from onecopy.store.pieces import PartialFile
    from onecopy_images.codecs import Codec
    from onecopy_images.image import Facts

_SAMPLES = {"L": 1, "RGB": 3, "RGBA": 4}
"""Samples per pixel by colour mode."""


class Form(NamedTuple):
    """The colour mode, size and orientation of images. The form (None, None, False) leaves decoded images unchanged."""

    color: str | None
    """Name of a Pillow mode, or None to keep the image's mode."""
    size: tuple[int, int] | int | None
    """(height, width), or the length of the longer side in pixels, or None to keep the image's size."""
    upright: bool
    """Whether images are rotated according to their EXIF orientation."""

    @classmethod
    def of(cls, color: str | None, size: tuple[int, int] | int | None, upright: bool) -> Form:
        """Return the form for three of the arguments of `onecopy.images.share`. Raise ValueError if one is invalid."""
        if color is not None and color not in _SAMPLES:
            raise ValueError(f"color must be one of {', '.join(map(repr, _SAMPLES))} or None, not {color!r}")
        sides = size if isinstance(size, tuple) else (1, 1) if size is None else (size, size)
        if len(sides) != 2 or not all(isinstance(side, int) and 0 < side < 1 << 16 for side in sides):
            raise ValueError(f"size must be (height, width) or the longer side, each from 1 to 65535, not {size!r}")
        return cls(color, size, upright)

    @property
    def is_original(self) -> bool:
        """Whether decoded images are left unchanged."""
        return self.color is None and self.size is None and not self.upright

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) that an image with this height and width has in this form.

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
        """Return an image's shape and dtype in this form. Raise CodecError if its values do not fit the mode."""
        if self.is_original:
            return facts.shape, facts.dtype
        height, width = self.sides(*facts.shape[:2])
        if self.color is None:
            return (height, width, *facts.shape[2:]), facts.dtype
        if facts.dtype not in ("|u1", "|b1"):
            raise CodecError(
                f"elements of type {facts.dtype} cannot be converted to {self.color!r} without loss: pass color=None",
                CodecError.Kind.UNSUPPORTED,
                path=path,
            )
        samples = _SAMPLES[self.color]
        return (height, width) if samples == 1 else (height, width, samples), "|u1"


_VERSION = "2"
"""Version of the artefacts. It is part of their keys, so changing it causes all datasets to be decoded again."""
_SHOWN = 5
"""Maximum number of damaged images that an error message lists."""


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

    The first process that calls this function decodes the images in threads. Other processes wait and then map the
    file; later runs map it within milliseconds. The file's key consists of the path and identity of every image
    (`onecopy.file_key`), their order, the options, the code of `transform`, and the versions of the decoding libraries.
    If this process is killed, the next call decodes the missing images. ``onecopy store prune`` removes the file.

    Parameters
    ----------
    paths
        Paths of the images, in the order in which to share them, or a pattern such as ``"train/**/*.jpg"``, whose
        matches are sorted.
    size
        None: images keep their sizes. (height, width): all images are resized to this size, whatever their proportions.
        A number: the longer side is resized to this length, and the other side in proportion (rounded, at least 1).
        Images are reduced or enlarged with Pillow's bilinear filter. If a JPEG image is reduced to a quarter or less,
        the decoder first reduces it to 1/2, 1/4 or 1/8, so its pixels differ slightly from a full decode.
    color
        The mode to which Pillow converts images: "RGB" and "RGBA" have three axes, "L" (grey) has two. None: images are
        not converted, and must all have the same dtype and number of axes. If `size` and `upright` are not used either,
        the libraries of `onecopy.images.codecs` decode the images and keep 16-bit samples. Pixels of palette images
        remain indices. Images that Pillow would reduce to 8 bits count as damaged.
    upright
        Whether to rotate and mirror images according to the orientation in their EXIF data, like Pillow's
        ``ImageOps.exif_transpose``; `size` is the size of the upright image. False: pixels are in file order, as
        returned by ``PIL.Image.open``, or for TIFF files by ``tifffile.imread``.
    transform
        A function that takes an array, which it may change, and returns an array with any dtype that array files
        support. It is called in the decoding process's threads. The shape of its result may depend only on the shape of
        its argument; it is called twice for the first image of each shape. The key identifies all of the program's code
        and values that the function uses, as with `onecopy.cached`.
    version
        Any text; it becomes part of the key. Change it after making changes that the key does not detect.
    on_error
        What to do if images are damaged. "raise": decode the others, then raise a CodecError that names the damaged
        images. "skip": set their pixels to zero; `Images.errors` contains the reasons by image number. Both write the
        same file, so a call with "skip" after an error does not decode any image again.
    private
        Whether arrays are writable, on copy-on-write pages, as with `onecopy.open`. ``torch.from_numpy(images[i])``
        then creates a tensor without a copy and without a warning. Written pages become private.
    store
        The store for the file: a `onecopy.Store` or a folder; None: the default folder on disk.
    max_bytes
        Maximum size of a decoded image before it is resized. A larger image counts as damaged. None: as for
        `onecopy.images.open`.
    threads
        Number of decoding threads; None: the number of available CPUs. Each thread keeps one decoded image in memory.
    progress
        Called with (images done, images in total) if this process decodes. Images that an earlier process decoded count
        as done. An exception that it raises stops the decoding.

    Raises
    ------
    OSError
        A file does not exist, is not a regular file, or cannot be read. ENOSPC: there is not enough space for the
        pixels; this is detected before they are decoded.
    CodecError
        Images are damaged, no installed library can read them, or they are larger than `max_bytes`.
    FileChanged
        An image was replaced or modified during decoding.
    ValueError
        There are no images, or their dtypes or numbers of axes differ.
    TypeError
        The transform uses a value without a stable identity; the message names it.
    TimeoutError
        Another process is still decoding after the timeout of the store.

    Exceptions of the transform are passed on, with a note that contains the path of the image.

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
    contents, digest = _identified(named, [_VERSION, repr(form), version, str(max_bytes), *_code(form, transform)])
    key = f"dataset of {len(named)} images, {digest}"

    def build(target: Path) -> None:
        job = Job(named, contents, form, transform, max_bytes, codecs.installed(codecs.PILLOW))
        _build(target, key, job, threads, progress)

    artefact = opened.get_or_build(key, build)
    images = Images(OneFile(str(artefact.path), OpenMode(private=private), artefact.handle))
    images.report = artefact.without_handle()
    if images.errors and on_error == "raise":
        reasons, count = list(images.errors.values()), len(images)
        images.close()
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise CodecError(
            f"{len(reasons)} of {count} images cannot be decoded: {'; '.join(reasons[:_SHOWN])}{more}. The others "
            "were decoded: pass on_error='skip' to use them"
        )
    return images


def _named(paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return the paths as strings. Raise ValueError if there are none."""
    if isinstance(paths, str | os.PathLike):
        from glob import glob

        pattern = path_text(paths)
        if os.path.isdir(pattern):  # noqa: PTH112 - text
            raise ValueError(f"{pattern} is a folder: pass a pattern for the images in it, such as {pattern}/**/*.jpg")
        found = sorted(glob(pattern, recursive=True))  # noqa: PTH207 - an absolute pattern too
        if not found:
            raise ValueError(f"{pattern}: no file matches this pattern")
        return found
    found = [path_text(path) for path in paths]
    if not found:
        raise ValueError("a dataset must contain at least 1 image, not 0")
    return found


def _identified(paths: list[str], words: list[str]) -> tuple[list[Contents], str]:
    """Return the identity of each file's contents, and a digest of these identities, the real paths and `words`."""
    folders: dict[str, str] = {}
    contents: list[Contents] = []
    lines = words
    for path in paths:
        begin = path.rfind("/") + 1
        folder = path[:begin]
        if folder not in folders:  # resolving each path would take most of the time
            folders[folder] = os.path.realpath(folder or ".")
        contents.append(contents_of(path))
        lines.append(f"{folders[folder]}/{path[begin:]}\0{contents[-1].text}")
    return contents, keys.digest_of("\n".join(lines), "the images")


def _code(form: Form, transform: Callable[[NDArray[Any]], NDArray[Any]] | None) -> list[str]:
    """Return text that consists of the versions of the decoding libraries and the identity of the transform."""
    libraries = codecs.LIBRARIES if form.is_original else (codecs.PILLOW,)
    words = [codec.version for codec in map(codecs.installed, libraries) if codec is not None]
    return words if transform is None else [*words, f"by {keys.name_of(transform)}"]


HEAD = 4096
"""Size of the header in bytes. Pixels begin at a multiple of this size."""


class Layout:
    """The locations of a dataset's arrays in its file.

    The arrays are ``offsets`` and ``shapes`` (only if shapes differ), ``paths``, ``pixels``, and ``errors`` if images
    could not be decoded. The header occupies 4096 bytes and is written last, when the length of ``errors`` is known.
    There are no checksums, because pieces are written in any order. All images have the same number of axes.
    """

    def __init__(self, paths: Sequence[str], shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> None:
        self.shapes, self.dtype = shapes, dtype
        sizes = np.array([prod(shape) for shape in shapes], np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.small: dict[str, NDArray[Any]] = {}
        """The arrays that are known before any image is decoded."""
        shape: tuple[int, ...] = (len(shapes), *shapes[0])
        if len(set(shapes)) > 1:
            self.small = {"offsets": offsets.astype("<i8"), "shapes": np.array(shapes, "<i8")}
            shape = (int(offsets[-1]),)
        names = np.frombuffer(b"\0".join(os.fsencode(os.path.abspath(path)) for path in paths), np.uint8)  # noqa: PTH100
        begin = HEAD + sum(array.nbytes for array in self.small.values())
        self.small["paths"] = np.pad(names, (0, -(begin + len(names)) % HEAD))
        self._pixels = of_numpy(dtype), shape, int(offsets[-1]) * dtype.itemsize
        self._begin = begin + self.small["paths"].nbytes
        self._offsets = offsets * dtype.itemsize

    @property
    def size(self) -> int:
        """Size of the file in bytes, without ``errors``."""
        return self._begin + self._pixels[2]

    def place(self, number: int) -> tuple[int, int]:
        """Return the positions of an image's first byte in the file and of the byte after its last."""
        return self._begin + int(self._offsets[number]), self._begin + int(self._offsets[number + 1])

    def finish(self, file: PartialFile, errors: dict[int, str]) -> None:
        """Write all arrays except the pixels, then the header."""
        arrays: dict[str, NDArray[Any] | None] = {**self.small, "pixels": None}
        if errors:
            arrays["errors"] = np.frombuffer(json.dumps(dict(sorted(errors.items()))).encode(), np.uint8)
        own = json.dumps({"version": 1, "kind": "arrays", "schema": {}})
        entries: dict[str, Any] = {"__metadata__": {"format": "pt", "onecopy": own}}
        begin = 0
        for name, array in arrays.items():
            if array is None:
                dtype, shape, nbytes = self._pixels
            else:
                dtype, shape, nbytes = of_numpy(array.dtype), array.shape, array.nbytes
                file.write(HEAD + begin, array.view(np.uint8).data.cast("B"))
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": (begin, begin + nbytes)}
            begin += nbytes
        file.write(0, struct.pack("<Q", HEAD - 8) + json.dumps(entries).encode().ljust(HEAD - 8))


T = TypeVar("T")
U = TypeVar("U")
_AT_ONCE = 8
"""Number of images per thread task; it exceeds 1 because switching threads takes as long as decoding a small image."""
Kind = tuple[tuple[int, ...], "np.dtype[Any]"]
"""The shape and dtype of an image."""
_Work = Callable[..., "Generator[Any]"]
"""Calls a function with each item in the threads of a build, and yields the results; see `_results`."""


class _TransformError(Exception):
    """The transform raised an exception, which is this exception's argument."""


class Decoded(NamedTuple):
    """The pixels of a decoded image."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    bands: Iterable[NDArray[Any]]
    """The pixels from top to bottom, in C order, in one or several arrays. They are read once."""

    @classmethod
    def of(cls, pixels: NDArray[Any]) -> Decoded:
        """Return the pixels in an array."""
        return cls(pixels.shape, pixels.dtype, (pixels,))


class Job(NamedTuple):
    """The arguments of a call of `onecopy.images.share` that determine the pixels."""

    paths: list[str]
    contents: list[Contents]
    """The identity of each file's contents when the key was computed."""
    form: Form
    transform: Callable[[NDArray[Any]], NDArray[Any]] | None
    max_bytes: int | str | None
    pillow: Codec | None
    """Pillow, if it is installed; it decodes all images whose form is not the original one."""

    def kind(self, number: int) -> Kind | CodecError:
        """Return an image's shape and dtype before the transform, from its header, or the error if this fails."""
        path = self.paths[number]

        def one(codec: Codec) -> Kind:
            facts = codecs.facts_of(codec, path, 0)
            codecs.check_size(path, facts, self.max_bytes)
            if self.form.upright:
                from onecopy_images import _pillow

                facts = facts._replace(shape=_pillow.upright_shape(path, facts.shape))
            shape, dtype = self.form.applied(path, facts)
            return shape, np.dtype(dtype)

        try:
            return self._first_that_can(path, one)
        except CodecError as error:
            self._expect_unchanged(number, error)
            return error

    def decode(self, number: int) -> Decoded:
        """Return an image's pixels after the transform. Raise CodecError if the image is damaged."""
        path = self.paths[number]
        try:
            decoded = self._first_that_can(path, lambda codec: self._decoded(codec, path))
        except Exception as error:
            self._expect_unchanged(number, error)
            raise
        self._expect_unchanged(number, None)
        return decoded if self.transform is None else self._transformed(path, decoded)

    def _first_that_can(self, path: str, use: Callable[[Codec], T]) -> T:
        if self.form.is_original:
            return codecs.first_that_can(path, use)
        return use(self.pillow or codecs.pillow(path))

    def _decoded(self, codec: Codec, path: str) -> Decoded:
        if codec.name == "pillow":
            from onecopy_images import _pillow

            with codecs.translated(path, codec):
                shape, dtype, bands = _pillow.decoded(path, self.form)
            return Decoded(shape, np.dtype(dtype), bands)
        facts = codecs.facts_of(codec, path, 0)
        pixels = np.empty(facts.shape, facts.dtype)
        codecs.fill(codec, path, facts, pixels, threads=1)
        return Decoded.of(pixels)

    def _expect_unchanged(self, number: int, cause: Exception | None) -> None:
        path = self.paths[number]
        if not self.contents[number].are_in(path):
            raise codecs.changed(path, "its dataset was being decoded") from cause

    def _transformed(self, path: str, decoded: Decoded) -> Decoded:
        assert self.transform is not None
        pixels = np.concatenate(list(decoded.bands))  # a copy, because the function may write into its argument
        try:
            made = np.asarray(self.transform(pixels))
            made = np.ascontiguousarray(made, made.dtype.newbyteorder("<"))
            if of_numpy(made.dtype) is None:
                raise TypeError(f"array files have no element type for the numpy dtype {made.dtype}")
        except Exception as error:
            error.add_note(f"raised by the transform of {path}")
            raise _TransformError(error) from None
        return Decoded.of(made)


def _build(
    target: Path, key: str, job: Job, threads: int | None, progress: Callable[[int, int], object] | None
) -> None:
    """Decode all images into the file `target`, which appears when it is complete.

    If a build is killed or fails with a system error, the decoded images are kept, and the next build with the same key
    decodes the others. If the transform fails or an image changes, nothing is kept, because the key will never be
    requested again.
    """
    from concurrent.futures import ThreadPoolExecutor  # here, because processes that map the file do not build

    from onecopy.store.pieces import PartialFile

    count = thread_count(threads) or cpu_count()
    try:
        with silenced, ThreadPoolExecutor(count, "onecopy-images") as pool:
            work = partial(_results, pool, 2 * count)
            layout, errors = _planned(job, work)
            file = PartialFile(target, key, layout.size)
            filling = _Build(file, layout, job, errors)
            try:
                filling.reserve()
                filling.decode(work, progress)
                layout.finish(file, errors)
                file.publish()
            except (FileChanged, _TransformError):
                file.remove()
                raise
            finally:
                file.close()
    except _TransformError as error:
        raise error.args[0] from None


def _results(pool: ThreadPoolExecutor, ahead: int, function: Callable[[T], U], items: Sequence[T]) -> Generator[U]:
    """Call a function in threads, and yield the results in the order of the items. An error stops all work.

    `ahead` is the number of tasks that are started before the first result is awaited.
    """

    def several(first: int) -> list[U]:
        return [function(item) for item in items[first : first + _AT_ONCE]]

    pending: deque[Future[list[U]]] = deque()
    try:
        for first in range(0, len(items), _AT_ONCE):
            pending.append(pool.submit(several, first))
            if len(pending) > ahead:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        for future in [future for future in pending if not future.cancel()]:
            future.exception()  # waits: a thread must not write into a closed file


def _planned(job: Job, work: _Work) -> tuple[Layout, dict[int, str]]:
    """Return the layout of the images, and the number of each image that cannot be decoded, with the reason.

    Damaged images get the shape of the first image that can be read.
    """
    kinds: list[Kind | None] = []
    errors: dict[int, str] = {}
    made: dict[Kind, Kind] = {}  # what the transform makes of each kind of image
    for number, kind in enumerate(work(job.kind, range(len(job.paths)))):
        try:
            if isinstance(kind, CodecError):
                raise kind
            if job.transform is not None and kind not in made:
                image = job.decode(number)
                made[kind] = image.shape, image.dtype
            kinds.append(made.get(kind, kind))
        except CodecError as error:
            errors[number] = str(error)
            kinds.append(None)
    first = next((number for number, kind in enumerate(kinds) if kind is not None), None)
    if first is None:
        raise CodecError(f"none of the {len(kinds)} images can be decoded: {errors[0]}")
    expected = kinds[first]
    assert expected is not None
    for number, other in enumerate(kinds):
        if other is not None and (len(other[0]), other[1]) != (len(expected[0]), expected[1]):
            raise ValueError(
                f"the dtypes or numbers of axes differ: {job.paths[first]} has {_as_text(expected)} and "
                f"{job.paths[number]} has {_as_text(other)}: pass color='RGB', or share them separately"
            )
    shapes = [expected[0] if kind is None else kind[0] for kind in kinds]
    return Layout(job.paths, shapes, expected[1]), errors


def _as_text(kind: Kind) -> str:
    return f"{kind[1]} of shape {kind[0]}"


class _Build(NamedTuple):
    """A dataset's file that is being filled."""

    file: PartialFile
    layout: Layout
    job: Job
    errors: dict[int, str]

    def reserve(self) -> None:
        """Reserve the space for the file. Raise OSError if there is not enough space."""
        try:
            self.file.reserve(0, self.file.size)
        except OSError:
            if not self.file.have.size:
                self.file.remove()  # it would occupy space that other files need
            raise

    def decode(self, work: _Work, progress: Callable[[int, int], object] | None) -> None:
        """Decode the images that the file lacks, and add those that cannot be decoded to the errors."""
        total, errors = len(self.job.paths), self.errors
        missing = [
            number
            for number in range(total)
            if number not in errors and not self.file.have.has(*self.layout.place(number))
        ]
        with contextlib.closing(work(self._one, missing)) as results:
            for done, (number, reason) in enumerate(results, start=total - len(missing) + 1):
                if reason is not None:
                    errors[number] = reason
                report_progress(self.layout.place(number)[1])
                if progress is not None:
                    progress(done, total)

    def _one(self, number: int) -> tuple[int, str | None]:
        """Decode one image into the file. Return its number, and the reason if it is damaged."""
        try:
            decoded = self.job.decode(number)
        except CodecError as error:
            return number, str(error)
        found, expected = (decoded.shape, decoded.dtype), (self.layout.shapes[number], self.layout.dtype)
        if found != expected:
            wrong = ValueError(
                f"{self.job.paths[number]}: decoded as {_as_text(found)}, but another image of the same shape as "
                f"{_as_text(expected)}: the shape of a transform's result may depend only on the shape of its argument"
            )
            raise _TransformError(wrong)
        at = self.layout.place(number)[0]
        for band in decoded.bands:
            if band.size:
                self.file.write(at, band.reshape(-1).view(np.uint8).data)
                at += band.nbytes
        return number, None
