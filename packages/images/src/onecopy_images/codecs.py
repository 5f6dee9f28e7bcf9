"""Reads image headers, and decodes image files into existing arrays, with the installed libraries.

    facts = oc.images.codecs.read_facts("slide.ndpi", level=1)    # reads the header only
    pixels = np.empty(facts.shape, facts.dtype)
    oc.images.codecs.decode("slide.ndpi", pixels, level=1)  # any array: mapped, shared, or a view

The libraries are tried in this order: tifffile (with imagecodecs) for files that begin with a TIFF signature, including
NDPI and SVS slides; Pillow; imagecodecs, for PNG and JPEG 2000 files with more than 8 bits per sample; pyvips. A
library is imported when it is first tried. Where possible, a library decodes strip by strip or tile by tile, and needs
memory for only a few strips in addition to the target; Pillow and imagecodecs need memory for the whole image.

**When not to use it.** To read an image only once, call the library directly. For images that several processes or runs
read, use `onecopy.images.open`.

**Threads.** All functions may be called from any thread. A library may start threads to decode.
"""

from __future__ import annotations

import contextlib
import errno
import os
from importlib import import_module, util
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from onecopy.arrays.entries import of_numpy
from onecopy.base.text import byte_count, cpu_count, non_negative, path_text, size
from onecopy.errors import FileChanged, FormatError, Kind
from onecopy.files.identity import FileIdentity, file_identity
from onecopy.files.mapping import open_regular
from onecopy.files.page_cache import available_memory, expect_memory
from onecopy.store.fork import trim_heap
from onecopy_images.image import CodecError, DamagedError, Facts, InPlace, NoLevelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["Codec", "CodecError", "DamagedError", "Facts", "InPlace", "decode", "read_facts"]


class Codec(NamedTuple):
    """A library that reads images."""

    name: str
    package: str
    """Name of the package that is imported."""
    module: str
    """Name of the module that uses the library: ``facts(path, level, codec)`` returns the `Facts` about a level,
    and ``fill(path, level, into, report, threads)`` decodes it and calls `report` with the size of each piece."""
    decoder: tuple[str, str] | None = None
    """(distribution, package) that the library uses for decoding."""
    signatures: tuple[bytes, ...] = (b"",)
    """Signatures of the files for which the library is tried; by default, it is tried for all files."""
    version: str = ""
    """Name and version of the library and of its decoder, contained in store keys because pixels may depend on them."""

    def reader(self) -> Any:
        """Import the library, and return the module that uses it."""
        return import_module(self.module)


PILLOW = Codec("pillow", "PIL", "onecopy_images._pillow")
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the last two: BigTIFF
_DEEP = (b"\x89PNG", b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")  # PNG, JPEG 2000 and its bare codestream
LIBRARIES = (
    Codec("tifffile", "tifffile", "onecopy_images._tiff", ("imagecodecs", "imagecodecs"), _TIFF),
    PILLOW,
    Codec("imagecodecs", "imagecodecs", "onecopy_images._deep", signatures=_DEEP),
    Codec("pyvips", "pyvips", "onecopy_images._vips", ("pyvips_binary", "_libvips")),
)
"""The libraries in the order in which they are tried."""


def installed(library: Codec) -> Codec | None:
    """Return a library together with its version, or None if it is not installed."""
    own = _version_of(library.package)
    if own is None:
        return None
    decoder = library.decoder and _version_of(library.decoder[1])
    more = f", {library.decoder[0]} {decoder}" if library.decoder and decoder is not None else ""
    return library._replace(version=f"{library.name} {own}{more}")


def _version_of(package: str) -> str | None:
    """Return a package's version, or else text that identifies it, without importing it; None if not installed."""
    from onecopy.store.packages import package_of, version_of

    try:
        spec = util.find_spec(package)
    except ValueError:  # sys.modules has None for it: imports are blocked
        return None
    if spec is None:
        return None
    return version_of(spec.origin) or package_of(package, spec.origin) or "?"


T = TypeVar("T")
_INSTALL = "pip install 'onecopy[images]'"
_PLAUSIBLE, _RATIO = 256 << 20, 1400
"""Limits against decompression bombs: if an image, a strip, or all strips together exceed 256 MiB, the file must have
at least a 1,400th of that size, because LZW, deflate and JPEG compress by a factor of at most about 1,400."""
_SMALL, _READ_AHEAD = 1 << 20, 16 << 20
"""Image size in bytes below which memory is not checked; bytes that a TIFF library needs besides segments."""


def each_for(path: str | os.PathLike[str]) -> Iterator[Codec]:
    """Yield the installed libraries that may be able to read a file, in the order in which they are tried.

    The iteration checks whether a library is installed only when it reaches that library. It reads the first 16 bytes
    of the file. Raise CodecError if no installed library might be able to read the file.
    """
    text = path_text(path)
    with open_regular(text) as file:
        head = file.read(16)
    if not head:
        raise CodecError("the file is empty", Kind.TRUNCATED, path=text)
    libraries, found = [library for library in LIBRARIES if head.startswith(library.signatures)], False
    for library in libraries:
        if (codec := installed(library)) is not None:
            found = True
            yield codec
    if not found:
        names = ", ".join(library.name for library in libraries)
        raise CodecError(f"the image needs one of these packages: {names}: {_INSTALL}", Kind.UNSUPPORTED, path=text)


def pillow(path: str) -> Codec:
    """Return the Pillow codec. Raise CodecError with the image's path if Pillow is not installed."""
    codec = installed(PILLOW)
    if codec is None:
        raise CodecError(f"cannot convert the image without Pillow: {_INSTALL}", Kind.UNSUPPORTED, path=path)
    return codec


def read_facts(path: str | os.PathLike[str], level: int = 0) -> Facts:
    """Return the shape, element type and levels of an image from its header, without decoding pixels.

    Parameters
    ----------
    path
        A file of any format that an installed library supports.
    level
        Level of an image pyramid; 0 is the largest.

    Raises
    ------
    OSError
        The file does not exist, or cannot be read.
    CodecError
        No installed library can read the file.
    ValueError
        The image does not have this level.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib, tifffile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "cells.tif")
    >>> tifffile.imwrite(path, np.zeros((30, 40), np.uint16), compression="zlib")
    >>> facts = oc.images.codecs.read_facts(path)
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
    """Decode one level of an image into an existing array, strip by strip, and return the facts in its header.

    Parameters
    ----------
    path
        A file of any format that an installed library supports.
    into
        A writable array with exactly the level's shape, in any memory. Elements are converted to the array's dtype.
        After an error, the array may be partly filled.
    level
        Level of an image pyramid; 0 is the largest.
    threads
        Number of threads, if the library uses several; None: the number of CPUs available to this process, at most 4.
    progress
        Called with (bytes done, bytes in total) after each strip. An exception that it raises stops the decoding.

    Raises
    ------
    OSError
        The file does not exist, or cannot be read.
    CodecError
        No installed library can read the file, or its bytes are damaged.
    FileChanged
        The file was replaced or modified during decoding.
    ValueError
        The image does not have this level, or the array is read-only or has a different shape.

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


def first_that_can(path: str | os.PathLike[str], use: Callable[[Codec], T]) -> T:
    """Call `use` with each library in turn, and return the result of the first call that does not raise CodecError.

    If all calls raise CodecError, raise a CodecError with all messages. A DamagedError is passed on immediately.
    """
    messages: list[str] = []
    for codec in each_for(path):
        try:
            return use(codec)
        except DamagedError:
            raise
        except CodecError as error:
            messages.append(str(error).removeprefix(f"{path_text(path)}: "))
            last = error
    if len(messages) == 1:
        raise last
    raise CodecError(
        f"no installed library can read the image: {'; '.join(messages)}", Kind.UNSUPPORTED, path=path_text(path)
    ) from last


def facts_of(codec: Codec, path: str | os.PathLike[str], level: int) -> Facts:
    """Return the facts that a library reads from a file's header."""
    text, level = path_text(path), non_negative("level", level)
    with translated(text, codec):
        try:
            facts: Facts = codec.reader().facts(text, level, codec.version)
        except MemoryError as error:  # headers are small, so the size in this one is wrong
            raise DamagedError(f"{codec.version}: the file is damaged: {error}", path=text) from error
        import numpy as np

        if of_numpy(np.dtype(facts.dtype)) is None:
            raise CodecError(
                f"elements of type {facts.dtype} are not supported by array files",
                Kind.UNSUPPORTED,
                path=text,
            )
    return facts


def check_size(path: str, facts: Facts, max_bytes: int | str | None) -> None:
    """Raise DamagedError if the decoded image exceeds `max_bytes` or, by default, a plausible size for its file."""
    nbytes = os.stat(path).st_size  # noqa: PTH116 - text
    most = most_at_once = most_decoded = max(_PLAUSIBLE, _RATIO * nbytes)
    if max_bytes is not None:
        most = byte_count("max_bytes", max_bytes)
        most_at_once, most_decoded = most - facts.nbytes, max(most, most_decoded)
    shape = " x ".join(map(str, facts.shape))
    for taken, limit, claim in (
        (facts.nbytes, most, f"the header declares {shape} elements of {facts.dtype},"),
        (facts.at_once, most_at_once, "one strip or tile needs, in addition to the pixels,"),
        (facts.decoded, most_decoded, "decoding its strips or tiles needs"),
    ):
        if taken > limit:
            why = f"the limit of {size(limit)} (file size: {size(nbytes)}): to decode it, pass a larger max_bytes"
            raise DamagedError(f"{claim} {size(taken)}, more than {why}", Kind.TOO_COSTLY, path=path)


def fill(
    codec: Codec,
    path: str | os.PathLike[str],
    facts: Facts,
    into: NDArray[Any],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Decode a level with the library that returned `facts` for it. See `decode`.

    Raise NotEnoughMemory if the library needs more memory than is available, in addition to the pixels.
    """
    text = path_text(path)
    if into.shape != facts.shape or not into.flags.writeable:
        shape = " x ".join(map(str, facts.shape))
        raise ValueError(f"{text}: `into` must be a writable array of shape {shape}, not {into.shape}")
    threads = threads or decoder_threads()
    if facts.nbytes >= _SMALL:
        # For a TIFF: the segments of each thread, and bytes read ahead. Other libraries decode the whole image first.
        segments = 2 * threads * facts.at_once + min(facts.decoded, _READ_AHEAD)
        instead = "pass a higher level= or fewer threads=, or make more memory available"
        expect_memory(segments if facts.at_once else facts.nbytes, "decode", text, instead=instead)
    before, raised = identity_of(text), list[BaseException]()
    done = 0

    def report(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            try:
                progress(min(done, facts.nbytes), facts.nbytes)
            except BaseException as error:  # a library may replace the exception
                raised.append(error)
                raise

    try:
        with translated(text, codec):
            codec.reader().fill(text, facts.level, into, report, threads)
    except Exception as error:
        if raised:
            raise raised[0] from None
        expect_identity(text, before, cause=error)
        left = available_memory()
        if isinstance(error, MemoryError) and left is not None and 4 * (facts.nbytes + facts.at_once) < left:
            raise DamagedError(
                f"{error}: the file is damaged: decoding it would need more than {size(facts.nbytes)} of memory"
            ) from error
        raise
    finally:
        trim_heap()  # the heaps of all threads, including the library's
    expect_identity(text, before)


def identity_of(path: str) -> FileIdentity:
    """Return the identity of a file's contents, or zeros if the file does not exist."""
    try:
        return file_identity(path)
    except FileNotFoundError:
        return FileIdentity(0, 0, 0, 0, 0)


def expect_identity(path: str, expected: FileIdentity, cause: Exception | None = None) -> None:
    """Raise FileChanged from `cause` if the identity of a file has changed."""
    if identity_of(path) != expected:
        raise changed(path, "it was being decoded") from cause


def changed(path: str, doing: str) -> FileChanged:
    """Return the error for an image that was replaced or modified while `doing`, such as "it was being decoded"."""
    return FileChanged(errno.ESTALE, f"the image was replaced or modified while {doing}", path)


@contextlib.contextmanager
def translated(path: str, codec: Codec) -> Iterator[None]:
    """Convert a library's exceptions to CodecError, except OSErrors from the system and onecopy's own errors."""
    try:
        yield
    except (FormatError, FileChanged, NoLevelError):
        raise
    except MemoryError as error:
        raise MemoryError(f"{path}: {codec.version}: {str(error) or 'out of memory'}") from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL, errno.EOVERFLOW):  # caused by a wrong offset in the file
            raise
        raise CodecError(f"{codec.version}: {error}", path=path) from error
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise CodecError(f"{codec.version}: {' '.join(words.split())[:500]}", path=path) from error


def decoder_threads() -> int:
    """Return the default number of decoding threads: one per CPU, but at most 4, because each thread needs buffers."""
    return min(4, cpu_count())
