"""`load_object`: make the object of a file again, with arrays that are views of the file."""

from __future__ import annotations

import json
import pickle
import sys
import weakref
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from onecopy.errors import FormatError
from onecopy.text import size

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.store import Artefact, Store

_SHOWN = 3
_WARNED_BYTES = 1 << 20
"""Bytes of copied data from which on they are logged."""


class Copied(NamedTuple):
    """Data of the file that is private memory of this process after loading."""

    name: str
    """Name of the array in the file; "object.pickle" for everything that is not an array."""
    nbytes: int
    """Size in bytes in the file."""


class LoadReport(NamedTuple):
    """What is shared by all processes that load an object, and what is not; `str` gives it as a sentence."""

    path: str
    """Path of the file."""
    shared: int
    """Bytes of buffers that the object uses in place: pages of the file, one copy per machine."""
    copied: tuple[Copied, ...]
    """What classes of the object copied when they were loaded, and the pickle; the largest first."""

    def __str__(self) -> str:
        copied = [one for one in self.copied if one.nbytes]
        text = f"{self.path}: {size(self.shared)} shared, {size(sum(one.nbytes for one in copied))} copied"
        names = ", ".join(f"{one.name!r} {size(one.nbytes)}" for one in copied[:_SHOWN])
        return f"{text}: {names}{', ...' if len(copied) > _SHOWN else ''}" if names else text


def load_object(
    path: str | os.PathLike[str] | Artefact,
    *,
    trusted: bool,
    private: bool = False,
    report: Callable[[LoadReport], object] | None = None,
) -> Any:
    """Return the object that `save_object` wrote, with arrays that are views of the mapped file.

    Nothing of the arrays is read. Processes that load one file share one copy of it, and a view keeps it mapped.

    **This runs code of the file**: unpickling calls whatever functions its author chose. Load only files that you
    wrote, or that come from where you would install a program from; `onecopy.open` shows the arrays of any file.

    Parameters
    ----------
    path
        Path of the file, or an `Artefact` of a `Store`.
    trusted
        Must be True: a statement of the caller that the file may run code in this process.
    private
        Whether arrays are writable, on copy-on-write pages: the file never changes, and pages that are written become
        private memory of this process. False: numpy arrays are read-only. Tensors of torch, which cannot be read-only,
        are writable in either case.
    report
        Called with a `LoadReport`. None: the logger "onecopy" warns if the classes of the object copy 1 MiB or more of
        the arrays when they are loaded, as the trees of scikit-learn do.

    Raises
    ------
    ValueError
        `trusted` is not True; nothing was opened.
    OSError
        The file cannot be opened or mapped.
    FormatError
        The file was not written by `save_object`, or it is damaged.
    ChecksumError, NoChecksum
        The pickle does not match its checksum, or has none; nothing was unpickled. Arrays are not compared: they are
        data (`ArrayFile.verify` does that).
    Exception
        What the classes of the object raise; ImportError if they are missing here. A note has the path of the file and
        the versions with which it was written.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "table.oc")
    >>> oc.save_object(path, {"table": np.arange(1000.0)})
    >>> table = oc.load_object(path, trusted=True, report=lambda report: print(report.shared))["table"]
    8000
    >>> table[-1], table.flags.writeable
    (np.float64(999.0), False)
    """
    if trusted is not True:
        raise ValueError(
            f"load_object unpickles {path}, which runs code that the file contains: pass trusted=True if you trust its "
            "author; onecopy.open shows its arrays without that"
        )
    return loaded(path, private=private, report=report)


def loaded(
    path: str | os.PathLike[str] | Artefact, *, private: bool, report: Callable[[LoadReport], object] | None
) -> Any:
    """Return the object of a file that is trusted, and report; the arguments are those of `load_object`."""
    value, found = _load(path, private=private)
    if report is not None:
        report(found)
    elif sum(one.nbytes for one in found.copied) >= _WARNED_BYTES:
        import logging

        logging.getLogger("onecopy").warning("onecopy: %s", found)
    return value


def _load(path: str | os.PathLike[str] | Artefact, *, private: bool) -> tuple[Any, LoadReport]:
    """Open a file, compare the checksums of the pickle, and unpickle it."""
    from onecopy.arrays import open as open_file

    with open_file(path, private=True) as file:
        about = about_of(file)
        own = [name for name in (PICKLE, BUFFERS, SMALL) if name in file]
        file.verify(own)
        rows = buffers_of(file, about.arrays)
        views = _views(file, rows, private=private)
        alive = [weakref.ref(view) for view in views]
        try:
            value = pickle.loads(file[PICKLE].data, buffers=views)  # noqa: S301 - the caller trusts the file
        except Exception as error:
            versions = ", ".join(f"{name} {version}" for name, version in about.packages.items())
            error.add_note(
                f"{file.path}: a {about.type}, saved by Python {about.python} with {versions or 'no packages'}"
            )
            raise
        skeleton = file.entry(PICKLE).nbytes
    views.clear()
    return value, _report(file.path, rows, [one() is not None for one in alive], skeleton)


def _views(file: ArrayFile, rows: Sequence[Buffer], *, private: bool) -> list[NDArray[Any]]:
    """Return the bytes of each buffer as an array of its own, without a copy."""
    import numpy as np

    memory = {name: file.memory_of(name).view for name in {row.array for row in rows}}
    views = []
    for row in rows:  # numpy replaces a base that is a view of another array: the base of each must be a memoryview
        view = np.ndarray(row.nbytes, np.uint8, memory[row.array][row.offset : row.offset + row.nbytes])
        view.flags.writeable = private or row.is_tensor
        views.append(view)
    return views


def _report(path: str, rows: Sequence[Buffer], used: Sequence[bool], skeleton: int) -> LoadReport:
    """Return what is shared: the buffers that the object refers to. Its classes copied the others."""
    shared, copied = 0, {PICKLE: skeleton}
    for row, in_use in zip(rows, used, strict=True):
        if in_use:
            shared += row.nbytes
        else:
            copied[row.array] = copied.get(row.array, 0) + row.nbytes
    largest = sorted((Copied(name, nbytes) for name, nbytes in copied.items()), key=lambda one: -one.nbytes)
    return LoadReport(path, shared, tuple(largest))


METADATA = "onecopy.object"
PICKLE, BUFFERS, SMALL = "object.pickle", "object.buffers", "object.small"
VERSION = 1
MIN_BYTES = 1024
"""Smaller buffers are in the array "object.small"."""
SMALL_ALIGNMENT = 16


class Buffer(NamedTuple):
    """Where a buffer lies, as in a row of "object.buffers"."""

    array: str
    offset: int
    nbytes: int
    is_tensor: bool


class About(NamedTuple):
    """The description of an object in the metadata of its file."""

    type: str
    """Module and name of its class."""
    arrays: list[str]
    """Names of the arrays that hold one buffer each."""
    python: str
    """Version of Python: "3.11"."""
    packages: dict[str, str]
    """Versions of the packages whose classes the pickle names."""

    def to_json(self) -> str:
        """Return the text of the metadata."""
        return json.dumps({"version": VERSION, **self._asdict()})


def version_of(package: str) -> str | None:
    """Return the version of a package as it is recorded; None if it is not imported, or has none."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return version if isinstance(version, str) else None


def about_of(file: ArrayFile) -> About:
    """Return the description of the object in a file; FormatError if it has none, or a damaged or newer one."""
    text = file.metadata.get(METADATA)
    if text is None:
        raise FormatError(
            f"{file.path}: not a file of an object: onecopy.save_object did not write it; onecopy.open reads arrays"
        )
    try:
        fields: Any = json.loads(text)
        found, version = About(*(fields[name] for name in About._fields)), fields["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(file, f"the metadata {METADATA!r} has no description of an object") from None
    if version != VERSION:
        raise FormatError(f"{file.path}: written by a newer onecopy: version {version!r} of the layout of objects")
    if not _has_types(*found):
        raise _damaged(file, f"the metadata {METADATA!r} has values of wrong types")
    return found


def _has_types(kind: Any, arrays: Any, python: Any, packages: Any) -> bool:
    if not isinstance(arrays, list) or not isinstance(packages, dict):
        return False
    return all(isinstance(one, str) for one in (kind, python, *arrays, *packages, *packages.values()))


def buffers_of(file: ArrayFile, names: list[str]) -> list[Buffer]:
    """Return where the buffers lie, in bounds of their arrays; FormatError if the table does not match the arrays."""
    sizes = {entry.name: entry.nbytes for entry in file.entries}
    missing = [name for name in (PICKLE, BUFFERS, SMALL, *names) if name not in sizes]
    if missing:
        raise _damaged(file, f"array {missing[0]!r} is missing")
    entry = file.entry(BUFFERS)
    if entry.dtype != "I64" or len(entry.shape) != 2 or entry.shape[1] != 4:
        raise _damaged(file, f"{BUFFERS!r} must be an array of type I64 and shape (n, 4)")
    found = []
    for number, (which, offset, nbytes, is_tensor) in enumerate(file[BUFFERS].tolist()):
        name = SMALL if which == 0 else names[which - 1] if 0 < which <= len(names) else None
        if name is None or offset < 0 or nbytes < 0 or offset > sizes[name] or nbytes > sizes[name] - offset:
            raise _damaged(file, f"row {number} of {BUFFERS!r} is outside of the arrays")
        found.append(Buffer(name, offset, nbytes, bool(is_tensor)))
    return found


def _damaged(file: ArrayFile, what: str) -> FormatError:
    return FormatError(f"{file.path}: damaged file of an object: {what}")


T = TypeVar("T")


def share_object(
    factory: Callable[[], T],
    key: str,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    private: bool = False,
    report: Callable[[LoadReport], object] | None = None,
) -> T:
    """Return the object that a function makes, built once per machine, with arrays that all processes share.

    The first process of the machine that calls this function calls `factory` and writes the object to the store
    (`save_object`); it and all others, in this run and later ones, load it from there (`load_object`), without reading
    the arrays. The object is unpickled from the store, a folder that belongs to this user alone, after its owner and
    the checksums of the pickle were checked.

    Parameters
    ----------
    factory
        A function without arguments that returns the object. It is part of the identity, with everything of the
        program's own code that it reaches, as for `onecopy.cached`. So are the version of Python, and the versions of
        the packages whose classes the object has.
    key
        Text that identifies what the object is made from: see `onecopy.file_key`.
    store
        A `onecopy.Store`, or a folder; None: the default store on disk.
    source
        The file that the object is made from, for `onecopy store ls` and `prune`; checked for changes after the build.
    private, report
        As for `load_object`.

    Raises
    ------
    TypeError
        The key is not text; or the function reaches a value without a stable identity, which the message names.
    OSError
        ENOSPC: there is not enough space. Others: the folder cannot be used.
    TimeoutError, FileChanged, ChildProcessError
        See `onecopy.Store.get_or_build`.
    Exception
        What `factory` raises, or the classes of the object when they are pickled or unpickled.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile
    >>> store = oc.Store(tempfile.mkdtemp())
    >>> squares = oc.share_object(lambda: {"squares": np.arange(1000) ** 2}, "squares up to 1000", store=store)
    >>> squares["squares"][7], squares["squares"].flags.writeable
    (np.int64(49), False)
    """
    from onecopy.objects.pickling import python_version, save_object
    from onecopy.store import Store, keys
    from onecopy.store.fork import free_unused_memory

    opened = Store.of(store)

    def find(name: str) -> Artefact:
        return opened.get_or_build(
            name, lambda path: save_object(path, factory(), durable=opened.durable), source=source
        )

    name = f"{keys.text_of(key)}, object by {keys.name_of(factory)}, Python {python_version()}"
    found = find(name)
    if versions := _other_versions(found):
        found = find(f"{name}, {versions}")
    if found.built:
        free_unused_memory()
    value: T = loaded(found, private=private, report=report)
    return value


def _other_versions(found: Artefact) -> str:
    """Return the versions of the packages of an object if any is another one now; empty if all are the same."""
    from onecopy.arrays import open as open_file

    with open_file(found) as file:
        saved = about_of(file).packages
    now = {name: _version_of(name) for name in saved}
    return ", ".join(f"{name} {version}" for name, version in now.items()) if now != saved else ""


def _version_of(package: str) -> str | None:
    """Return the version of a package, which unpickling imports as well; None if it is missing here."""
    with suppress(ImportError):  # unpickling raises it
        import_module(package)
    return version_of(package)
