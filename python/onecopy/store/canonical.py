"""The canonical form of functions and values: bytes that are the same in all processes.

A function is identified by everything of the program's own code that it reaches: its code, defaults, closure,
annotations, the globals that it loads, the functions and classes among them with all that they reach, and the names
that are used of the program's own modules. The standard library and installed packages are identified by qualified name
and by what identifies the package (`onecopy.store.packages`), compiled modules of the program by their contents. The
package in which the function itself is installed belongs to the program: its code is followed as well. A value is
identified by its type and contents, other objects by their class, what pickle would store of them, and attributes that
it leaves out, in one canonical form: equal sets, strings and arrays have one identity, whatever the order of hashes.

Not part of it: line numbers, the environment, files (`onecopy.file_key`), attributes of installed modules, and what
only `eval`, `globals()` or a computed name reaches. Names of local variables are part of it, because `locals()` returns
them. A value without an identity, such as a lock, is an error that names it.
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
from pickle import PickleBuffer  # for the buffers of arrays: nothing is pickled or unpickled
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.store.equivalents import Program, equivalent_of
from onecopy.store.packages import NoIdentity, compiled_code_of, is_compiled, is_installed, package_of, requires_onecopy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class _Code(NamedTuple):
    """What the code of a function is and uses; nested code included."""

    code: types.CodeType  # kept, so that its `id` is not used again
    digest: bytes
    loads: list[str]  # names of globals
    imports: list[tuple[int, str, tuple[str, ...]]]  # level and name of modules, names that are imported from them
    names: set[str]  # all names and constant strings, which may be names of attributes of modules


class Reached:
    """The places where a form has found what it consists of, if all of that is immutable or in one of these places."""

    def __init__(self) -> None:
        self.functions: list[tuple[types.FunctionType, types.CodeType, Any, str]] = []
        """Functions of the program, with their code, defaults and names; they have no attributes."""
        self.cells: list[tuple[types.CellType, Any]] = []
        self.names: list[tuple[Mapping[str, Any], str, Any]] = []
        """Names in modules and annotations, and what they mean; `_MISSING` for what is a built-in."""
        self.annotations: list[tuple[types.FunctionType, dict[str, Any], int]] = []
        """Annotations, and how many there are."""

    def is_unchanged(self) -> bool:
        """Return whether each place still has what it had, which is all that the form depends on."""
        for function, code, defaults, name in self.functions:
            if function.__code__ is not code or function.__defaults__ is not defaults or function.__kwdefaults__:
                return False
            if function.__dict__ or function.__qualname__ != name:
                return False
        for function, known, count in self.annotations:
            if function.__annotations__ is not known or len(known) != count:
                return False
        for names, name, value in self.names:
            if names.get(name, _MISSING) is not value:
                return False
        for cell, value in self.cells:  # noqa: SIM110 - in one frame
            if cell == _EMPTY or cell.cell_contents is not value:
                return False
        return True


_MISSING = object()
_MOST_KEPT = 10_000
"""Items of a value that is kept in memory, though the program may drop it."""
_EMPTY = types.CellType()
_FLAT = {type(None), bool, int, float, str, bytes}
_AT_ONCE = 10_000  # items
_codes: dict[int, _Code] = {}
_MAX_CODES = 10_000
_LOAD_GLOBAL, _IMPORT_NAME = opcode.opmap["LOAD_GLOBAL"], opcode.opmap["IMPORT_NAME"]
_IMPORTERS = {"import_module", "__import__"}
_LOAD_NAMES = {opcode.opmap.get("LOAD_NAME"), opcode.opmap.get("LOAD_FROM_DICT_OR_GLOBALS")}
_OF_MODULES = {"__builtins__", "__cached__", "__file__", "__loader__", "__name__", "__path__", "__spec__"}
_OF_CLASSES = {"__dict__", "__weakref__", "__module__", "__annotations__", "__annotate__", "__annotate_func__"}
_OF_CLASSES |= {"__annotations_cache__", "__firstlineno__", "__slotnames__", "__static_attributes__"}
_OF_CLASSES |= {"_value2member_map_"}
"""Attributes that are identified otherwise, that change while a class is used, or that have addresses in them."""
_OF_CLASSES |= {"__pydantic_core_schema__", "__pydantic_serializer__", "__pydantic_validator__"}
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_LOCKS = {_thread.LockType, _thread.RLock}
"""Types whose objects have no contents: they may be attributes that a class leaves out of its pickles."""


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
        self._packages: dict[type, str | None] = {}  # of classes
        self._own: set[str] = set()  # installed packages that belong to the program
        self._modules: list[types.ModuleType] = []
        self._compiled: dict[str, None] = {}  # names of compiled modules of the program
        self._names = {"__getattr__"}
        self._scope: Mapping[str, Any] = {}  # of the annotations that are added
        self._is_left_out = False  # whether the value is one that a class leaves out of its pickles
        self.reached: Reached | None = Reached()  # None: also something that may change unseen
        self._noted: Any = None  # a dict whose names are noted

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
        self._noted = program.keywords  # which no other object has
        self._add_at("the arguments", (program.args, program.keywords))  # of a partial function

    def _package(self, scope: Mapping[str, Any]) -> str | None:
        """Return what identifies the code of a module; None for Python code of the program, which is followed."""
        module, file = str(scope.get("__name__")), scope.get("__file__")
        if file is None and "." in module and "__path__" not in scope:  # a compiled module has made it
            file = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None)
        found = package_of(module, file)
        if (found is None or found in self._own) and (found := compiled_code_of(file)) is not None:
            self._compiled[module] = self.reached = None
        return found

    def _package_of_class(self, kind: type) -> str | None:
        if kind not in self._packages:
            found = self._package(getattr(sys.modules.get(kind.__module__), "__dict__", {}))
            # What a library makes for the program is not found by its name there: collections.namedtuple and others.
            made = kind.__flags__ & _MADE_BY_PYTHON and _global(kind.__module__, kind.__qualname__) is not kind
            self._packages[kind] = None if made else found
        return self._packages[kind]

    def _library_name(self, value: Any) -> str | None:
        """Return the name and package of a class, function or module of a library; None for those of the program."""
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
        """Return the name of a module and what identifies its package; that of the program alone."""
        scope = getattr(sys.modules.get(module), "__dict__", {})
        package = self._package(scope)
        return f"{module} of {package}" if package is not None else _place_of(scope) if scope else str(module)

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
        return of_python and not issubclass(kind, type) and self._package_of_class(kind) is not None

    def add_names_of_modules(self) -> None:
        """Add what the names in all code that was added mean in the program's own modules that were added."""
        done: set[tuple[object, str]] = set()
        may_name = self._modules or self._compiled or "__subclasses__" in self._names
        while may_name and (waiting := [each for each in self._named() if each[0] not in done]):
            for key, step, value in waiting:
                done.add(key)
                self._put(b"name", key[1].encode())
                self._add_at(step, value)

    def _named(self) -> Iterator[tuple[tuple[object, str], str, Any]]:
        """Yield what the names in code mean in modules, and subclasses if code asks for them."""
        for number, module in enumerate(self._modules):
            names = self._names & vars(module).keys()
            if "__getattr__" in names:  # PEP 562
                names |= {name for name in self._names - names if not name.startswith("_") and _has(module, name)}
            for name in sorted(names - _OF_MODULES):
                yield (number, name), f"{name!r} of {module.__name__}", getattr(module, name)
        for owner in tuple(self._compiled):
            found: dict[str, Any] = getattr(sys.modules.get(owner), "__dict__", {})
            for name, value in tuple(found.items()):
                if isinstance(value, (type, types.FunctionType, types.ModuleType)) and name not in _OF_MODULES:
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
        package = self._package(scope)
        self._put_text(b"function", _place_of(scope), package or "", function.__qualname__)
        if package is not None and function.__code__.co_qualname == "singledispatch.<locals>.wrapper":
            self._add_dict(dict(function.registry))  # type: ignore[attr-defined]
            return  # it closes over weak references
        self.hash.update(code.digest)
        self._names |= code.names
        self._note_function(function, code)
        self._add_at("the defaults", (function.__defaults__, function.__kwdefaults__))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._put_text(b"name", name)
            if cell != _EMPTY:  # of a variable that is not assigned yet
                self._add_at(repr(name), cell.cell_contents)
        self._add_dict(vars(function))
        if package is None:
            self._add_annotations(function, scope)
            self._add_globals(code, scope)

    def _note_function(self, function: types.FunctionType, code: _Code) -> None:
        """Note what a function consists of, if no part of it can change unseen."""
        cells = function.__closure__ or ()
        if "__subclasses__" in code.names or function.__dict__ or any(cell == _EMPTY for cell in cells):
            self.reached = None
        if self.reached is not None:
            self.reached.functions.append((function, function.__code__, function.__defaults__, function.__qualname__))
            self._note_name(function.__globals__, "__name__")
            self.reached.cells += [(cell, cell.cell_contents) for cell in cells]

    def _note_name(self, names: Mapping[str, Any], name: str) -> None:
        value = names.get(name, _MISSING)
        if isinstance(value, (bytes, str, tuple)) and len(value) > _MOST_KEPT:
            self.reached = None
        if self.reached is not None:
            self.reached.names.append((names, name, value))

    def _add_annotations(self, value: Any, scope: Mapping[str, Any]) -> None:
        """Add the annotations of a function or class, and what names in annotations that are text mean."""
        if (annotate := getattr(value, "__annotate__", None)) is not None:  # Python 3.14: evaluated when they are used
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
            self.reached.annotations.append((value, annotations, len(annotations)))
            self.reached.names += [(annotations, name, each) for name, each in annotations.items()]

    def _add_words(self, text: str) -> None:
        """Add what the names in an annotation that is text mean in its module."""
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
        for level, name, members in code.imports:
            package = scope.get("__package__") or str(scope.get("__name__")).rpartition(".")[0]
            self._add_import(f"{'.' * level}{name}", members, package)

    def _add_import(self, given: str, members: tuple[str, ...], package: str) -> None:
        """Add a module that a function imports; one of the program is imported here, an installed one is not."""
        names = list[str]()
        with suppress(ImportError, ValueError):  # the function raises it
            name = importlib.util.resolve_name(given, package)
            parts = name.split(".")
            names = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
            scope = next(filter(None, map(_scope_without_import, names)), {})  # of the first that has code
            if (found := self._package(scope)) is not None and scope["__name__"] not in self._compiled:
                self._note_name(sys.modules, scope["__name__"])
                self._put_text(b"import", name, found)
                return
            self.reached = None
            importlib.import_module(name)
            for member in members:
                if not hasattr(sys.modules[name], member):  # a module in a package
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
        for name, value in tuple(kind.__dict__.items()):  # classes note the names of slots
            if name == "__doc__" and str(value).startswith(f"{kind.__name__}("):
                continue  # `dataclasses` has made it of names and defaults
            if name == "_abc_impl":  # classes that were registered, behind weak references
                registered = {found for reference in _abc._get_dump(kind)[0] if (found := reference()) is not None}
                self._add_at(f"the classes that are registered for {kind.__qualname__}", registered)
            elif name not in _OF_CLASSES:
                self._put_text(b"attribute", name)
                self._add_at(f"{name!r} of {kind.__qualname__}", value)
        self._add_annotations(kind, getattr(sys.modules.get(kind.__module__), "__dict__", {}))

    def _add_call(self, function: Any, step: str, given: Any) -> None:
        self._put(b"call", b"")
        self.add(function)
        self._add_at(step, given)

    def _add_object(self, value: Any, kind: type) -> None:
        """Add an object as its class and what it is made from when it is unpickled, and its attributes."""
        self._put(b"object", b"")
        self.add(kind)
        if (same := equivalent_of(value, kind)) is not NotImplemented:
            self.add(same)
        elif isinstance(value, (set, frozenset)):  # they pickle their items in the order of hashes
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
        """Add the attributes of an object whose class chooses what it pickles; of a library, those of the program."""
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
"""Types whose values have no identity beyond their contents."""

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


def _module_with(value: Any, name: str) -> str:
    """Return the module in which a name means an object; NoIdentity if there is none."""
    module = getattr(value, "__module__", None)
    if isinstance(module, str) and _global(module, name) is value:
        return module
    found = (each for each, module in tuple(sys.modules.items()) if getattr(module, "__dict__", {}).get(name) is value)
    compiled = [each for each in found if is_compiled(getattr(sys.modules[each], "__file__", None))]
    if not compiled:
        raise NoIdentity(f"a {type(value).__qualname__}, is pickled as {name!r}, the name of another object")
    return min(compiled)


def _innermost(function: Any) -> Any:
    """Return the function that partial functions, methods and decorators call; the class of another callable object."""
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
    except Exception:  # of the `__getattr__` of the module: the function raises it
        return False


def _scope_without_import(name: str) -> dict[str, Any] | None:
    """Return name and path of a module, which need not be imported; None for a folder of packages without code."""
    if (found := sys.modules.get(name)) is not None:
        scope: dict[str, Any] = getattr(found, "__dict__", {})
        return None if scope.get("__file__") is None and "__path__" in scope else scope
    spec = importlib.util.find_spec(name)
    if spec is None or (spec.origin is None and spec.submodule_search_locations is not None):
        return None
    return {"__name__": name, "__file__": spec.origin if spec.has_location else None}


def _imports_of(code: types.CodeType) -> set[tuple[int, str, tuple[str, ...]]]:
    import dis  # knows how each version of Python writes a name and a constant

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
    """Return what a qualified name means in a module that is imported; None if nothing."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _place_of(scope: dict[str, Any]) -> str:
    """Return the name of a module; for that of a script its path, which is the same in spawned processes."""
    name, spec, path = scope.get("__name__"), scope.get("__spec__"), scope.get("__file__")
    if name not in ("__main__", "__mp_main__"):
        return str(name)
    return spec.name if spec is not None else "__main__" if path is None else f"__main__ {os.path.realpath(path)}"
