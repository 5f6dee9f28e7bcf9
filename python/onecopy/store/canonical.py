"""The canonical form of functions and values: bytes that are the same in all processes.

A function is identified by everything of the program's own code that it reaches: its code, defaults, closure, the
globals that it loads, the functions and classes among them with all that they reach, and the names that are used of
the program's own modules. The standard library and installed packages are identified by qualified name and version. A
value is identified by its type and contents, other objects by their class and by what pickle would store of them, in
one canonical form: equal sets, strings and arrays have one identity, whatever the order of hashes.

Not part of it: annotations, docstrings of classes, line numbers, the environment, files (`onecopy.file_key`),
attributes of installed modules, and what only `eval`, `globals()` or a computed name reaches. Names of local variables
are part of it, because `locals()` returns them. A value without an identity, such as a lock, is an error that names it.
"""

from __future__ import annotations

import copyreg
import functools
import importlib.util
import marshal
import opcode
import operator
import os
import struct
import sys
import types
from contextlib import suppress
from pickle import PickleBuffer  # for the buffers of arrays: nothing is pickled or unpickled
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EQUIVALENTS: dict[Any, Callable[[Any], Any]] = {
    functools.cached_property: lambda value: value.func,
    functools._lru_cache_wrapper: lambda value: value.__wrapped__,
    types.MappingProxyType: dict,
    types.GetSetDescriptorType: lambda value: (value.__objclass__, value.__name__),
    property: lambda value: (value.fget, value.fset, value.fdel),
    staticmethod: lambda value: value.__func__,
    classmethod: lambda value: value.__func__,
    memoryview: lambda value: (value.format, value.shape, value.tobytes()),
}
"""For a type, or its qualified name: a function that returns a value with the same identity as an object of it."""


class NoIdentity(Error):
    """A value has no identity; the text says of which type it is, and why."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.steps: list[str] = []  # how it was reached, the last step first


class _Code(NamedTuple):
    """What the code of a function is and uses; nested code included."""

    code: types.CodeType  # kept, so that its `id` is not used again
    digest: bytes
    loads: list[str]  # names of globals
    imports: list[tuple[int, str, tuple[str, ...]]]  # level and name of modules, names that are imported from them
    names: set[str]  # all names and constant strings, which may be names of attributes of modules


_FLAT = {type(None), bool, int, float, str, bytes}
_AT_ONCE = 10_000  # items
_codes: dict[int, _Code] = {}
_MAX_CODES = 10_000
_LOAD_GLOBAL, _IMPORT_NAME = opcode.opmap["LOAD_GLOBAL"], opcode.opmap["IMPORT_NAME"]
_LOAD_NAMES = {opcode.opmap.get("LOAD_NAME"), opcode.opmap.get("LOAD_FROM_DICT_OR_GLOBALS")}
_OF_MODULES = {"__builtins__", "__cached__", "__file__", "__loader__", "__name__", "__path__", "__spec__"}
_OF_CLASSES = {"__dict__", "__weakref__", "__module__", "__annotations__", "__annotate__", "__annotate_func__"}
_OF_CLASSES |= {"__annotations_cache__", "__firstlineno__", "__slotnames__", "__static_attributes__", "_abc_impl"}
_OF_CLASSES |= {"__doc__", "_value2member_map_"}
"""Attributes that say nothing about what a class does, that change while it is used, or that have addresses in them."""
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - text


class Form:
    """The canonical form of values, as bytes that are hashed while they are made; no value is the prefix of another.

    Mutable objects, functions and classes that are reached again are written as the number of their first occurrence;
    immutable values are written again, because it is chance whether equal ones are one object.
    """

    def __init__(self) -> None:
        from hashlib import blake2b

        self._new = functools.partial(blake2b, digest_size=16)
        self.hash = self._new()
        self._seen: dict[int, tuple[int, Any]] = {}
        self._tuples: dict[int, tuple[bytes, Any]] = {}
        self._references = 0  # to objects with a number: what has none inside is the same wherever it occurs
        self._kinds: dict[type, bool] = {}  # whether classes are of a library
        self._modules: list[types.ModuleType] = []
        self._names: set[str] = set()

    def add(self, value: Any) -> None:
        """Add a value."""
        kind = type(value)
        if kind in _PLAIN:
            _PLAIN[kind](self, value)
        elif kind is tuple:
            self._add_tuple(value)
        elif isinstance(value, (type, types.FunctionType, types.ModuleType)) and (name := self._library_name(value)):
            self._put_text(b"library", name)
        elif self._is_compared_by_value(kind) or not self._was_seen(value):
            if kind in _FORMS:
                _FORMS[kind](self, value)
            elif isinstance(value, type):
                self._add_class(value)
            else:
                self._add_object(value, kind)

    def _library_name(self, value: Any) -> str | None:
        """Return the name and version of a class, function or module of a library; None for those of the program."""
        if isinstance(value, type):
            return f"{_versioned(value.__module__)} {value.__qualname__}" if self._is_library(value) else None
        is_module = isinstance(value, types.ModuleType)
        scope, name = (vars(value), "") if is_module else (value.__globals__, value.__qualname__)
        module = str(scope.get("__name__"))
        found = _is_library(module, scope.get("__file__")) and (is_module or _global(module, name) is value)
        return f"{_versioned(module)} {name}" if found else None

    def _was_seen(self, value: Any) -> bool:
        """Give an object a number; add its number if it has one."""
        self._references += 1
        if id(value) in self._seen:
            self._put(b"again", b"%d" % self._seen[id(value)][0])
            return True
        self._seen[id(value)] = len(self._seen), value
        return False

    def _is_compared_by_value(self, kind: type) -> bool:
        """Return whether objects of a class do not change and are equal by value: paths, numbers, dates and others."""
        if kind in _TRANSIENT or kind.__hash__ is None or operator.is_(kind.__hash__, object.__hash__):
            return kind in _TRANSIENT
        of_python = str(kind.__module__).partition(".")[0] in sys.stdlib_module_names or kind.__module__ == "numpy"
        return of_python and not issubclass(kind, type) and self._is_library(kind)

    def add_names_of_modules(self) -> None:
        """Add what the names in all code that was added mean in the program's own modules that were added."""
        done: set[tuple[int, str]] = set()
        while waiting := [
            (number, name)
            for number, module in enumerate(self._modules)
            for name in sorted((self._names & vars(module).keys()) - _OF_MODULES)
            if (number, name) not in done
        ]:
            for number, name in waiting:
                done.add((number, name))
                self._put(b"name", name.encode())
                self._add_at(f"{name!r} of {self._modules[number].__name__}", vars(self._modules[number])[name])

    def _put(self, kind: bytes, data: Any) -> None:
        self.hash.update(b"%b %d:" % (kind, len(data)))
        self.hash.update(data)

    def _put_text(self, kind: bytes, *words: object) -> None:
        self._put(kind, "\0".join(map(str, words)).encode("utf-8", "surrogatepass"))

    def _add_at(self, step: str, value: Any) -> None:
        try:
            self.add(value)
        except NoIdentity as error:
            error.steps.append(step)
            raise

    def _digest_of(self, add: Callable[[Any], None], value: Any, *, keep: bool = True) -> bytes:
        """Return the digest of a value alone; after an error, or unless `keep`, what it has reached is forgotten."""
        outer, self.hash, before = self.hash, self._new(), len(self._seen)
        try:
            add(value)
            before = len(self._seen) if keep else before
            return self.hash.digest()
        finally:
            self.hash = outer
            while len(self._seen) > before:
                self._seen.popitem()

    def _is_library(self, kind: type) -> bool:
        if kind not in self._kinds:
            module, name = sys.modules.get(kind.__module__), kind.__qualname__
            found = module is not None and _is_library(kind.__module__, getattr(module, "__file__", None))
            # What a library makes for the program is not found by its name there: collections.namedtuple and others.
            made = kind.__flags__ & _MADE_BY_PYTHON and _global(kind.__module__, name) is not kind
            self._kinds[kind] = found and not made
        return self._kinds[kind]

    def _add_tuple(self, value: tuple[Any, ...]) -> None:
        if id(value) in self._tuples:
            self._put(b"tuple", self._tuples[id(value)][0])
            return
        before = self._references
        if id(value) in self._seen and self._was_seen(value):
            return
        digest = self._digest_of(self._add_items, value)
        self._put(b"tuple", digest)
        if self._references == before:
            self._tuples[id(value)] = digest, value
        else:  # it has a mutable object inside
            self._seen[id(value)] = len(self._seen), value

    def _add_items(self, values: Iterable[Any], names: list[Any] | None = None) -> None:
        items = tuple(values)
        self._put(b"items", b"%d" % len(items))
        for start in range(0, len(items), _AT_ONCE):
            part = items[start : start + _AT_ONCE]
            if _FLAT.issuperset(map(type, part)):  # version 2 writes no references to equal values
                self._put(b"flat", marshal.dumps(part, 2))
                continue
            for number, item in enumerate(part, start):
                try:
                    self.add(item)
                except NoIdentity as error:
                    error.steps += [] if names is None else [f"[{names[number]!r}]"]
                    raise

    def _add_list(self, values: list[Any]) -> None:
        self._put(b"list", b"")
        self._add_items(values)

    def _add_dict(self, values: dict[Any, Any]) -> None:
        self._put(b"dict", b"")
        self._add_pairs(values.items())

    def _add_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        given = tuple(pairs)
        names = [name for name, _ in given]
        self._add_items(names)
        self._add_items((value for _, value in given), names)

    def _add_set(self, values: set[Any] | frozenset[Any]) -> None:
        """Add a set in the order of the digests of its items, because its own order differs between processes."""
        before = self._references
        digests = [(self._digest_of(self.add, item, keep=False), item) for item in values]
        digests.sort(key=operator.itemgetter(0))
        self._put(type(values).__name__.encode(), str(len(digests)).encode())
        for digest, item in digests:
            if self._references == before:
                self.hash.update(digest)
            else:  # an item that was reached before, or is reached again, is the same object
                self.add(item)

    def _add_function(self, function: types.FunctionType) -> None:
        scope, code = function.__globals__, _code_of(function.__code__)
        is_library = _is_library(str(scope.get("__name__")), scope.get("__file__"))
        self._put_text(b"function", _place_of(scope), function.__qualname__)
        if is_library and function.__code__.co_qualname == "singledispatch.<locals>.wrapper":
            self._add_dict(dict(function.registry))  # type: ignore[attr-defined]
            return  # it closes over weak references
        self.hash.update(code.digest)
        self._names |= code.names
        self._add_at("the defaults", (function.__defaults__, function.__kwdefaults__))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._put_text(b"name", name)
            if cell != types.CellType():  # of a variable that is not assigned yet
                self._add_at(repr(name), cell.cell_contents)
        self._add_dict(vars(function))
        if not is_library:
            self._add_globals(code, scope)

    def _add_globals(self, code: _Code, scope: dict[str, Any]) -> None:
        for name in code.loads:
            if name == "__name__":
                self._put_text(b"name", _place_of(scope))
            elif name in scope:
                self._put_text(b"global", name)
                self._add_at(repr(name), scope[name])
        for level, name, members in code.imports:
            package = scope.get("__package__") or str(scope.get("__name__")).rpartition(".")[0]
            with suppress(ImportError, ValueError):  # the function raises it
                self._add_import(importlib.util.resolve_name("." * level + name, package), members)

    def _add_import(self, name: str, members: tuple[str, ...]) -> None:
        """Add a module that a function imports; one of the program is imported here, an installed one is not."""
        top = name.partition(".")[0]
        found = sys.modules.get(top)
        spec = importlib.util.find_spec(top) if found is None else None
        if _is_library(top, spec.origin if spec is not None else getattr(found, "__file__", None)):
            self._put_text(b"import", name, _versioned(top) if top in sys.stdlib_module_names else _installed(top))
            return
        importlib.import_module(name)
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            self.add(sys.modules[".".join(parts[:end])])
        for member in members:
            if not hasattr(sys.modules[name], member):  # a module in a package
                importlib.import_module(f"{name}.{member}")

    def _add_module(self, module: types.ModuleType) -> None:
        self._put_text(b"module", _place_of(vars(module)))
        self._modules.append(module)

    def _add_class(self, kind: type) -> None:
        self._put_text(b"class", _module_name(kind.__module__), kind.__qualname__)
        self._add_items(kind.__bases__)
        self.add(type(kind))
        for name, value in tuple(kind.__dict__.items()):  # classes note the names of slots
            if name not in _OF_CLASSES:
                self._put_text(b"attribute", name)
                self._add_at(f"{name!r} of {kind.__qualname__}", value)

    def _add_call(self, function: Any, step: str, given: Any) -> None:
        self._put(b"call", b"")
        self.add(function)
        self._add_at(step, given)

    def _add_object(self, value: Any, kind: type) -> None:
        """Add an object as its class and what it is made from when it is unpickled, and its attributes."""
        self._put(b"object", b"")
        self.add(kind)
        same = EQUIVALENTS.get(kind) or EQUIVALENTS.get(f"{kind.__module__}.{kind.__qualname__}")
        if same is not None:
            self.add(same(value))
        elif isinstance(value, (set, frozenset)):  # they pickle their items in the order of hashes
            self._add_set(value)
            self.add(getattr(value, "__dict__", None))
        else:
            self._add_reduced(value, _reduced(value, kind))
            names = ("__reduce__", "__reduce_ex__", "__getstate__")
            if not self._is_library(kind) and any(getattr(kind, name) is not getattr(object, name) for name in names):
                self._add_attributes(value)

    def _add_reduced(self, value: Any, reduced: Any) -> None:
        if isinstance(reduced, str):
            self._put_text(b"global", _module_name(getattr(value, "__module__", "")), reduced)
            return
        make, args, state, items, pairs = (*reduced, None, None, None)[:5]
        self.add(make)
        self._add_items(args)
        self.add(state)
        self._add_items(items or ())
        self._add_pairs(pairs or ())
        self._put(b"end", b"")

    def _add_attributes(self, value: Any) -> None:
        """Add the attributes of an object whose class chooses what it pickles, but those without an identity."""
        slots = copyreg._slotnames(type(value))  # type: ignore[attr-defined]
        attributes = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        for name, attribute in (attributes | getattr(value, "__dict__", {})).items():
            with suppress(NoIdentity):
                self._put_text(b"attribute", name, self._digest_of(self.add, attribute).hex())


_PLAIN: dict[type, Callable[[Form, Any], None]] = {
    type(None): lambda form, _: form._put(b"None", b""),
    type(Ellipsis): lambda form, _: form._put(b"Ellipsis", b""),
    type(NotImplemented): lambda form, _: form._put(b"NotImplemented", b""),
    bool: lambda form, value: form._put(b"bool", b"1" if value else b"0"),
    int: lambda form, value: form._put(b"int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)),
    float: lambda form, value: form._put(b"float", struct.pack("<d", value)),
    complex: lambda form, value: form._put(b"complex", struct.pack("<dd", value.real, value.imag)),
    str: lambda form, value: form._put(b"str", value.encode("utf-8", "surrogatepass")),
    bytes: lambda form, value: form._put(b"bytes", value),
    types.CodeType: lambda form, value: form._put(b"code", _code_of(value).digest),
    frozenset: Form._add_set,
    PickleBuffer: lambda form, value: form._put(b"buffer", value.raw()),
}
"""Types whose values have no identity beyond their contents."""

_FORMS: dict[type, Callable[[Form, Any], None]] = {
    list: Form._add_list,
    dict: Form._add_dict,
    set: Form._add_set,
    bytearray: lambda form, value: form._put(b"bytearray", value),
    types.FunctionType: Form._add_function,
    types.ModuleType: Form._add_module,
    types.MethodType: lambda form, value: form._add_call(value.__func__, "the object", value.__self__),
    functools.partial: lambda form, value: form._add_call(value.func, "the arguments", (value.args, value.keywords)),
}

_TRANSIENT = {types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType, types.MappingProxyType}
"""Types of objects that are made anew whenever an attribute is read."""


def _reduced(value: Any, kind: type) -> Any:
    """Return what pickle would store of an object: the name of a global, or a function, its arguments and a state."""
    try:
        reduce = copyreg.dispatch_table.get(kind)
        return value.__reduce_ex__(5) if reduce is None else reduce(value)
    except Exception as error:  # any: the class of the value defines how it is pickled
        name = str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
        if _global(str(getattr(value, "__module__", "")), name) is value:  # a function of a compiled module
            return name
        raise NoIdentity(f"a {kind.__qualname__}, cannot be pickled ({error})") from None


def _of_tensor(value: Any) -> Any:
    """Return the type, shape and bytes of a tensor of torch, whose pickles contain addresses."""
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().flatten()
    words = str(value.dtype), tuple(value.shape), str(value.device), value.requires_grad
    return words, PickleBuffer(flat.view(sys.modules["torch"].uint8).numpy())


EQUIVALENTS |= dict.fromkeys(("torch.Tensor", "torch.nn.parameter.Parameter"), _of_tensor)


def _imports_of(code: types.CodeType) -> set[tuple[int, str, tuple[str, ...]]]:
    import dis  # knows how each version of Python writes a name and a constant

    steps = [step for step in dis.get_instructions(code) if step.opcode != opcode.EXTENDED_ARG]
    found = set()
    for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opcode == _IMPORT_NAME:
            found.add((level.argval, step.argval, names.argval if isinstance(names.argval, tuple) else ()))
    return found


def _code_of(code: types.CodeType) -> _Code:
    if (known := _codes.get(id(code))) is not None:
        return known
    nested = [_code_of(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    loads, imports = {name for one in nested for name in one.loads}, {name for one in nested for name in one.imports}
    if _IMPORT_NAME in code.co_code[::2]:
        imports |= _imports_of(code)
    extended = 0
    for op, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = extended | low
        extended = argument << 8 if op == opcode.EXTENDED_ARG else 0
        if op == _LOAD_GLOBAL:
            loads.add(code.co_names[argument >> 1])
        elif op in _LOAD_NAMES:
            loads.add(code.co_names[argument])
    form = Form()
    form.add((code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars))
    form.add((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_qualname))
    form.add(code.co_exceptiontable)
    names = {*code.co_names, *(constant for constant in code.co_consts if isinstance(constant, str))}
    names |= {name for one in nested for name in one.names}
    if len(_codes) >= _MAX_CODES:
        _codes.clear()
    return _codes.setdefault(id(code), _Code(code, form.hash.digest(), sorted(loads), sorted(imports), names))


@functools.lru_cache(maxsize=4096)
def _is_library(module: str, file: str | None) -> bool:
    """Return whether a module is of the standard library or was installed, so that its version identifies it."""
    top = module.partition(".")[0]
    if not isinstance(file, str) or top == "onecopy":
        return top == "onecopy" or top in sys.stdlib_module_names
    return file.startswith(_STANDARD_LIBRARY) or not {"site-packages", "dist-packages"}.isdisjoint(file.split(os.sep))  # noqa: PTH206 - text


def _global(module: str, name: str) -> Any:
    """Return what a qualified name means in a module that is imported; None if nothing."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _versioned(module: str) -> str:
    """Return the name of a module of a library and its version."""
    name = module
    if module.partition(".")[0] in sys.stdlib_module_names:
        return f"{module} of Python {sys.version.split()[0]}"
    while name:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            return f"{module} {version}"
        name = name.rpartition(".")[0]
    return module


def _module_name(name: Any) -> str:
    module = sys.modules.get(name)
    if module is None or _is_library(name, getattr(module, "__file__", None)):
        return _versioned(str(name))
    return _place_of(vars(module))


@functools.lru_cache(maxsize=256)
def _installed(package: str) -> str:
    """Return the version of the distribution of this name, which need not be imported; empty if there is none."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _place_of(scope: dict[str, Any]) -> str:
    """Return the name of a module; for that of a script its path, which is the same in spawned processes."""
    name, spec, path = scope.get("__name__"), scope.get("__spec__"), scope.get("__file__")
    if name not in ("__main__", "__mp_main__"):
        return str(name)
    return spec.name if spec is not None else "__main__" if path is None else f"__main__ {os.path.realpath(path)}"
