"""Decoding of the images of a dataset by threads, into a file that a later build continues after a kill."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from onecopy.arguments import cpu_count, thread_count
from onecopy.arrays.entries import of_numpy
from onecopy.errors import FileChanged
from onecopy.images import codecs
from onecopy.images.facts import CodecError
from onecopy.remote.pieces import PartialFile
from onecopy.store import report_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from numpy.typing import NDArray

    from onecopy.identity import FileIdentity
    from onecopy.images.codecs import Codec
    from onecopy.images.sharing import Form


HEAD = 4096
"""Bytes of the header; pixels begin at a multiple of it."""


class Layout:
    """Where the arrays of a dataset are in its file.

    They are ``offsets`` and ``shapes`` (only if shapes differ), ``paths``, ``pixels``, and ``errors`` if images could
    not be decoded. The header takes 4096 bytes and is written last, because the length of ``errors`` is known last.
    There are no checksums: the pieces of the file are written in any order.

    Parameters
    ----------
    paths
        Paths of the images.
    shapes
        Shapes of the images, with one number of axes.
    dtype
        Element type of the pixels.
    """

    def __init__(self, paths: Sequence[str], shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> None:
        sizes = np.array([prod(shape) for shape in shapes], np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.small: dict[str, NDArray[Any]] = {}
        """The arrays that are known before an image is decoded."""
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
        """Return the first byte of an image in the file, and the byte after its last one."""
        return self._begin + int(self._offsets[number]), self._begin + int(self._offsets[number + 1])

    def places(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the arrays of `small`, each with its first byte in the file."""
        begin = HEAD
        for array in self.small.values():
            yield begin, array
            begin += array.nbytes

    def header(self, errors: int) -> bytes:
        """Return the header of the file, with `errors` bytes of ``errors``."""
        arrays = [(name, of_numpy(array.dtype), array.shape, array.nbytes) for name, array in self.small.items()]
        arrays += [("pixels", *self._pixels)] + ([("errors", "U8", (errors,), errors)] if errors else [])
        own = json.dumps({"version": 1, "kind": "arrays", "schema": {}})
        entries: dict[str, Any] = {"__metadata__": {"format": "pt", "onecopy": own}}
        begin = 0
        for name, dtype, shape, nbytes in arrays:
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": (begin, begin + nbytes)}
            begin += nbytes
        return struct.pack("<Q", HEAD - 8) + json.dumps(entries).encode().ljust(HEAD - 8)


T = TypeVar("T")
U = TypeVar("U")
_AT_ONCE = 8
"""Images in one task of a thread: switching between threads takes as long as decoding a small image."""
Kind = tuple[tuple[int, ...], "np.dtype[Any]"]
"""Shape and dtype of an image."""


class _TransformError(Exception):
    """The transform raised an exception."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error
        """The exception."""


class Job(NamedTuple):
    """The arguments of one call of `onecopy.images.share` that determine the pixels."""

    paths: list[str]
    identities: list[FileIdentity]
    """Identity of each file when it was part of the key."""
    form: Form
    transform: Callable[[NDArray[Any]], NDArray[Any]] | None
    max_bytes: int | str | None

    def kind(self, number: int) -> Kind | CodecError:
        """Return the shape and dtype that an image has before the transform, from its header, or why it has none."""
        path = self.paths[number]

        def one(codec: Codec) -> Kind:
            facts = codecs.facts_of(codec, path, 0)
            codecs.check_size(path, facts, self.max_bytes)
            if self.form.upright:
                from onecopy.images import _pillow

                facts = facts._replace(shape=_pillow.upright_shape(path, facts.shape))
            shape, dtype = self.form.applied(path, facts)
            return shape, np.dtype(dtype)

        try:
            return self._first_that_can(path, one)
        except CodecError as error:
            self._expect_unchanged(number, error)
            return error

    def decode(self, number: int) -> NDArray[Any]:
        """Return the pixels of an image after the transform; CodecError if it is damaged."""
        path = self.paths[number]
        try:
            pixels = self._first_that_can(path, lambda codec: self._decoded(codec, path))
        except Exception as error:
            self._expect_unchanged(number, error)
            raise
        self._expect_unchanged(number, None)
        return pixels if self.transform is None else self._transformed(path, pixels)

    def _first_that_can(self, path: str, use: Callable[[Codec], T]) -> T:
        return codecs.first_that_can(path, use) if self.form.is_original else use(codecs.pillow(path))

    def _decoded(self, codec: Codec, path: str) -> NDArray[Any]:
        if codec.name == "pillow":
            from onecopy.images import _pillow

            with codecs.translated(path, codec):
                return _pillow.decoded(path, self.form)
        facts = codecs.facts_of(codec, path, 0)
        pixels = np.empty(facts.shape, facts.dtype)
        codecs.fill(codec, path, facts, pixels, threads=1)
        return pixels

    def _expect_unchanged(self, number: int, cause: Exception | None) -> None:
        path = self.paths[number]
        if codecs.identity_of(path) != self.identities[number]:
            text = "the image was replaced or written while its dataset was being decoded"
            raise FileChanged(errno.ESTALE, text, path) from cause

    def _transformed(self, path: str, pixels: NDArray[Any]) -> NDArray[Any]:
        assert self.transform is not None
        try:
            made = np.ascontiguousarray(self.transform(pixels.copy()))  # a function may write into its argument
            made = made.astype(made.dtype.newbyteorder("<"), copy=False)
            if of_numpy(made.dtype) is None:
                raise TypeError(f"array files have no element type for the numpy dtype {made.dtype}")
        except Exception as error:
            error.add_note(f"raised by the transform of {path}")
            raise _TransformError(error) from None
        return made


class _Plan(NamedTuple):
    """What is known before the images are decoded."""

    shapes: list[tuple[int, ...]]
    dtype: np.dtype[Any]
    errors: dict[int, str]
    """The reason by the number of each image that cannot be decoded."""


def build(target: Path, key: str, job: Job, threads: int | None, progress: Callable[[int, int], object] | None) -> None:
    """Decode all images into the file at `target`, which appears when it is complete.

    A build that is killed, or ends with an error of the system, leaves the images that it has decoded; the next build
    of the key decodes the others. After an error of the transform, or a change of an image, nothing is left, because
    the key is never requested again.
    """
    count = thread_count(threads) or cpu_count()
    try:
        with _no_size_warnings(), ThreadPoolExecutor(count, "onecopy-images") as pool:
            work = _Work(pool, 2 * count)
            plan = _planned(job, work)
            layout = Layout(job.paths, plan.shapes, plan.dtype)
            partial = PartialFile(target, key, layout.size)
            filling = _Build(partial, layout, plan, job)
            try:
                filling.reserve()
                filling.decode(work, progress)
                filling.finish()
                partial.publish(target)
            except (FileChanged, _TransformError):
                partial.remove()
                raise
            finally:
                partial.close()
    except _TransformError as error:
        raise error.error from None


@contextlib.contextmanager
def _no_size_warnings() -> Iterator[None]:
    """Ignore Pillow's warning of large images, which `max_bytes` limits, in all threads: filters are process-wide."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Image size .* could be decompression bomb")
        yield


class _Work(NamedTuple):
    """Threads that apply a function to many items."""

    pool: ThreadPoolExecutor
    ahead: int
    """Number of tasks that are in work or done before the result of the first of them is taken."""

    def results(self, function: Callable[[T], U], items: Sequence[T]) -> Generator[U]:
        """Yield the results in the order of the items; an error ends it when no item is in work."""

        def several(first: int) -> list[U]:
            return [function(item) for item in items[first : first + _AT_ONCE]]

        pending: deque[Future[list[U]]] = deque()
        try:
            for first in range(0, len(items), _AT_ONCE):
                pending.append(self.pool.submit(several, first))
                if len(pending) > self.ahead:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            wait([future for future in pending if not future.cancel()])  # else they write into a closed file


def _planned(job: Job, work: _Work) -> _Plan:
    """Return shapes and dtype of all images; damaged ones have the shape of the first one that can be read."""
    kinds: list[Kind | None] = []
    errors: dict[int, str] = {}
    made: dict[Kind, Kind] = {}  # by the transform, from images of one kind
    for number, kind in enumerate(work.results(job.kind, range(len(job.paths)))):
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
                f"images must have one dtype and number of axes, but {job.paths[first]} has {_as_text(expected)} and "
                f"{job.paths[number]} has {_as_text(other)}: give color='RGB', or share them apart"
            )
    return _Plan([expected[0] if kind is None else kind[0] for kind in kinds], expected[1], errors)


def _as_text(kind: Kind) -> str:
    return f"{kind[1]} of shape {kind[0]}"


class _Build(NamedTuple):
    """A file that is being filled."""

    partial: PartialFile
    layout: Layout
    plan: _Plan
    job: Job

    def reserve(self) -> None:
        """Reserve the space of the file; OSError if there is not enough."""
        try:
            self.partial.reserve(0, self.partial.size)
        except OSError:
            if not self.partial.have.size:
                self.partial.remove()  # what was reserved would take the space that is missing
            raise

    def decode(self, work: _Work, progress: Callable[[int, int], object] | None) -> None:
        """Decode the images that the file does not have, and add those that cannot be decoded to the errors."""
        total, errors = len(self.job.paths), self.plan.errors
        missing = [
            number
            for number in range(total)
            if number not in errors and not self.partial.has(*self.layout.place(number))
        ]
        with contextlib.closing(work.results(self._one, missing)) as results:
            for done, (number, reason) in enumerate(results, start=total - len(missing) + 1):
                if reason is not None:
                    errors[number] = reason
                report_progress(self.layout.place(number)[1])
                if progress is not None:
                    progress(done, total)

    def _one(self, number: int) -> tuple[int, str | None]:
        """Decode one image into the file; return its number, and the reason if it is damaged."""
        try:
            pixels = self.job.decode(number)
        except CodecError as error:
            return number, str(error)
        found, expected = (pixels.shape, pixels.dtype), (self.plan.shapes[number], self.plan.dtype)
        if found != expected:
            wrong = ValueError(
                f"{self.job.paths[number]}: decoded as {_as_text(found)}, but another image of its shape as "
                f"{_as_text(expected)}: the shape of what a transform makes may depend only on that of its argument"
            )
            raise _TransformError(wrong)
        if pixels.size:
            self.partial.write(self.layout.place(number)[0], pixels.reshape(-1).view(np.uint8).data)
        return number, None

    def finish(self) -> None:
        """Write the other arrays, then the header."""
        for begin, array in self.layout.places():
            self.partial.write(begin, array.view(np.uint8).data.cast("B"))
        errors = json.dumps(dict(sorted(self.plan.errors.items()))).encode() if self.plan.errors else b""
        if errors:
            self.partial.write(self.layout.size, errors)
        self.partial.write(0, self.layout.header(len(errors)))
