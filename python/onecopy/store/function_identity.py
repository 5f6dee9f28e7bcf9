"""The canonical form of functions and values: a sequence of bytes that is the same in all processes.

A function is identified by its code, defaults, closure and annotations, by the globals that it loads, and by the names
that it uses from the program's own modules. If these include functions and classes of the program, they are identified
recursively in the same way. Functions and classes in the standard library and in installed packages are identified by
qualified name and package (`onecopy.store.packages`), and the program's compiled modules by their contents. If the
function itself is installed, its package counts as part of the program, and its code is also followed. A value is
identified by its type and contents. Any other object is identified by its class, the data that pickle would store, and
the attributes that pickle omits. Equal sets, strings and arrays have the same identity, whatever the order of hashes.

The identity excludes line numbers, the environment, files (`onecopy.file_key`), attributes of installed modules, and
code that is used only through `eval`, `globals()` or a computed name. It includes the names of local variables, because
`locals()` returns them. A value without an identity, such as a lock, raises an error that names it.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import _thread
import copyreg
import functools
import importlib.util
import marshal
import opcode
import operator
import os
import re
import struct
import sys
import types
import typing
from contextlib import suppress
from pickle import PickleBuffer  # exposes the buffers of arrays: nothing is pickled or unpickled
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.store.equivalents import Program, equivalent_of
from onecopy.store.packages import NoIdentity, compiled_code_of, is_compiled, is_installed, package_of, requires_onecopy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class _Code(NamedTuple):
    """A function's code, and the names that it and its nested code use."""

    code: types.CodeType  # kept, so that no other object gets its `id`
    digest: bytes
    loads: list[str]  # names of globals
    imports: list[tuple[int, str, tuple[str, ...]]]  # level and name of each module, and the names imported from it
    names: set[str]  # all names and constant strings, any of which may name an attribute of a module


class Reached:
    """Places where the program refers to the parts of a `Form`. Each part is immutable or is in one of these places."""

    def __init__(self) -> None:
        self.attributes: list[tuple[object, str, object]] = []
        """The program's functions and cells, and the names and values of their attributes."""
        self.names: list[tuple[Mapping[str, Any], str, object]] = []
        """Names in modules and annotations, and the objects that they refer to; `_MISSING` for built-ins."""
        self.lengths: list[tuple[Mapping[str, Any], int]] = []
        """Mappings that must not grow, and their lengths."""

    def is_unchanged(self) -> bool:
        """Return whether each place still refers to the same object, so that the form has not changed."""
        for owner, name, value in self.attributes:
            try:
                if getattr(owner, name) is not value:
                    return False
            except ValueError:  # a cell is empty now
                return False
        for mapping, length in self.lengths:
            if len(mapping) != length:
                return False
        for names, name, value in self.names:  # noqa: SIM110 - in one frame
            if names.get(name, _MISSING) is not value:
                return False
        return True


_MISSING = object()
_MAX_REMEMBERED = 10_000
"""Maximum length of a value that is kept in memory even if the program no longer uses it."""
_EMPTY_CELL = types.CellType()
_FLAT_TYPES = {type(None), bool, int, float, str, bytes}
_ITEMS_AT_ONCE = 10_000
_codes: dict[int, _Code] = {}
_MAX_CODES = 10_000
_LOAD_GLOBAL, _IMPORT_NAME = opcode.opmap["LOAD_GLOBAL"], opcode.opmap["IMPORT_NAME"]
_IMPORTERS = {"import_module", "__import__"}
_LOAD_NAMES = {opcode.opmap.get("LOAD_NAME"), opcode.opmap.get("LOAD_FROM_DICT_OR_GLOBALS")}
_MODULE_INTERNALS = {"__builtins__", "__cached__", "__file__", "__loader__", "__name__", "__path__", "__spec__"}
_CLASS_INTERNALS = {"__dict__", "__weakref__", "__module__", "__annotations__", "__annotate__", "__annotate_func__"}
_CLASS_INTERNALS |= {"__annotations_cache__", "__firstlineno__", "__slotnames__", "__static_attributes__"}
_CLASS_INTERNALS |= {"__pydantic_core_schema__", "__pydantic_serializer__", "__pydantic_validator__"}
_CLASS_INTERNALS |= {"_value2member_map_"}
"""Attributes to skip: they are identified elsewhere, change while a class is used, or contain addresses."""
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by Python code
_LOCKS = {_thread.LockType, _thread.RLock}
"""Types without contents. A class may leave attributes of these types out of its pickles."""


class Form:
    """The canonical form of values, which is hashed as it is written. No form is a prefix of another form.

    A repeated mutable object, function or class is written as the number of its first occurrence. An immutable value is
    written again, because Python may or may not use the same object for equal values.
    """

    def __init__(self) -> None:
        from hashlib import blake2b

        self._new = functools.partial(blake2b, digest_size=16)
        self.hash = self._new()
        self._seen: dict[int, tuple[int, Any]] = {}
        self._tuples: dict[int, tuple[bytes, Any]] = {}
        self._references = 0  # to numbered objects; a value that contains none has the same form everywhere
        self._packages: dict[type, str | None] = {}  # of classes
        self._own: set[str] = set()  # installed packages that belong to the program
        self._modules: list[types.ModuleType] = []
        self._compiled: dict[str, None] = {}  # names of compiled modules of the program
        self._names = {"__getattr__"}
        self._scope: Mapping[str, Any] = {}  # in which the names of annotations are looked up
        self._is_left_out = False  # whether the class of an owner leaves the value out of its pickles
        self.reached: Reached | None = Reached()  # None: a part may change unseen
        self._noted: Any = None  # a dict whose names are in `reached`

    def add(self, value: Any) -> None:
        """Add a value."""
        kind = type(value)
        if kind in _PLAIN:
            _PLAIN[kind](self, value)
        elif kind is tuple:
            self._add_tuple(value)
        elif isinstance(value, (type, types.FunctionType, types.ModuleType)) and (name := self._library_name(value)):
            self._put_text(b"library", name)
        elif (is_value := self._is_compared_by_value(kind)) or not self._was_seen(value):
            if not (is_value or kind is types.FunctionType or value is self._noted):
                self.reached = None
            if kind in _FORMS:
                _FORMS[kind](self, value)
            elif isinstance(value, type):
                self._add_class(value)
            else:
                self._add_object(value, kind)

    def _add_program(self, program: Program) -> None:
        function = _innermost(program.func)
        scope = getattr(function, "__globals__", None) or getattr(sys.modules.get(function.__module__), "__dict__", {})
        name, module, file = function.__qualname__, str(scope.get("__name__")), scope.get("__file__")
        if (package := package_of(module, file)) is not None and is_installed(file):
            is_decorated = "<locals>" not in name and _global(module, name) is not function
            self.reached = None
            if is_decorated or requires_onecopy(file):
                self._put_text(b"program", package)
                self._own.add(package)
                self._packages.clear()
        self._put(b"call", b"")
        self.add(program.func)
        self._noted = program.keywords  # of this call alone
        self._add_at("the arguments", (program.args, program.keywords))  # of a partial function

    def _package(self, scope: Mapping[str, Any]) -> str | None:
        """Return the identity of a module's code, or None for the program's Python code, which is followed instead."""
        module, file = str(scope.get("__name__")), scope.get("__file__")
        if file is None and "." in module and "__path__" not in scope:  # created by a compiled module
            file = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None)
        found = package_of(module, file)
        if (found is None or found in self._own) and (found := compiled_code_of(file)) is not None:
            self._compiled[module] = self.reached = None
        return found

    def _package_of_class(self, kind: type) -> str | None:
        if kind not in self._packages:
            found = self._package(getattr(sys.modules.get(kind.__module__), "__dict__", {}))
            # A class that a library makes for the program, such as a namedtuple, is not found by its name there.
            made = kind.__flags__ & _HEAP_TYPE and _global(kind.__module__, kind.__qualname__) is not kind
            self._packages[kind] = None if made else found
        return self._packages[kind]

    def _library_name(self, value: Any) -> str | None:
        """Return the name and package of a library's class, function or module, or None for those of the program."""
        if isinstance(value, type):
            package, module, name = self._package_of_class(value), value.__module__, value.__qualname__
        else:
            is_module = isinstance(value, types.ModuleType)
            scope, name = (vars(value), "") if is_module else (value.__globals__, value.__qualname__)
            package, module = self._package(scope), str(scope.get("__name__"))
            if not is_module and package is not None and _global(module, name) is not value:
                return None
        return None if package is None else f"{module} {name} of {package}"

    def _place_of(self, module: Any) -> str:
        """Return the name of a module, followed by its package if the module does not belong to the program."""
        scope = getattr(sys.modules.get(module), "__dict__", {})
        package = self._package(scope)
        return f"{module} of {package}" if package is not None else _place_of(scope) if scope else str(module)

    def _was_seen(self, value: Any) -> bool:
        """Return whether an object has been seen. If so, add its number; otherwise, assign it the next number."""
        self._references += 1
        if id(value) in self._seen:
            self._put(b"again", b"%d" % self._seen[id(value)][0])
            return True
        self._seen[id(value)] = len(self._seen), value
        return False

    def _is_compared_by_value(self, kind: type) -> bool:
        """Return whether a class's objects are immutable and compared by value, like paths, numbers and dates."""
        if kind in _TRANSIENT or kind.__hash__ is None or operator.is_(kind.__hash__, object.__hash__):
            return kind in _TRANSIENT
        of_python = str(kind.__module__).partition(".")[0] in sys.stdlib_module_names or kind.__module__ == "numpy"
        return of_python and not issubclass(kind, type) and self._package_of_class(kind) is not None

    def add_names_of_modules(self) -> None:
        """For each module that was added, add the objects to which names in the added code may refer."""
        done: set[tuple[object, str]] = set()
        may_name = self._modules or self._compiled or "__subclasses__" in self._names
        while may_name and (waiting := [each for each in self._named() if each[0] not in done]):
            for key, step, value in waiting:
                done.add(key)
                self._put(b"name", key[1].encode())
                self._add_at(step, value)

    def _named(self) -> Iterator[tuple[tuple[object, str], str, Any]]:
        """Yield the objects in modules to which the code's names refer, and subclasses if the code lists them."""
        for number, module in enumerate(self._modules):
            names = self._names & vars(module).keys()
            if "__getattr__" in names:  # PEP 562
                names |= {name for name in self._names - names if not name.startswith("_") and _has(module, name)}
            for name in sorted(names - _MODULE_INTERNALS):
                yield (number, name), f"{name!r} of {module.__name__}", getattr(module, name)
        for owner in tuple(self._compiled):
            found: dict[str, Any] = getattr(sys.modules.get(owner), "__dict__", {})
            for name, value in tuple(found.items()):
                if isinstance(value, (type, types.FunctionType, types.ModuleType)) and name not in _MODULE_INTERNALS:
                    yield (owner, name), f"{name!r} of {owner}", value
        if "__subclasses__" in self._names:
            for kind in [kind for _, kind in self._seen.values() if isinstance(kind, type)]:
                each: type
                for each in type.__subclasses__(kind):
                    yield (kind, each.__qualname__), f"the subclass {each.__qualname__}", each

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
        """Return the digest of a single value. Forget the value's objects after an error, or if `keep` is False."""
        outer, self.hash, before = self.hash, self._new(), len(self._seen)
        try:
            add(value)
            before = len(self._seen) if keep else before
            return self.hash.digest()
        finally:
            self.hash = outer
            while len(self._seen) > before:
                self._seen.popitem()

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
        else:  # it contains a mutable object
            self._seen[id(value)] = len(self._seen), value

    def _add_items(self, values: Iterable[Any], names: list[Any] | None = None) -> None:
        items = tuple(values)
        self._put(b"items", b"%d" % len(items))
        for start in range(0, len(items), _ITEMS_AT_ONCE):
            part = items[start : start + _ITEMS_AT_ONCE]
            if _FLAT_TYPES.issuperset(map(type, part)):  # version 2 of marshal writes no references
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
        """Add a set in the order of the digests of its items, because its iteration order differs between processes."""
        before = self._references
        digests = [(self._digest_of(self.add, item, keep=False), item) for item in values]
        digests.sort(key=operator.itemgetter(0))
        self._put(type(values).__name__.encode(), str(len(digests)).encode())
        for digest, item in digests:
            if self._references == before:
                self.hash.update(digest)
            else:  # items contain numbered objects, whose numbers are part of the form
                self.add(item)

    def _add_function(self, function: types.FunctionType) -> None:
        scope, code = function.__globals__, _code_of(function.__code__)
        package = self._package(scope)
        self._put_text(b"function", _place_of(scope), package or "", function.__qualname__)
        if package is not None and function.__code__.co_qualname == "singledispatch.<locals>.wrapper":
            self._add_dict(dict(function.registry))  # type: ignore[attr-defined]
            return  # its closure has weak references
        self.hash.update(code.digest)
        self._names |= code.names
        self._note_function(function, code)
        self._add_at("the defaults", (function.__defaults__, function.__kwdefaults__))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._put_text(b"name", name)
            if cell != _EMPTY_CELL:  # an empty one belongs to a variable that is not assigned yet
                self._add_at(repr(name), cell.cell_contents)
        self._add_dict(vars(function))
        if package is None:
            self._add_annotations(function, scope)
            self._add_globals(code, scope)

    def _note_function(self, function: types.FunctionType, code: _Code) -> None:
        """Record the parts of a function, unless one of them could change unnoticed."""
        cells = function.__closure__ or ()
        if "__subclasses__" in code.names or function.__dict__ or any(cell == _EMPTY_CELL for cell in cells):
            self.reached = None
        if self.reached is not None:
            for name in ("__code__", "__defaults__", "__kwdefaults__", "__qualname__", "__dict__"):
                self.reached.attributes.append((function, name, getattr(function, name)))
            self.reached.attributes += [(cell, "cell_contents", cell.cell_contents) for cell in cells]
            self.reached.lengths.append((function.__dict__, 0))
            self._note_name(function.__globals__, "__name__")

    def _note_name(self, names: Mapping[str, Any], name: str) -> None:
        value = names.get(name, _MISSING)
        if isinstance(value, (bytes, str, tuple)) and len(value) > _MAX_REMEMBERED:
            self.reached = None
        if self.reached is not None:
            self.reached.names.append((names, name, value))

    def _add_annotations(self, value: Any, scope: Mapping[str, Any]) -> None:
        """Add the annotations of a function or class, and the objects to which names in textual annotations refer."""
        if (annotate := getattr(value, "__annotate__", None)) is not None:  # Python 3.14 evaluates them on use
            self.reached = None
            self._add_at("the annotations", annotate)
            return
        annotations = vars(value).get("__annotations__") if isinstance(value, type) else value.__annotations__
        if not isinstance(annotations, dict):
            self.reached = None
        elif annotations:
            before, self._scope = self._scope, scope
            self._noted = annotations
            self._add_at("the annotations", annotations)
            for text in annotations.values():
                if isinstance(text, str):
                    self._add_words(text)
            self._scope = before
        if self.reached is not None and annotations is not None:
            self.reached.attributes.append((value, "__annotations__", annotations))
            self.reached.lengths.append((annotations, len(annotations)))
            self.reached.names += [(annotations, name, each) for name, each in annotations.items()]

    def _add_words(self, text: str) -> None:
        """Add the objects to which the names in the text of an annotation refer."""
        for name in _WORDS.findall(text):
            self._note_name(self._scope, name)
            if name in self._scope:
                self._add_at(repr(name), self._scope[name])

    def _add_forward_reference(self, reference: typing.ForwardRef) -> None:
        self._put_text(b"forward", reference.__forward_arg__)
        self._add_words(reference.__forward_arg__)

    def _add_globals(self, code: _Code, scope: dict[str, Any]) -> None:
        for name in code.loads:
            self._note_name(scope, name)
            if name == "__name__":
                self._put_text(b"name", _place_of(scope))
            elif name in scope:
                self._put_text(b"global", name)
                self._add_at(repr(name), scope[name])
        own = str(scope.get("__name__"))
        own = own if "__path__" in scope else own.rpartition(".")[0]
        for level, name, members in code.imports:  # relative to the package that Python would use
            package = scope.get("__package__") or getattr(scope.get("__spec__"), "parent", None) or own
            self._add_import(f"{'.' * level}{name}", members, package)

    def _add_import(self, given: str, members: tuple[str, ...], package: str) -> None:
        """Add a module that a function imports. Import it here if it belongs to the program."""
        names = list[str]()
        with suppress(ImportError, ValueError):  # the function will raise it
            name = importlib.util.resolve_name(given, package)
            parts = name.split(".")
            names = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
            scope = next(filter(None, map(_scope_without_import, names)), {})  # the first module that has code
            if (found := self._package(scope)) is not None and scope["__name__"] not in self._compiled:
                self._note_name(sys.modules, scope["__name__"])
                self._put_text(b"import", name, found)
                return
            self.reached = None
            importlib.import_module(name)
            for member in members:
                if not hasattr(sys.modules[name], member):  # a module of a package
                    importlib.import_module(f"{name}.{member}")
        for each in names:
            if each in sys.modules:
                self.add(sys.modules[each])

    def _add_module(self, module: types.ModuleType) -> None:
        self._put_text(b"module", _place_of(vars(module)))
        self._modules.append(module)

    def _add_class(self, kind: type) -> None:
        self._put_text(b"class", self._place_of(kind.__module__), kind.__qualname__)
        self._add_items(kind.__bases__)
        self.add(type(kind))
        for name, value in tuple(kind.__dict__.items()):  # copied, because classes add `__slotnames__` on use
            if name == "__doc__" and str(value).startswith(f"{kind.__name__}("):
                continue  # `dataclasses` made it from names and defaults
            if name == "_abc_impl":  # registered classes, behind weak references
                registered = {found for reference in _abc._get_dump(kind)[0] if (found := reference()) is not None}
                self._add_at(f"the classes that are registered for {kind.__qualname__}", registered)
            elif name not in _CLASS_INTERNALS:
                self._put_text(b"attribute", name)
                self._add_at(f"{name!r} of {kind.__qualname__}", value)
        self._add_annotations(kind, getattr(sys.modules.get(kind.__module__), "__dict__", {}))

    def _add_call(self, function: Any, step: str, given: Any) -> None:
        self._put(b"call", b"")
        self.add(function)
        self._add_at(step, given)

    def _add_object(self, value: Any, kind: type) -> None:
        """Add an object's class, the data that pickle would store, and the attributes that pickle leaves out."""
        self._put(b"object", b"")
        self.add(kind)
        if (same := equivalent_of(value, kind)) is not NotImplemented:
            self.add(same)
        elif isinstance(value, (set, frozenset)):  # pickled in the order of hashes
            self._add_set(value)
            self.add(getattr(value, "__dict__", None))
        elif self._is_left_out and kind in _LOCKS:
            self._put(b"lock", b"")
        else:
            reduced = _reduced(value, kind)
            if isinstance(reduced, str):
                self._put_text(b"global", self._place_of(_module_with(value, reduced)), reduced)
            else:
                self._add_reduced(*reduced)
            names = ("__reduce__", "__reduce_ex__", "__getstate__")
            if kind in copyreg.dispatch_table or any(
                getattr(kind, name) is not getattr(object, name) for name in names
            ):
                self._add_attributes(value, kind, reduced[2] if len(reduced) > 2 else None)

    def _add_reduced(self, make: Any, args: Any, state: Any = None, items: Any = (), pairs: Any = (), *_: Any) -> None:
        self.add(make)
        self._add_items(args)
        self.add(state)
        self._add_items(items or ())
        self._add_pairs(pairs or ())
        self._put(b"end", b"")

    def _add_attributes(self, value: Any, kind: type, state: Any) -> None:
        """Add attributes that a class leaves out of its pickles; for a library's class, only the public ones."""
        attributes = dict(getattr(value, "__dict__", {}))
        if self._package_of_class(kind) is None:
            slots = copyreg._slotnames(kind)  # type: ignore[attr-defined]
            attributes |= {name: getattr(value, name) for name in slots if hasattr(value, name)}
            derived = getattr(kind, "_internal_names", ())  # pandas
        elif isinstance(state, dict):
            derived = [name for name in attributes if name in state or name.startswith("_")]
        else:
            return
        if isinstance(state, dict):
            derived = {*derived, *(name for name in attributes if name in state and state[name] is attributes[name])}
        before, self._is_left_out = self._is_left_out, True
        for name, attribute in sorted(attributes.items()):
            if name in derived:
                continue
            self._put_text(b"attribute", name)
            self._add_at(f"{name!r} of {kind.__qualname__}", attribute)
        self._is_left_out = before


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
    Program: Form._add_program,
    PickleBuffer: lambda form, value: form._put(b"buffer", value.raw()),
}
"""Functions for types whose values are identified by their contents alone."""

_FORMS: dict[type, Callable[[Form, Any], None]] = {
    list: Form._add_list,
    dict: Form._add_dict,
    set: Form._add_set,
    bytearray: lambda form, value: form._put(b"bytearray", value),
    types.FunctionType: Form._add_function,
    types.ModuleType: Form._add_module,
    typing.ForwardRef: Form._add_forward_reference,
    types.MethodType: lambda form, value: form._add_call(value.__func__, "the object", value.__self__),
    functools.partial: lambda form, value: form._add_call(value.func, "the arguments", (value.args, value.keywords)),
}

_TRANSIENT = {types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType, types.MappingProxyType}
"""Types of objects that Python creates on each attribute access."""


def _reduced(value: Any, kind: type) -> Any:
    """Return what pickle would store for an object: the name of a global, or a function with arguments and state."""
    try:
        reduce = copyreg.dispatch_table.get(kind)
        return value.__reduce_ex__(5) if reduce is None else reduce(value)
    except Exception as error:  # any: the class of the value defines how it is pickled
        name = str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
        if _global(str(getattr(value, "__module__", "")), name) is value:  # from a compiled module
            return name
        raise NoIdentity(f"a {kind.__qualname__} cannot be pickled ({error})") from None


def _module_with(value: Any, name: str) -> str:
    """Return the name of a module in which `name` refers to `value`. Raise NoIdentity if there is no such module."""
    module = getattr(value, "__module__", None)
    if isinstance(module, str) and _global(module, name) is value:
        return module
    found = (each for each, module in tuple(sys.modules.items()) if getattr(module, "__dict__", {}).get(name) is value)
    compiled = [each for each in found if is_compiled(getattr(sys.modules[each], "__file__", None))]
    if not compiled:
        raise NoIdentity(f"a {type(value).__qualname__} is pickled as {name!r}, the name of another object")
    return min(compiled)


def _innermost(function: Any) -> Any:
    """Return the function inside partial functions, methods and decorators, or the class of any other callable."""
    for _ in range(sys.getrecursionlimit()):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, (types.MethodType, staticmethod, classmethod)):
            function = function.__func__
        elif isinstance(function, type) or not hasattr(function, "__wrapped__"):
            break
        else:
            function = function.__wrapped__
    return function if isinstance(function, (type, types.FunctionType)) else type(function)


_WORDS = re.compile(r"[^\W\d]\w*")


def _has(module: types.ModuleType, name: str) -> bool:
    try:
        return hasattr(module, name)
    except Exception:  # from the module's `__getattr__`: the function will raise it
        return False


def _scope_without_import(name: str) -> dict[str, Any] | None:
    """Return the name and path of a module without importing it, or None for a namespace package."""
    if (found := sys.modules.get(name)) is not None:
        scope: dict[str, Any] = getattr(found, "__dict__", {})
        return None if scope.get("__file__") is None and "__path__" in scope else scope
    spec = importlib.util.find_spec(name)
    if spec is None or (spec.origin is None and spec.submodule_search_locations is not None):
        return None
    return {"__name__": name, "__file__": spec.origin if spec.has_location else None}


def _imports_of(code: types.CodeType) -> set[tuple[int, str, tuple[str, ...]]]:
    import dis  # it knows the bytecode of each version of Python

    steps = [step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "PUSH_NULL", "CACHE")]
    found = set()
    for before, names, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opcode == _IMPORT_NAME:
            found.add((before.argval, step.argval, names.argval if isinstance(names.argval, tuple) else ()))
        elif str(names.argval) in _IMPORTERS and isinstance(step.argval, str) and step.opname.startswith("LOAD_CONST"):
            name = step.argval.lstrip(".")
            found.add((len(step.argval) - len(name), name, ()))
    return found


def _code_of(code: types.CodeType) -> _Code:
    if (known := _codes.get(id(code))) is not None:
        return known
    nested = [_code_of(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    loads, imports = {name for one in nested for name in one.loads}, {name for one in nested for name in one.imports}
    if _IMPORT_NAME in code.co_code[::2] or not _IMPORTERS.isdisjoint(code.co_names):
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
    texts = {constant for constant in code.co_consts if isinstance(constant, str)}
    names = {*code.co_names, *texts, *(part for text in texts if "." in text for part in text.split("."))}
    names |= {name for one in nested for name in one.names}
    if len(_codes) >= _MAX_CODES:
        _codes.clear()
    return _codes.setdefault(id(code), _Code(code, form.hash.digest(), sorted(loads), sorted(imports), names))


def _global(module: str, name: str) -> Any:
    """Return the object to which a qualified name in an imported module refers, or None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _place_of(scope: dict[str, Any]) -> str:
    """Return the name of a module, or the path of a script, which is the same in spawned processes."""
    name, spec, path = scope.get("__name__"), scope.get("__spec__"), scope.get("__file__")
    if name not in ("__main__", "__mp_main__"):
        return str(name)
    return spec.name if spec is not None else "__main__" if path is None else f"__main__ {os.path.realpath(path)}"
