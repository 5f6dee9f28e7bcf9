"""`open` maps an image that is decoded once per machine; `decode` decodes an image into a scratch file."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from onecopy.arrays.file import OneFile
from onecopy.base.text import non_negative
from onecopy.files.mapping import Mapping
from onecopy.store import Store, file_key, report_progress
from onecopy.store.location import resolve
from onecopy_images import codecs
from onecopy_images.image import NAME, Facts, Image, no_level

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from onecopy.arrays.scratch import Scratch
    from onecopy.files.identity import FileIdentity
    from onecopy.store import Artefact
    from onecopy_images.codecs import Codec

_VERSION = "2"
"""Version of the artefacts. It is part of their keys, so changing it causes all images to be decoded again."""
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
    """Open an image as an array that all processes share. The first process decodes it into the store.

    An uncompressed TIFF is mapped directly. Other images are decoded once per machine by the first installed library
    that can read them (see `onecopy.images.codecs`), directly into a file in the store. Its key consists of the image
    file's identity, the level, and the library's versions. The file appears only when it is complete. If the decoding
    process is killed, a waiting process decodes the image. ``onecopy store prune`` removes decoded images.

    Parameters
    ----------
    path
        An image file, an artefact of this function, or another array file (``.oc``, ``.safetensors``) with one array.
    level
        Level of an image pyramid; 0 is the largest.
    store
        The store for the decoded images: a `onecopy.Store` or a folder; None: the default folder on disk.
    max_bytes
        Maximum size of the decoded level, in bytes or as text such as "20 GB". A larger image raises an error before
        any space is reserved. None: 256 MiB, or 1400 times the file's size, whichever is larger.
    threads
        Number of threads that the decoding library uses; None: the number of CPUs available to this process, at most 4.
    progress
        Called with (bytes done, bytes in total) if this process decodes. Decoding stops if it raises an exception.

    Raises
    ------
    OSError
        The file does not exist. ENOSPC: there is not enough space for the decoded image; this is detected in advance.
    CodecError
        No installed library can read the image, its bytes are damaged, or it is larger than `max_bytes`.
    FileChanged
        The file was replaced or modified during decoding.
    ValueError
        The image does not have this level.
    TimeoutError
        Another process is still decoding after the timeout of the store.

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
    text, level = resolve(path)[0], non_negative("level", level)
    if text.endswith(_OURS):
        image = _of_file(text, OneFile(text), "mapped, because it is an array file")
        if level == image.level:
            return image
        image.close()
        if image.level == 0:
            raise no_level(text, level, 1)
        raise ValueError(f"{text}: there is no level {level}: the file contains only level {image.level}")
    opened = Store.of(store).with_options(durable=False)
    if progress is not None:  # calls in a child process would be lost
        opened = opened.with_options(where="here")
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

        def build(target: Path) -> None:
            _build(target, text, codec, facts, key, threads, progress)

        return _of_artefact(text, opened.get_or_build(key, build, source=text))

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
    """Decode an image into an unnamed scratch file on disk, whose writable pixels do not occupy the process's heap.

    Use this function to modify pixels, or for images that are larger than memory. For images that several processes
    read, use `open`. `onecopy.images.codecs.decode` decodes into an existing array.

    Parameters
    ----------
    path, level, max_bytes, threads, progress
        As for `open`.
    folder, max_resident
        The folder of the file, and the maximum number of its bytes in memory; see `onecopy.scratch`.

    Raises
    ------
    OSError
        The file does not exist. ENOSPC: there is not enough space for the decoded image; this is detected in advance.
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
    from onecopy.arrays.scratch import scratch

    text, level = resolve(path)[0], non_negative("level", level)

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
    """Decode directly into the file that becomes the artefact. If an error occurs, no file is left behind."""

    def report(done: int, total: int) -> None:
        report_progress(done)
        if progress is not None:
            progress(done, total)

    with _reserved(facts, target) as pixels:
        codecs.fill(codec, path, facts, pixels.array, threads=threads, progress=report)
        if _key(path, facts.level, codec) != key:  # the key would lead to pixels of another file
            raise codecs.changed(path, "it was being decoded")
        pixels.save(target, NAME, facts.metadata(path), durable=False)


def _reserved(facts: Facts, target: Path) -> Scratch:
    """Return memory for the pixels: in a scratch file, or on the heap if the file system cannot reserve space."""
    from onecopy.arrays.scratch import alloc, scratch  # opening a decoded image needs neither

    try:
        return scratch(facts.shape, facts.dtype, dir=target.parent, anywhere=True)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return alloc(facts.shape, facts.dtype, heap_below=2 * facts.nbytes + 1)


def _of_artefact(path: str, artefact: Artefact) -> Image:
    file = OneFile(str(artefact.path), None, artefact.handle)
    return _of_file(path, file, artefact.reason, artefact.without_handle())


def _of_file(path: str, file: OneFile, reason: str, artefact: Artefact | None = None) -> Image:
    """Return the image in an array file. Close the file if an error occurs."""
    try:
        return Image(path, file, Facts.of_file(file), reason, artefact)
    except BaseException:
        file.close()
        raise


def _in_place(path: str, facts: Facts, expected: FileIdentity) -> Image:
    assert facts.in_place is not None
    mapping = Mapping(path, facts.in_place.offset, facts.nbytes)
    if mapping.identity != expected[:4] or codecs.identity_of(path) != expected:
        mapping.close()
        raise codecs.changed(path, "it was being opened")
    reason = f"mapped from the image file, whose uncompressed pixels begin at byte {facts.in_place.offset}"
    return Image(path, mapping, facts, reason)
