"""Objects that are stored as plain values: datetimes, enums, dataclasses, and what programs register.

A records file knows None, bool, int, float, str, bytes, list, tuple, dict and numpy arrays. Everything else stands in
it as one of those under a name: a `datetime` as microseconds, an `Enum` as its member's name, a dataclass as the dict
of its fields. What comes back is an object of the same type with the same value. Types are matched exactly: an object
of a subclass is not stored as one of its base, but refused.

Opening a file never executes code. A dataclass, NamedTuple or Enum in a file from `onecopy.open` is made only when its
module is imported already; shares between the processes of one job import it, as unpickling does. No constructor runs:
attributes are set as they were.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import importlib
import pathlib
import pickle
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, TypeVar

from onecopy.base import FormatError

__all__ = ["NotShareable", "register"]

T = TypeVar("T")
ToPlain = Callable[[Any], Any]
FromPlain = Callable[[Any], Any]
Named = tuple[str, Any]  # name of the type, plain value

_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1)


class NotShareable(TypeError):
    """A value that no records file can hold; the message begins with its path: ``[12].bbox[3]: ...``."""


def register(
    cls: type[T], to_plain: Callable[[T], Any], from_plain: Callable[[Any], T], *, name: str | None = None
) -> None:
    """Teach records another type.

    Parameters
    ----------
    cls
        Objects of exactly this type are meant.
    to_plain
        Gives a plain value that says everything about the object: of the types that records know, or of registered
        ones.
    from_plain
        Makes an object of it. It is called in every process that reads one, so `register` must have been called there
        too: at the import of the module that defines `cls`, say.
    name
        What it is called in files; None: ``"module:qualname"`` of the class.

    Examples
    --------
    >>> import onecopy as oc
    >>> class Version:
    ...     def __init__(self, text):
    ...         self.text = text
    >>> oc.records.register(Version, lambda version: version.text, Version)
    >>> oc.share([{"needs": Version("1.2")}])[0]["needs"].text
    '1.2'
    """
    known = name or f"{cls.__module__}:{cls.__qualname__}"
    _TO_PLAIN[cls] = (known, to_plain)
    _FROM_PLAIN[known] = from_plain


def plain_of(value: Any) -> Named | None:
    """Name the type of a value and give the plain value that stands for it; None where there is none."""
    kind = type(value)
    known = _TO_PLAIN.get(kind)
    if known is not None:
        return known[0], known[1](value)
    if isinstance(value, enum.Enum):
        return _of_class("enum", kind), value.name if value.name in kind.__members__ else value.value
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _of_class("namedtuple", kind), tuple(value)
    if dataclasses.is_dataclass(kind):
        return _of_class("dataclass", kind), _fields_of(value)
    if kind.__module__ == "torch" and kind.__qualname__ == "Tensor":
        return "torch.Tensor", _plain_tensor(value)
    return None


def plain_or_pickle(value: Any) -> Named:
    """Like `plain_of`, with pickle as the last resort (``codec="pickle"``)."""
    try:
        found = plain_of(value)
    except NotShareable:
        found = None
    return found or ("pickle", pickle.dumps(value, protocol=5))


def resolve(name: str) -> FromPlain:
    """Find what makes objects of a type by its name in the file: for shares, so that modules may be imported."""
    return pickle.loads if name == "pickle" else _find(name, importlib.import_module)


def resolve_imported(name: str) -> FromPlain:
    """Like `resolve`, without executing code: of classes only those whose modules are imported already."""
    if name == "pickle":
        raise FormatError("a value is a pickle, and opening a file executes no code: only its own job reads it")
    return _find(name, sys.modules.get)


def _find(name: str, module_of: Callable[[str], Any]) -> FromPlain:
    known = _FROM_PLAIN.get(name)
    if known is not None:
        return known
    kind, _, place = name.partition(":")
    if kind in _CLASSES:
        return _CLASSES[kind](_class_at(name, place, module_of))
    module_of(kind)  # of a registered type: "module:qualname"; its module registers it
    if name in _FROM_PLAIN:
        return _FROM_PLAIN[name]
    raise FormatError(f"a value is of the type {name!r}, which nobody registered: see onecopy.records.register")


def _class_at(name: str, place: str, module_of: Callable[[str], Any]) -> Any:
    module, _, qualname = place.partition(":")
    found = module_of(module)
    if found is None:
        raise FormatError(
            f"a value is of the class {module}.{qualname}: import {module} first; opening executes no code"
        )
    for part in qualname.split("."):
        found = getattr(found, part, None)
    kind = name.partition(":")[0]
    if not (isinstance(found, type) and _IS[kind](found)):
        raise FormatError(f"a value is of the class {module}.{qualname}, which is no {kind} in this program")
    return found


def _of_class(kind: str, cls: type) -> str:
    if "<locals>" in cls.__qualname__:
        raise NotShareable(f"its class {cls.__qualname__} is defined inside a function: other processes cannot find it")
    return f"{kind}:{cls.__module__}:{cls.__qualname__}"


def _fields_of(value: Any) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)]
    more = sorted(set(getattr(value, "__dict__", ())) - set(names))
    if more:
        raise NotShareable(f"a dataclass with attributes besides its fields: {', '.join(more)}")
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _make_dataclass(cls: type) -> FromPlain:
    def make(fields: dict[str, Any]) -> Any:
        made: Any = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made

    return make


def _make_enum(cls: Any) -> FromPlain:
    members = cls.__members__
    return lambda plain: members[plain] if plain in members else cls(plain)


def _make_namedtuple(cls: type) -> FromPlain:
    return lambda values: tuple.__new__(cls, values)


_CLASSES: dict[str, Callable[[Any], FromPlain]] = {
    "enum": _make_enum,
    "namedtuple": _make_namedtuple,
    "dataclass": _make_dataclass,
}
_IS: dict[str, Callable[[type], bool]] = {
    "enum": lambda cls: issubclass(cls, enum.Enum),
    "namedtuple": lambda cls: issubclass(cls, tuple) and hasattr(cls, "_fields"),
    "dataclass": dataclasses.is_dataclass,
}


def _plain_datetime(value: dt.datetime) -> Any:
    since = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return since if value.tzinfo is None and value.fold == 0 else (since, value.tzinfo, value.fold)


def _make_datetime(plain: Any) -> dt.datetime:
    since, zone, fold = (plain, None, 0) if isinstance(plain, int) else plain
    return (_EPOCH + since * _MICROSECOND).replace(tzinfo=zone, fold=fold)


def _plain_time(value: dt.time) -> Any:
    naive = value.replace(tzinfo=None)
    return (dt.datetime.combine(_EPOCH, naive) - _EPOCH) // _MICROSECOND, value.tzinfo, value.fold


def _make_time(plain: Any) -> dt.time:
    since: int
    since, zone, fold = plain
    return (_EPOCH + since * _MICROSECOND).time().replace(tzinfo=zone, fold=fold)


def _plain_zone(value: zoneinfo.ZoneInfo) -> str:
    if value.key is None:
        raise NotShareable("a ZoneInfo without a key")
    return value.key


def _plain_deque(value: collections.deque[Any]) -> Any:
    return list(value), value.maxlen


def _plain_tensor(value: Any) -> Any:
    if value.requires_grad or value.is_conj() or value.is_neg() or value.layout != sys.modules["torch"].strided:
        raise NotShareable("a tensor that is sparse, lazily conjugated or has a gradient: detach it first")
    if value.device.type != "cpu":
        raise NotShareable(f"a tensor on {value.device}: only tensors of the CPU are shared")
    if value.dtype == sys.modules["torch"].bfloat16:  # numpy has none
        return "bfloat16", value.view(sys.modules["torch"].int16).numpy()
    return "", value.numpy()


def _make_tensor(plain: Any) -> Any:
    torch = importlib.import_module("torch")
    dtype, array_of_it = plain
    tensor = torch.from_numpy(array_of_it)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


_TO_PLAIN: dict[type, tuple[str, ToPlain]] = {}
_FROM_PLAIN: dict[str, FromPlain] = {
    "torch.Tensor": _make_tensor,
    "str": lambda utf8: utf8.decode("utf-8", "surrogatepass"),  # a str with lone surrogates: the encoder makes it
}

for _cls, _to, _from in (
    (dt.datetime, _plain_datetime, _make_datetime),
    (dt.date, dt.date.toordinal, dt.date.fromordinal),
    (dt.time, _plain_time, _make_time),
    (dt.timedelta, lambda value: value // _MICROSECOND, lambda plain: plain * _MICROSECOND),
    (dt.timezone, lambda value: value.__getinitargs__(), lambda plain: dt.timezone(*plain)),
    (zoneinfo.ZoneInfo, _plain_zone, zoneinfo.ZoneInfo),
    (complex, lambda value: (value.real, value.imag), lambda plain: complex(*plain)),
    (decimal.Decimal, str, decimal.Decimal),
    (fractions.Fraction, lambda value: (value.numerator, value.denominator), lambda plain: fractions.Fraction(*plain)),
    (uuid.UUID, lambda value: value.bytes, lambda plain: uuid.UUID(bytes=plain)),
    (bytearray, bytes, bytearray),
    (range, lambda value: (value.start, value.stop, value.step), lambda plain: range(*plain)),
    (set, list, set),
    (frozenset, list, frozenset),
    (collections.OrderedDict, dict, collections.OrderedDict),
    (collections.Counter, dict, collections.Counter),
    (collections.deque, _plain_deque, lambda plain: collections.deque(*plain)),
    (array.array, lambda value: (value.typecode, value.tobytes()), lambda plain: array.array(*plain)),
    (type(pathlib.Path()), str, pathlib.Path),
    (pathlib.PurePosixPath, str, pathlib.PurePosixPath),
    (pathlib.PureWindowsPath, str, pathlib.PureWindowsPath),
):
    register(_cls, _to, _from, name=_cls.__name__)  # type: ignore[arg-type]  # of each its own
