"""Objects that are stored as plain values: datetimes, enums, dataclasses, and types that programs register.

The plain values of a records file are None, bool, int, float, str, bytes, list, tuple, dict and NumPy arrays. Objects
of other types are stored as a plain value together with the name of the type: a `datetime` as microseconds, an `Enum`
as the name of its member, a dataclass as the dict of its fields. Reading returns an object of the same type with the
same value. Types must match exactly: an object of a subclass raises an error instead of being stored as its base class.

Reading never runs code that a file names, and never calls the constructor of a class: attributes are set directly. If a
value's class is in a module that this program has not imported, it is read as an `Unloaded`, a placeholder with the
name of the type and the stored value. Reading the value again after importing the module returns the object; saving the
placeholder stores the original value. Only ``share(..., codec="pickle")`` reads pickles.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import pickle
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn, TypeVar

from onecopy.base.tensor_values import resolved
from onecopy.errors import FormatError, Kind, NotShareable

T = TypeVar("T")
Convert = Callable[[Any], Any]
NamedValue = tuple[str, Any]
"""The name of a type and a plain value."""

CODEC = "codec"
"""Key in a file's metadata. Its value is "pickle" if the file may contain pickles."""

_MAX_FRACTION_BITS = 1 << 18  # of numerator and denominator together, because reducing them takes quadratic time
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1)


class Unloaded:
    """The stored form of a value whose class this program has not imported. See `onecopy_records.types`.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy import records
    >>> records.Unloaded("dataclass:shapes:Box", {"width": 3})
    <Unloaded dataclass shapes.Box {'width': 3}: import shapes, then read it again>
    """

    __slots__ = ("fields", "type_name")

    def __init__(self, type_name: str, fields: Any) -> None:
        self.type_name = type_name
        """Name of the type in the file: "dataclass:module:qualname", or the name given to `register`."""
        self.fields = fields
        """The stored value: a dict for a dataclass, a tuple for a NamedTuple, or else the result of `to_plain`."""

    @property
    def module(self) -> str:
        """Name of the module that defines the type, or "" if it is unknown."""
        return _place_of(self.type_name)[0]

    @property
    def name(self) -> str:
        """Name of the type in its module."""
        return _place_of(self.type_name)[1]

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} has no attribute {name!r}", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unloaded):
            return NotImplemented
        return (self.type_name, self.fields) == (other.type_name, other.fields)

    def __hash__(self) -> int:
        return hash(self.type_name)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.type_name, self.fields)

    def __repr__(self) -> str:
        kind = self.type_name.partition(":")[0]
        what = f"{kind} " if kind in _CLASSES else ""
        where = f"{self.module}." if self.module else ""
        todo = f"import {self.module}" if self.module else "register the type"
        return f"<Unloaded {what}{where}{self.name} {self.fields!r}: {todo}, then read it again>"


_MODULES = {"torch.Tensor": "torch", "ZoneInfo": "tzdata", "datetime": "tzdata", "time": "tzdata"}
"""Modules that some supported types require. If such a module is not loaded, values are read as `Unloaded`."""


def _place_of(type_name: str) -> tuple[str, str]:
    """Split the name of a type in a file into the module and the name in that module."""
    *_, module, name = [_MODULES.get(type_name, ""), *type_name.split(":")]
    return module, name.removeprefix(f"{module}.")


def register(
    cls: type[T], to_plain: Callable[[T], Any], from_plain: Callable[[Any], T], *, name: str | None = None
) -> None:
    """Register functions that convert objects of a type to plain values and back.

    Parameters
    ----------
    cls
        The type. Objects of subclasses are not converted.
    to_plain
        Returns a value that represents the object completely and consists of supported or registered types.
    from_plain
        Converts such a value back to an object. Every process that reads values of this type must call `register` too,
        for example when it imports the module that defines `cls`.
    name
        Name of the type in files; None: ``"module:qualname"`` of the class.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy import records
    >>> class Version:
    ...     def __init__(self, text):
    ...         self.text = text
    >>> records.register(Version, lambda version: version.text, Version)
    >>> oc.share([{"needs": Version("1.2")}])[0]["needs"].text
    '1.2'
    """
    known = name or f"{cls.__module__}:{cls.__qualname__}"
    _TO_PLAIN[cls] = (known, to_plain)
    _FROM_PLAIN[known] = from_plain


def plain_of(value: Any) -> NamedValue | None:
    """Return the name of a value's type and its plain value, or None if the type is not supported."""
    kind = type(value)
    if (known := _TO_PLAIN.get(kind)) is not None:
        return known[0], known[1](value)
    if isinstance(value, enum.Enum):
        return _of_class("enum", kind), value.name if value.name in kind.__members__ else value.value
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _of_class("namedtuple", kind), tuple(value)
    if dataclasses.is_dataclass(kind):
        return _of_class("dataclass", kind), _fields_of(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _EXACT:
        return name, _EXACT[name](value)
    return (value.type_name, value.fields) if kind is Unloaded else None


def plain_or_pickle(value: Any) -> NamedValue:
    """Return the result of `plain_of`, or ("pickle", pickled value) for an unsupported type."""
    try:
        found = plain_of(value)
    except NotShareable:
        found = None
    return found or ("pickle", pickle.dumps(value, protocol=5))


def maker_of(name: str, kinds: tuple[str, ...], *, pickles: bool = False) -> Convert:
    """Return the function that converts plain values to a type, given its name in the file. Imports no module.

    `kinds` are the kinds of the plain values in the schema: ("list",), ("record", "map"), ... Raise FormatError if the
    type cannot be made from them, or is a pickle and `pickles` is False.
    """
    if name == "pickle":
        if pickles:
            return pickle.loads
        raise FormatError(
            "a pickled value may run code, so only the job that wrote the value can read it", Kind.UNSUPPORTED
        )
    if name in _FROM_PLAIN:
        expected = _KINDS.get(name)
        if expected and not set(kinds) <= expected:
            raise FormatError(f"a value of type {name!r} cannot be stored as {' or '.join(kinds)}", Kind.INCONSISTENT)
        return _FROM_PLAIN[name]

    def make(plain: Any) -> Any:
        found = _loaded(name)  # for each value, because the module may be imported after the file was opened
        return Unloaded(name, plain) if found is None else found(plain)

    return make


def _loaded(name: str) -> Convert | None:
    """Return a function that creates values of a class or registered type, or None if the program has not loaded it."""
    if name in _FROM_PLAIN:
        return _FROM_PLAIN[name]
    kind, _, place = name.partition(":")
    if kind not in _CLASSES:
        return None
    module, _, qualname = place.partition(":")
    found: Any = sys.modules.get(module)
    if found is None:
        return None
    for part in qualname.split("."):
        found = vars(found).get(part) if isinstance(found, type) or found is sys.modules.get(module) else None
    is_kind, make = _CLASSES[kind]
    if not (isinstance(found, type) and is_kind(found)):
        raise FormatError(f"{module}.{qualname} is not of the kind that the file states: {kind}", Kind.INCONSISTENT)
    return functools.partial(make, found)


def _of_class(kind: str, cls: type) -> str:
    if "<locals>" in cls.__qualname__:
        raise NotShareable(f"the class {cls.__qualname__} is defined in a function: other processes cannot import it")
    return f"{kind}:{cls.__module__}:{cls.__qualname__}"


def _fields_of(value: Any) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)]
    more = sorted(set(getattr(value, "__dict__", ())) - set(names))
    if more:
        raise NotShareable(f"the dataclass has attributes that are not fields: {', '.join(more)}")
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _make_dataclass(cls: type, fields: Any) -> Any:
    if type(fields) is not dict:
        raise FormatError(f"expected the fields of a {cls.__qualname__}, found a {type(fields).__name__}")
    made: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _make_enum(cls: Any, plain: Any) -> Any:
    return cls.__members__[plain] if plain in cls.__members__ else cls(plain)


def _make_namedtuple(cls: Any, values: Any) -> Any:
    if type(values) is not tuple or len(values) != len(cls._fields):
        raise FormatError(f"the values do not match the fields of {cls.__qualname__}: {', '.join(cls._fields)}")
    return tuple.__new__(cls, values)


_CLASSES: dict[str, tuple[Callable[[type], bool], Callable[[Any, Any], Any]]] = {
    "enum": (lambda cls: issubclass(cls, enum.Enum), _make_enum),
    "namedtuple": (lambda cls: issubclass(cls, tuple) and hasattr(cls, "_fields"), _make_namedtuple),
    "dataclass": (dataclasses.is_dataclass, _make_dataclass),
}
"""For each kind, a test of whether a class is of that kind, and a function that creates a value of such a class."""


def _plain_datetime(value: dt.datetime) -> Any:
    since = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return since if value.tzinfo is None and value.fold == 0 else (since, value.tzinfo, value.fold)


def _make_datetime(plain: Any) -> dt.datetime | Unloaded:
    since, zone, fold = (plain, None, 0) if isinstance(plain, int) else plain
    if isinstance(zone, Unloaded):
        return Unloaded("datetime", plain)
    return (_EPOCH + since * _MICROSECOND).replace(tzinfo=zone, fold=fold)


def _plain_time(value: dt.time) -> Any:
    naive = value.replace(tzinfo=None)
    return (dt.datetime.combine(_EPOCH, naive) - _EPOCH) // _MICROSECOND, value.tzinfo, value.fold


def _make_time(plain: Any) -> dt.time | Unloaded:
    made = _make_datetime(plain)
    return Unloaded("time", plain) if isinstance(made, Unloaded) else made.timetz()


def _plain_zone(value: zoneinfo.ZoneInfo) -> str:
    if value.key is None:
        raise NotShareable("cannot share a ZoneInfo without a key")
    return value.key


def _make_zone(key: str) -> Any:
    """Return a zone from the system's database, or Unloaded if it is missing, because zoneinfo would import tzdata."""
    parts = pathlib.PurePosixPath(key)
    if parts.is_absolute() or ".." in parts.parts:
        raise FormatError(f"invalid ZoneInfo key: {key!r}")
    exists = any((pathlib.Path(folder) / parts).is_file() for folder in zoneinfo.TZPATH)
    return zoneinfo.ZoneInfo(key) if exists or "tzdata" in sys.modules else Unloaded("ZoneInfo", key)


def _make_fraction(plain: Any) -> fractions.Fraction:
    numerator, denominator = plain
    if numerator.bit_length() + denominator.bit_length() > _MAX_FRACTION_BITS:
        raise FormatError(f"the Fraction has more than {_MAX_FRACTION_BITS} bits", Kind.TOO_COSTLY)
    return fractions.Fraction(numerator, denominator)


def _plain_fraction(value: fractions.Fraction) -> Any:
    if value.numerator.bit_length() + value.denominator.bit_length() > _MAX_FRACTION_BITS:
        raise NotShareable(f"the Fraction has more than {_MAX_FRACTION_BITS} bits")
    return value.numerator, value.denominator


def _make_deque(plain: Any) -> collections.deque[Any]:
    values, longest = plain
    return collections.deque(_checked(list, values), longest)


def _make_array(plain: Any) -> array.array[Any]:
    code, values = plain
    return array.array(_checked(str, code), _checked(bytes, values))


def _checked(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise FormatError(f"expected a {kind.__name__}, found a {type(value).__name__}")
    return value


def _plain_tensor(value: Any) -> Any:
    if value.requires_grad:
        raise NotShareable("the tensor requires a gradient: share tensor.detach()")
    try:
        value = resolved(value)
    except TypeError as error:
        raise NotShareable(str(error)) from None
    if value.dtype == sys.modules["torch"].bfloat16:  # numpy lacks this dtype
        return "bfloat16", value.view(sys.modules["torch"].int16).numpy()
    try:
        return "", value.numpy()
    except TypeError as error:
        raise NotShareable(f"numpy has no equivalent of the tensor's dtype, {value.dtype} ({error})") from None


def _make_tensor(plain: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        return Unloaded("torch.Tensor", plain)
    dtype, array_of_it = plain
    tensor = torch.from_numpy(array_of_it)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


_EXACT: dict[str, Convert] = {"torch.Tensor": _plain_tensor, "numpy.str_": str.__str__, "numpy.bytes_": bytes}
"""Functions for types from modules that are not imported here. NumPy's `item` would drop trailing null characters."""
_TO_PLAIN: dict[type, tuple[str, Convert]] = {}
_FROM_PLAIN: dict[str, Convert] = {
    "torch.Tensor": _make_tensor,
    "numpy.str_": lambda text: import_module("numpy").str_(_checked(str, text)),
    "numpy.bytes_": lambda text: import_module("numpy").bytes_(_checked(bytes, text)),
    "str": lambda utf8: utf8.decode("utf-8", "surrogatepass"),  # the encoder stores lone surrogates this way
}

_KINDS: dict[str, set[str]] = {
    "str": {"bytes"},
    "bytearray": {"bytes"},
    "set": {"list"},
    "frozenset": {"list"},
    "OrderedDict": {"record", "map"},
    "Counter": {"record", "map"},
}
"""The kinds of plain values that some types accept. Converting other kinds could take unlimited time or memory."""

for _cls, _to, _from in (
    (dt.datetime, _plain_datetime, _make_datetime),
    (dt.date, dt.date.toordinal, dt.date.fromordinal),
    (dt.time, _plain_time, _make_time),
    (dt.timedelta, lambda value: value // _MICROSECOND, lambda plain: plain * _MICROSECOND),
    (dt.timezone, lambda value: value.__getinitargs__(), lambda plain: dt.timezone(*plain)),
    (zoneinfo.ZoneInfo, _plain_zone, _make_zone),
    (complex, lambda value: (value.real, value.imag), lambda plain: complex(*plain)),
    (decimal.Decimal, str, decimal.Decimal),
    (fractions.Fraction, _plain_fraction, _make_fraction),
    (uuid.UUID, lambda value: value.bytes, lambda plain: uuid.UUID(bytes=plain)),
    (bytearray, bytes, bytearray),
    (range, lambda value: (value.start, value.stop, value.step), lambda plain: range(*plain)),
    (set, list, set),
    (frozenset, list, frozenset),
    (collections.OrderedDict, dict, collections.OrderedDict),
    (collections.Counter, dict, collections.Counter),
    (collections.deque, lambda value: (list(value), value.maxlen), _make_deque),
    (array.array, lambda value: (value.typecode, value.tobytes()), _make_array),
    (type(pathlib.Path()), str, pathlib.Path),
    (pathlib.PurePosixPath, str, pathlib.PurePosixPath),
    (pathlib.PureWindowsPath, str, pathlib.PureWindowsPath),
):
    register(_cls, _to, _from, name=_cls.__name__)  # type: ignore[arg-type]  # functions of different types
