"""Keys of artefacts: text that identifies files, build functions and values, the same in all processes.

The identity of a function is its module, its code, its defaults and the values that it closes over. It is part of the
key of an artefact: two functions with one key make two artefacts, and a function whose code was changed makes a new
one. Not included are the functions that it calls, and globals other than plain values.
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

__all__ = ["digest_of", "file_key", "name_of"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def file_key(path: str | os.PathLike[str], version: str = "") -> str:
    """Return a key for the current contents of a file: text that changes when the file is written or replaced.

    The key consists of real path, size, time of the last write, inode, and `version`. Change `version` when the code
    that reads the file changes; `onecopy.share` adds the identity of its function by itself. A write that keeps the
    size, within one clock tick of the file system, is not detected. OSError if the file does not exist.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "labels.json")
    >>> _ = path.write_text("[1, 2]")
    >>> before = oc.file_key(path, version="2")
    >>> _ = path.write_text("[1, 2, 3]")
    >>> before == oc.file_key(path, version="2")
    False
    """
    facts = os.stat(path)  # noqa: PTH116 - any PathLike
    real = os.path.realpath(os.fsdecode(path))
    words = [real, f"{facts.st_size} bytes", f"written {facts.st_mtime_ns}", f"inode {facts.st_ino}"]
    return ", ".join([*words, f"version {version}"] if version else words)


def name_of(function: Callable[..., Any]) -> str:
    """Return a name of a function that changes with its module, code, defaults and closed-over values.

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
    text = "\n".join(_function(function, "the function", set()))
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return f"{name} {_core.digest(text)[:16]}"


def digest_of(value: Any, where: str) -> str:
    """Return 16 hexadecimal digits of a value that are the same in all processes; `where` describes it for errors.

    Raises
    ------
    TypeError
        The value, or one inside it, cannot be pickled, and so has no stable identity.

    Examples
    --------
    >>> digest_of({"a", "b"}, "the labels") == digest_of({"b", "a"}, "the labels")
    True
    """
    return _core.digest("\n".join(_value(value, where, set())))[:16]


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
        yield f"{_module_of(function)}.{function.__qualname__}"
        yield from _code(function.__code__)
        yield from _value((function.__defaults__, function.__kwdefaults__), f"the defaults of {where}", seen)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield from _value(cell.cell_contents, f"{name!r} of {where}", seen)
            except ValueError:  # the cell is empty
                yield "empty"
        for name in sorted(_global_names(function.__code__)):
            value = function.__globals__.get(name)
            if isinstance(value, (*_PLAIN, os.PathLike)):
                yield f"{name} = "
                yield from _value(value, f"{name!r} of {where}", seen)
    elif isinstance(function, (type, types.BuiltinFunctionType)):
        yield f"{function.__module__}.{function.__qualname__}"
    else:
        yield from _function(type(function).__call__, where, seen)
        yield from _value(function, where, seen)


def _module_of(function: types.FunctionType) -> str:
    """Return the module of a function; for that of a script its path, which is the same in spawned processes."""
    if function.__module__ not in ("__main__", "__mp_main__"):
        return function.__module__
    spec = function.__globals__.get("__spec__")
    path = function.__globals__.get("__file__")
    return spec.name if spec is not None else "__main__" if path is None else f"__main__ {os.path.realpath(path)}"


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
            f"a key needs values with a stable identity, but {where}, a {type(value).__qualname__}, cannot be pickled "
            f"({error}): give the function only what the data is made from (functools.partial(load, path)), or share "
            "the data itself"
        ) from None
