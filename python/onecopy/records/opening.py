"""Where a file becomes a List, a Table or a Dict."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, TypeVar, overload

from onecopy import _core
from onecopy.arguments import path_text
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
    """Open a file of records by mapping: a List, a Table (a list whose rows are all dicts) or a Dict.

    Touches no data and executes no code: see `onecopy.records.types` for what that means for classes.

    Parameters
    ----------
    path
        A file that `onecopy.share`, `onecopy.records.save` or a `Writer` wrote; or what a `Store` found or built.
    kind
        `List`, `Table` or `Dict`: what it has to be, also for a type checker.

    Raises
    ------
    FormatError
        The file holds no records, or none of that kind, or its buffers do not fit its schema.
    OSError
        It cannot be opened or mapped: FileNotFoundError, PermissionError, ...

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> records.save(path, ["Ada", "Grace"])
    >>> oc.open_records(path, oc.List)[1]
    'Grace'
    """
    given = path_text(path)
    opened = of_path(given, trusted=False, handle=getattr(path, "handle", None))
    if kind is not None and not isinstance(opened, kind):
        opened.close()
        raise FormatError(f"{given}: a {type(opened).__name__} of records, not a {kind.__name__}")
    return opened


def of_path(path: str, *, trusted: bool, handle: _core.FileHandle | None = None) -> Any:
    """Open a file, or one that is held open already, and give what it holds: a List, a Table or a Dict."""
    return _whole(_origin_of(_mapped(path, handle=handle), path, trusted=trusted))


def _mapped(path: str, identity: Identity | None = None, handle: _core.FileHandle | None = None) -> _core.ArrayFile:
    return _core.open_arrays(path, False, False, 0, identity, handle)


def _whole(origin: Origin) -> Any:
    if origin.source.container == "dict":
        from onecopy.records.dicts import Dict

        return Dict(origin)
    return list_of(_core.Rows(origin.source), origin)


def list_of(rows: _core.Rows, origin: Origin, fields: tuple[str | int, ...] = ()) -> List[Any]:
    """Return rows as a List, or as a Table where all of them are dicts with str keys."""
    kind, nullable, *_ = rows._rows_type
    if kind == "record" and not nullable:
        from onecopy.records.table import Table

        return Table(rows, origin, fields)
    return List(rows, origin, fields)


def _maker_of(name: str, kinds: tuple[str, ...]) -> Any:
    from onecopy.records import types  # which knows half the standard library, and most rows have no such objects

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
    """Open what a pickled handle names.

    Raises
    ------
    FileChanged
        The path leads to another file by now.
    FileNotFoundError
        There is none any more; of nameless data: the process that shared it is gone.
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
