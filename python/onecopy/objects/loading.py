"""`load_object`: make the object of a file again, with arrays that are views of the file."""

from __future__ import annotations

import pickle
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.objects import layout
from onecopy.text import size

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.store import Artefact

__all__ = ["Copied", "LoadReport", "load_object", "loaded"]

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
        about = layout.about(file)
        own = [name for name in (layout.PICKLE, layout.BUFFERS, layout.SMALL) if name in file]
        file.verify(own)
        rows = layout.buffers(file, about.arrays)
        views = _views(file, rows, private=private)
        alive = [weakref.ref(view) for view in views]
        try:
            value = pickle.loads(file[layout.PICKLE].data, buffers=views)  # noqa: S301 - the caller trusts the file
        except Exception as error:
            versions = ", ".join(f"{name} {version}" for name, version in about.packages.items())
            error.add_note(
                f"{file.path}: a {about.type}, saved by Python {about.python} with {versions or 'no packages'}"
            )
            raise
        skeleton = file.entry(layout.PICKLE).nbytes
    views.clear()
    return value, _report(file.path, rows, [one() is not None for one in alive], skeleton)


def _views(file: ArrayFile, rows: Sequence[layout.Buffer], *, private: bool) -> list[NDArray[Any]]:
    """Return the bytes of each buffer as an array of its own, without a copy."""
    import numpy as np

    memory = {name: file.memory_of(name).view for name in {row.array for row in rows}}
    views = []
    for row in rows:  # numpy replaces a base that is a view of another array: the base of each must be a memoryview
        view = np.ndarray(row.nbytes, np.uint8, memory[row.array][row.offset : row.offset + row.nbytes])
        view.flags.writeable = private or row.is_tensor
        views.append(view)
    return views


def _report(path: str, rows: Sequence[layout.Buffer], used: Sequence[bool], skeleton: int) -> LoadReport:
    """Return what is shared: the buffers that the object refers to. Its classes copied the others."""
    shared, copied = 0, {layout.PICKLE: skeleton}
    for row, in_use in zip(rows, used, strict=True):
        if in_use:
            shared += row.nbytes
        else:
            copied[row.array] = copied.get(row.array, 0) + row.nbytes
    largest = sorted((Copied(name, nbytes) for name, nbytes in copied.items()), key=lambda one: -one.nbytes)
    return LoadReport(path, shared, tuple(largest))
