"""Open files of records as a List, a Table or a Dict: `open_records`, and `attach` for pickled handles."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, TypeVar, overload

from onecopy import _core
from onecopy.arguments import is_url, path_text
from onecopy.errors import FormatError
from onecopy.records.backing import Origin
from onecopy.records.rows import List

if TYPE_CHECKING:
    import os

    from onecopy.files import Identity
    from onecopy.records.dicts import Dict
    from onecopy.store import Artefact

__all__ = ["attach", "list_of", "of_path", "open_records"]

K = TypeVar("K", bound="List[Any] | Dict[Any, Any]")


@overload
def open_records(path: str | os.PathLike[str] | Artefact) -> List[Any] | Dict[Any, Any]: ...


@overload
def open_records(path: str | os.PathLike[str] | Artefact, kind: type[K]) -> K: ...


def open_records(path: str | os.PathLike[str] | Artefact, kind: type[Any] | None = None) -> Any:
    """Open a file of records by mapping, as a List, a Table (a List whose rows are all dicts) or a Dict.

    Opening reads no data and executes no code of the file; `onecopy.records.types` describes how values of classes are
    read.

    Parameters
    ----------
    path
        Path of a file that `onecopy.share`, `onecopy.records.save` or a `Writer` wrote, or an `Artefact` of a `Store`.
    kind
        The expected class, `List`, `Table` or `Dict`, which is also the static type of the result; None: any.

    Raises
    ------
    FormatError
        The file does not contain records, or not of that kind, or its buffers do not match its schema.
    OSError
        The file cannot be opened or mapped: FileNotFoundError, PermissionError, ...

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> records.save(path, ["Ada", "Grace"])
    >>> oc.open_records(path, oc.List)[1]
    'Grace'
    """
    if is_url(path):
        from onecopy.remote import local

        path = local(path)
    given = path_text(path)
    opened = of_path(given, trusted=False, handle=getattr(path, "handle", None))
    if kind is not None and not isinstance(opened, kind):
        opened.close()
        raise FormatError(f"{given}: not a {kind.__name__} of records: it is a {type(opened).__name__}")
    return opened


def of_path(path: str, *, trusted: bool, handle: _core.FileHandle | None = None) -> Any:
    """Open a file, by its path or its open `handle`, as a List, a Table or a Dict."""
    return _whole(_origin_of(_mapped(path, handle=handle), path, trusted=trusted))


def _mapped(path: str, identity: Identity | None = None, handle: _core.FileHandle | None = None) -> _core.ArrayFile:
    return _core.open_arrays(path, expected=identity, handle=handle)[0]


def _whole(origin: Origin) -> Any:
    if origin.source.container == "dict":
        from onecopy.records.dicts import Dict

        return Dict(origin)
    return list_of(_core.Rows(origin.source), origin)


def list_of(rows: _core.Rows, origin: Origin, fields: tuple[str | int, ...] = ()) -> List[Any]:
    """Return rows as a Table if all of them are dicts with str keys, else as a List."""
    kind, nullable, *_ = rows._rows_type
    if kind == "record" and not nullable:
        from onecopy.records.table import Table

        return Table(rows, origin, fields)
    return List(rows, origin, fields)


def _maker_of(name: str, kinds: tuple[str, ...]) -> Any:
    from onecopy.records import types  # here, because it imports many modules, and most rows have no such objects

    return types.maker_of(name, kinds)


def _maker_with_pickles(name: str, kinds: tuple[str, ...]) -> Any:
    from onecopy.records import types

    return types.maker_with_pickles(name, kinds)


def _origin_of(core: _core.ArrayFile, given: str, *, trusted: bool) -> Origin:
    pickles = trusted and core.metadata().get("codec") == "pickle"  # types.CODEC
    source = _core.open_records(core, _maker_with_pickles if pickles else _maker_of)
    return Origin(core, given, source, trusted=trusted)


def attach(
    path: str,
    identity: Identity,
    rows: tuple[int, int, int] | bytes | None,
    fields: tuple[str | int, ...] = (),
    trusted: bool = False,
) -> List[Any] | Dict[Any, Any]:
    """Open the rows that a pickled List, Table or Dict refers to.

    Raises
    ------
    FileChanged
        The file was modified or replaced since it was pickled.
    FileNotFoundError
        The file was removed; for data without a key: the process that shared it has ended or closed it.
    """
    try:
        core = _mapped(path, identity)
    except FileNotFoundError as error:
        if not path.startswith("/proc/"):
            raise
        gone = f"the process that shared the data (pid {path.split('/')[2]}) has ended or closed it"
        raise FileNotFoundError(error.errno, gone, path) from None
    origin = _origin_of(core, path, trusted=trusted)
    if rows is None:
        whole: Dict[Any, Any] = _whole(origin)
        return whole
    part = _core.Rows(origin.source) if isinstance(rows, bytes) else _core.Rows(origin.source, *rows)
    for field in fields:
        part = part._rows_field(field)
    return list_of(part._rows_select(array("q", rows)) if isinstance(rows, bytes) else part, origin, fields)
