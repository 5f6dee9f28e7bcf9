"""Where a file becomes a List, a Table or a Dict."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.arrays import ArrayFile
from onecopy.records.rows import List, Origin
from onecopy.records.types import resolve, resolve_imported

if TYPE_CHECKING:
    import os

    from onecopy.files import Identity

__all__ = ["attach", "of_file", "open"]


def open(path: str | os.PathLike[str], *, threads: int | None = None) -> List[Any]:  # noqa: A001
    """Open a records file: a List. `onecopy.open` does the same; this one tells a type checker.

    Touches no data and executes no code: see `onecopy.records.types` for what that means for classes.

    Raises
    ------
    FormatError
        The file holds no records, or its buffers do not fit its schema.
    OSError
        It cannot be opened or mapped: FileNotFoundError, PermissionError, ...

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> oc.records.save(path, ["Ada", "Grace"])
    >>> oc.open(path)[1]
    'Grace'
    """
    return of_file(ArrayFile(path, threads=threads), trusted=False)


def of_file(file: ArrayFile, *, trusted: bool) -> List[Any]:
    """Give the rows of an opened file."""
    source = _core.open_records(file.compiled, resolve if trusted else resolve_imported)
    origin = Origin(file, source, trusted)
    return List(_core.Rows(source), origin)


def attach(
    path: str,
    identity: Identity,
    rows: tuple[int, int, int] | bytes,
    fields: tuple[str, ...] = (),
    trusted: bool = False,
) -> List[Any]:
    """Open what a pickled handle names.

    Raises
    ------
    FileChanged
        The path leads to another file by now.
    FileNotFoundError
        There is none any more; of nameless data: the process that shared it is gone.
    """
    try:
        file = ArrayFile(path, identity=identity)
    except FileNotFoundError as error:
        if not path.startswith("/proc/"):
            raise
        gone = f"the process that shared the data (pid {path.split('/')[2]}) has ended or closed it"
        raise FileNotFoundError(error.errno, gone, path) from None
    whole = of_file(file, trusted=trusted)
    if isinstance(rows, bytes):
        part = whole.select(array("q", rows))
    else:
        part = List(_core.Rows(whole._origin.source, *rows), whole._origin)
    for field in fields:
        part = List(part._rows_field(field), part._origin, (*part._fields, field))
    return part
