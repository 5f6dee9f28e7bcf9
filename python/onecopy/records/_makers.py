"""Identity of build functions, as text: their code, their defaults and the values that they close over.

The identity is part of the key of an artefact: two functions with one key make two artefacts, and a function whose code
was changed makes a new one. Not included are the functions that it calls, and globals other than plain values.
"""

from __future__ import annotations

import functools
import os
import pickle  # for comparison only: nothing is unpickled
import types
from typing import TYPE_CHECKING, Any

from onecopy import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onecopy.records.sources import RowSource

__all__ = ["name_of", "name_of_source"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def name_of(function: Callable[..., Any]) -> str:
    """Return a name of a function that changes with its code, its defaults and its closed-over values.

    Raises
    ------
    TypeError
        The function closes over a value that cannot be pickled, and so has no stable identity.

    Examples
    --------
    >>> def rows_of(table):
    ...     return lambda: [table]
    >>> name_of(rows_of("images")) == name_of(rows_of("annotations"))
    False
    >>> name_of(rows_of("images")).partition(" ")[0]
    'rows_of.<locals>.<lambda>'
    """
    text = "\n".join(_function(function, "it", set()))
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return f"{name} {_core.digest(text)[:16]}"


def name_of_source(source: RowSource) -> str:
    """Return a name of the rows of a file that changes with the selected part of the file and the options."""
    facts = {name: value for name, value in vars(source).items() if name != "_on_progress"}
    return f"{type(source).__qualname__} {_core.digest(chr(10).join(_value(facts, 'a part', set())))[:16]}"


def _function(function: Any, where: str, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:  # a function that closes over itself
        return
    seen.add(id(function))
    if isinstance(function, functools.partial):
        yield from _function(function.func, where, seen)
        yield from _value((function.args, function.keywords), f"the arguments of {where}", seen)
    elif isinstance(function, types.MethodType):
        yield from _function(function.__func__, where, seen)
        yield from _value(function.__self__, f"the object of {where}", seen)
    elif isinstance(function, types.FunctionType):
        yield function.__qualname__
        yield from _code(function.__code__)
        yield from _value((function.__defaults__, function.__kwdefaults__), f"the defaults of {where}", seen)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield from _value(cell.cell_contents, repr(name), seen)
            except ValueError:  # the cell is empty
                yield "empty"
        for name in sorted(_global_names(function.__code__)):
            value = function.__globals__.get(name)
            if isinstance(value, (*_PLAIN, os.PathLike)):
                yield f"{name} = "
                yield from _value(value, repr(name), seen)
    elif isinstance(function, (type, types.BuiltinFunctionType)):
        yield f"{function.__module__}.{function.__qualname__}"
    else:
        yield from _function(type(function).__call__, where, seen)
        yield from _value(function, where, seen)


def _code(code: types.CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:
            yield repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def _global_names(code: types.CodeType) -> set[str]:
    below = (_global_names(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*below)


def _value(value: Any, where: str, seen: set[int]) -> Iterator[str]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__qualname__} {value!r}"
    elif isinstance(value, os.PathLike):
        yield f"{type(value).__qualname__} {os.fspath(value)!r}"
    elif type(value) in (tuple, list):
        yield f"{type(value).__qualname__} of {len(value)}"
        for item in value:
            yield from _value(item, where, seen)
    elif type(value) in (set, frozenset):  # their order differs between processes
        items = sorted("\n".join(_value(item, where, seen)) for item in value)
        yield f"{type(value).__qualname__} of {len(items)}"
        yield from items
    elif type(value) is dict:
        yield f"dict of {len(value)}"
        for key, item in value.items():
            yield from _value(key, where, seen)
            yield from _value(item, f"{where}[{key!r}]", seen)
    elif isinstance(value, types.ModuleType):
        yield f"module {value.__name__}"
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)):
        yield from _function(value, where, seen)
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__} {_pickled(value, where)}"


def _pickled(value: Any, where: str) -> str:
    try:
        return pickle.dumps(value, protocol=4).hex()
    except Exception as error:  # any: the class of the value defines how it is pickled
        raise TypeError(
            f"a function given with a key needs a stable identity, but {where} of the function, a "
            f"{type(value).__qualname__}, cannot be pickled ({error}): give it only what the data is made from "
            "(functools.partial(load, path)), or share the data itself"
        ) from None
