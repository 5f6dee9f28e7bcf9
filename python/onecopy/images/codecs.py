"""Which installed library reads an image file, what it says of it without decoding, and its pixels into given memory.

    facts = oc.images.codecs.look("slide.ndpi", level=1)    # a header is read, no pixel
    pixels = np.empty(facts.shape, facts.dtype)
    oc.images.codecs.decode("slide.ndpi", pixels, level=1)  # or into any array: mapped, shared, part of another

The libraries are asked in this order: tifffile (with imagecodecs) for whatever begins like a TIFF file, NDPI and SVS
slides among them; Pillow; pyvips. None of them is needed to import this module, and none is imported before it is
asked for pixels. Each decodes strip by strip, or tile by tile, where it can: what is held beside the target is a few
strips, and for Pillow one whole image.

**When not to use it.** To read an image once: the library's own call is as good. `onecopy.images.open` is for images
that several processes, or several runs, look at.

**Threads.** Any. A library may use threads of its own while it decodes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, TypeVar

from onecopy.arguments import byte_count, few_processors, non_negative, path_text
from onecopy.arrays.dtypes import of_numpy
from onecopy.errors import FileChanged, FormatError
from onecopy.files import open_regular
from onecopy.images._libraries import LIBRARIES, TIFF, Codec, installed
from onecopy.images.facts import CodecError, DamagedError, Facts, InPlace, NoLevelError
from onecopy.store.fork import trim_heap
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from onecopy.files import Identity

T = TypeVar("T")

__all__ = ["Codec", "CodecError", "DamagedError", "Facts", "InPlace", "codecs_for", "decode", "look"]

_INSTALL = "pip install 'onecopy[images]'"
_PLAUSIBLE, _PLAUSIBLE_AT_ONCE, _RATIO = 4 << 30, 1 << 30, 1000
"""An image of more than 4 GiB, and a strip of more than 1 GiB, must have a file of a thousandth of that: deflate and
JPEG reach about as much."""


def codecs_for(path: str | os.PathLike[str]) -> list[Codec]:
    """List the installed libraries that may read a file, the one to ask first at first; reads a few bytes.

    Raises
    ------
    OSError
        There is no such file, or it cannot be read.
    CodecError
        No library is installed that could.
    """
    return list(each_for(path))


def each_for(path: str | os.PathLike[str]) -> Iterator[Codec]:
    """Yield what `codecs_for` lists; where the first one will do, nobody looks for the others."""
    text = path_text(path)
    with open_regular(text) as file:
        head = file.read(16)
    if not head:
        raise CodecError(f"{text}: the file is empty")
    is_tiff, found = head.startswith(TIFF), False
    libraries = [library for library in LIBRARIES if is_tiff or not library.only_tiff]
    for library in libraries:
        if (codec := installed(library)) is not None:
            found = True
            yield codec
    if not found:
        names = " nor ".join(library.name for library in libraries)
        raise CodecError(f"{text}: neither {names} is installed to read it: {_INSTALL}")


def look(path: str | os.PathLike[str], level: int = 0) -> Facts:
    """Return what the header of an image says: shape, element type, levels; no pixel is decoded.

    Parameters
    ----------
    path
        A file of any format that an installed library reads.
    level
        Of a pyramid: 0 is the largest.

    Raises
    ------
    OSError
        There is no such file, or it cannot be read.
    CodecError
        No installed library can read it.
    ValueError
        It has no such level.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, tifffile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "cells.tif")
    >>> tifffile.imwrite(path, np.zeros((30, 40), np.uint16), compression="zlib")
    >>> facts = oc.images.codecs.look(path)
    >>> facts.shape, facts.dtype, facts.axes
    ((30, 40), '<u2', 'YX')
    """
    return first_that_can(path, lambda codec: facts_of(codec, path, level))


def decode(
    path: str | os.PathLike[str],
    into: NDArray[Any],
    level: int = 0,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Facts:
    """Decode one level of an image into an array that is there, strip by strip; return what it was.

    Parameters
    ----------
    path
        A file of any format that an installed library reads.
    into
        A writable array of exactly the shape of the level, in any memory; elements are converted to its type. It is
        part-filled where this fails.
    level
        Of a pyramid: 0 is the largest.
    threads
        Of the library, where it has any; None: the processors of this process, 4 at most.
    progress
        Called with (bytes done, bytes in total) after each strip; raising in it stops the work.

    Raises
    ------
    OSError
        There is no such file, or it cannot be read.
    CodecError
        No installed library can read it, or its bytes are damaged.
    FileChanged
        The file was replaced or written meanwhile.
    ValueError
        It has no such level, or the array has another shape or cannot be written.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, tifffile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "cells.tif")
    >>> tifffile.imwrite(path, np.arange(12, dtype=np.uint16).reshape(3, 4), compression="zlib")
    >>> canvas = np.zeros((5, 4), np.uint16)
    >>> _ = oc.images.codecs.decode(path, into=canvas[1:4])
    >>> canvas[:3, 0].tolist()
    [0, 0, 4]
    """

    def one(codec: Codec) -> Facts:
        facts = facts_of(codec, path, level)
        fill(codec, path, facts, into, threads=threads, progress=progress)
        return facts

    return first_that_can(path, one)


def first_that_can(path: str | os.PathLike[str], ask: Callable[[Codec], T]) -> T:
    """Return what `ask` returns for the first library that does not raise CodecError; CodecError with all they said."""
    said: list[str] = []
    for codec in each_for(path):
        try:
            return ask(codec)
        except DamagedError:
            raise
        except CodecError as error:
            said.append(str(error).removeprefix(f"{path_text(path)}: "))
            last = error
    if len(said) == 1:
        raise last
    raise CodecError(f"{path_text(path)}: no installed library can read it: {'; '.join(said)}") from last


def facts_of(codec: Codec, path: str | os.PathLike[str], level: int) -> Facts:
    """Return what one library says of a file."""
    text, level = path_text(path), non_negative("level", level)
    with _translated(text, codec):
        try:
            facts = codec.reader().facts(text, level, codec.version)
        except MemoryError as error:  # a header is small: the file claims what is not true
            raise DamagedError(f"{text}: {codec.version}: damaged: {error}") from error
    import numpy as np

    if of_numpy(np.dtype(facts.dtype)) is None:
        raise CodecError(f"{text}: its elements are {facts.dtype}, for which there is no type in a file of arrays")
    return facts


def check_size(path: str, facts: Facts, max_bytes: int | str | None) -> None:
    """Raise DamagedError where decoding would take more than is allowed, or than its file can be an image of."""
    if max_bytes is None:
        nbytes = os.stat(path).st_size  # noqa: PTH116 - text
        most, most_at_once = (max(limit, _RATIO * nbytes) for limit in (_PLAUSIBLE, _PLAUSIBLE_AT_ONCE))
        why = f"and a file of {size(nbytes)} is believed {size(most)} at most"
    else:
        most = byte_count("max_bytes", max_bytes)
        most_at_once = most - facts.nbytes
        why = f"and {size(most)} are allowed"
    if facts.nbytes > most:
        raise DamagedError(
            f"{path}: its header claims {' x '.join(map(str, facts.shape))} elements of {facts.dtype}, which are "
            f"{size(facts.nbytes)}, {why}: max_bytes says otherwise"
        )
    if facts.at_once > most_at_once:
        raise DamagedError(
            f"{path}: one strip or tile is {size(facts.at_once)}, which are decoded in memory beside the pixels, and "
            f"{size(most_at_once)} are allowed for that: max_bytes says otherwise"
        )


def fill(
    codec: Codec,
    path: str | os.PathLike[str],
    facts: Facts,
    into: NDArray[Any],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Decode with one library what it said of a file; see `decode`."""
    text = path_text(path)
    if into.shape != facts.shape or not into.flags.writeable:
        shape = " x ".join(map(str, facts.shape))
        raise ValueError(f"{text}: `into` must be a writable array of {shape} elements, but has shape {into.shape}")
    before, raised = identity_of(text), list[BaseException]()
    done = 0

    def say(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            try:
                progress(min(done, facts.nbytes), facts.nbytes)
            except BaseException as error:  # whatever a library makes of it
                raised.append(error)
                raise

    try:
        with _translated(text, codec):
            codec.reader().fill(text, facts.level, into, say, threads or few_processors())
    except Exception as error:
        if raised:
            raise raised[0] from None
        if identity_of(text) != before:
            raise _changed(text) from error
        raise
    finally:
        trim_heap()  # of its threads too
    if identity_of(text) != before:
        raise _changed(text)


def _changed(path: str) -> FileChanged:
    return FileChanged(errno.ESTALE, "the image was replaced or written while it was being decoded", path)


def identity_of(path: str) -> Identity:
    """Return which file a path leads to, as `onecopy.Mapping.identity` has it; zeros where there is none any more."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - text
    except FileNotFoundError:
        return 0, 0, 0, 0
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@contextlib.contextmanager
def _translated(path: str, codec: Codec) -> Iterator[None]:
    """Make a CodecError of whatever a library raises over the bytes of a file; what the system refused stays."""
    try:
        yield
    except (FormatError, FileChanged, NoLevelError):
        raise
    except MemoryError as error:
        raise MemoryError(f"{path}: {codec.version}: {error or 'out of memory'}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise CodecError(f"{path}: {codec.version}: {error}") from error
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise CodecError(f"{path}: {codec.version}: {' '.join(words.split())[:500]}") from error
