"""An image as a mapped array: decoded once per host, or looked at in the file that it lies in."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from onecopy.arguments import non_negative, path_text
from onecopy.arrays.one_file import OneFile
from onecopy.errors import FileChanged
from onecopy.files import Mapping
from onecopy.images import codecs
from onecopy.images.facts import no_level
from onecopy.images.image import NAME, About, Image
from onecopy.store import Store, file_key, report_progress

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from onecopy.files import Identity
    from onecopy.images.codecs import Codec
    from onecopy.images.facts import Facts
    from onecopy.scratch_arrays import HeapArray, Scratch
    from onecopy.store import Artefact

__all__ = ["decode", "open"]

_VERSION = "1"
"""Of what is written: another one decodes every image anew."""
_OURS = (".oc", ".safetensors")


def open(
    path: str | os.PathLike[str],
    level: int = 0,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    max_bytes: int | str | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Image:
    """Open an image as an array that all processes share; the first that asks decodes it, into the store.

    An uncompressed TIFF is mapped where it lies. Everything else is decoded once per host by the best library that is
    installed (see `onecopy.images.codecs`), straight into a file of the store, whose key is the identity of the image
    file, the level, and the versions of the library. Nobody sees it before it is whole: whatever is killed meanwhile,
    one that waits takes over, and nothing is left. It goes with ``onecopy store prune``.

    Parameters
    ----------
    path
        An image file. An artefact of this function, or another file of onecopy with one array, will do as well.
    level
        Of a pyramid: 0 is the largest.
    store
        Where decoded images are kept: a `onecopy.Store` or a folder; None: the default folder on disk.
    max_bytes
        Of the decoded level; more is an error, before anything is reserved. A size such as "20 GB", or a number. None:
        4 GiB, or a thousand times the file where that is more, which no honest file exceeds.
    threads
        Of the library that decodes; None: the processors of this process, 4 at most.
    progress
        Called with (bytes done, bytes in total) where this process decodes; raising in it stops the work.

    Raises
    ------
    OSError
        There is no such file; ENOSPC: there is no room for what is decoded, known before it begins.
    CodecError
        No installed library can read it, or its bytes are damaged, or it claims to be larger than `max_bytes`.
    FileChanged
        It was replaced or written while it was being decoded.
    ValueError
        It has no such level.
    TimeoutError
        Another process decodes still.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, tifffile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> tifffile.imwrite(folder / "cells.tif", np.full((300, 200), 7, np.uint16), compression="zlib")
    >>> image = oc.images.open(folder / "cells.tif", store=folder / "store")
    >>> image.array[0, :3], image.artefact.built
    (array([7, 7, 7], dtype=uint16), True)
    >>> oc.images.open(folder / "cells.tif", store=folder / "store").artefact.built
    False
    """
    text, level = path_text(path), non_negative("level", level)
    if text.endswith(_OURS):
        return _of_file(text, level)
    opened = Store.of(store).with_options(durable=False)
    for codec in codecs.each_for(text):
        if (found := opened.find(_key(text, level, codec))) is not None:
            return _of_artefact(text, found)

    def one(codec: Codec) -> Image:
        before = codecs.identity_of(text)
        facts = codecs.facts_of(codec, text, level)
        if facts.in_place is not None:
            return _in_place(text, facts, before)
        codecs.check_size(text, facts, max_bytes)
        key = _key(text, level, codec)
        builds_in = opened if codec.in_child and progress is None else opened.with_options(where="here")

        def build(target: Path) -> None:
            _build(target, text, codec, facts, key, threads, progress)

        return _of_artefact(text, builds_in.get_or_build(key, build, source=text))

    return codecs.first_that_can(text, one)


def decode(
    path: str | os.PathLike[str],
    level: int = 0,
    *,
    folder: str | os.PathLike[str] | None = None,
    max_bytes: int | str | None = None,
    max_resident: int | str | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Scratch:
    """Decode an image into a nameless file on disk: pixels of this process that may be written, and cost no heap.

    For pixels that are to be changed, and for more of them than there is memory; `open` is for those that are looked
    at, by more than one process. Into an array of your own it is `onecopy.images.codecs.decode`.

    Parameters
    ----------
    path, level, max_bytes, threads, progress
        As for `open`.
    folder, max_resident
        As for `onecopy.scratch`: where the file is, and how much of it may be in memory.

    Raises
    ------
    OSError
        There is no such file; ENOSPC: there is no room for what is decoded, known before it begins.
    CodecError, FileChanged, ValueError
        As for `open`.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, tifffile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "cells.tif")
    >>> tifffile.imwrite(path, np.full((300, 200), 7, np.uint16), compression="zlib")
    >>> with oc.images.decode(path) as pixels:
    ...     pixels.array[0] = 1
    ...     int(pixels.array.sum())
    418800
    """
    from onecopy.scratch_arrays import scratch

    text, level = path_text(path), non_negative("level", level)

    def one(codec: Codec) -> Scratch:
        facts = codecs.facts_of(codec, text, level)
        codecs.check_size(text, facts, max_bytes)
        pixels = scratch(facts.shape, facts.dtype, dir=folder, max_resident=max_resident)
        try:
            codecs.fill(codec, text, facts, pixels.array, threads=threads, progress=progress)
        except BaseException:
            pixels.close()
            raise
        return pixels

    return codecs.first_that_can(text, one)


def _key(path: str, level: int, codec: Codec) -> str:
    return file_key(path, f"{_VERSION} of level {level} by {codec.version}")


def _build(
    target: Path,
    path: str,
    codec: Codec,
    facts: Facts,
    key: str,
    threads: int | None,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Decode into the file that the artefact becomes; nothing is copied, and nothing is left where it fails."""

    def say(done: int, total: int) -> None:
        report_progress(done)
        if progress is not None:
            progress(done, total)

    metadata = About.of_facts(facts).metadata(path)
    with _reserved(facts, target) as pixels:
        codecs.fill(codec, path, facts, pixels.array, threads=threads, progress=say)
        if _key(path, facts.level, codec) != key:  # else what it is now would be found for what it was
            raise FileChanged(errno.ESTALE, "the image was replaced or written while it was being decoded", path)
        pixels.save(target, NAME, metadata, durable=False)


def _reserved(facts: Facts, target: Path) -> Scratch | HeapArray:
    """Return memory to decode into: of the file to be, or of the heap where that cannot be reserved."""
    from onecopy.scratch_arrays import alloc, scratch  # who attaches needs neither

    try:
        return scratch(facts.shape, facts.dtype, dir=target.parent, anywhere=True)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return alloc(facts.shape, facts.dtype, heap_below=2 * facts.nbytes + 1)


def _of_artefact(path: str, artefact: Artefact) -> Image:
    file = OneFile(artefact.path, handle=artefact.handle)
    try:
        return Image(path, file, About.of_file(file), artefact.reason, artefact.without_handle())
    except BaseException:
        file.close()
        raise


def _of_file(path: str, level: int) -> Image:
    file = OneFile(path)
    try:
        about = About.of_file(file)
        if level != about.level:
            raise (
                no_level(path, level, 1)
                if not about.level
                else ValueError(f"{path}: it holds level {about.level}, not {level}")
            )
        return Image(path, file, about, "mapped: it is a file of arrays")
    except BaseException:
        file.close()
        raise


def _in_place(path: str, facts: Facts, expected: Identity) -> Image:
    assert facts.in_place is not None
    mapping = Mapping(path, facts.in_place.offset, facts.nbytes)
    if mapping.identity != expected:
        mapping.close()
        raise FileChanged(errno.ESTALE, "the image was replaced or written while it was being opened", path)
    reason = f"mapped in the file itself, at byte {facts.in_place.offset}: its pixels lie there as in memory"
    return Image(path, mapping, About.of_facts(facts), reason)
