"""`cached`: a decorator for functions whose results are built once per machine and mapped by all processes.

    @oc.cached(inputs=["annotations.json"])
    def annotations():
        return json.loads(pathlib.Path("annotations.json").read_text())

    rows = annotations()     # the first process on the machine calls the function; all others map its result

The decorator calls `onecopy.share` (for rows of plain values) or `onecopy.share_object` (for any object) with a key
computed from the input files, the function's code and its arguments.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from onecopy import data
from onecopy.errors import FileChanged
from onecopy.store import Store, file_key, keys

if TYPE_CHECKING:
    from onecopy_records.rows import Dict, List

__all__ = ["Cached", "cached"]

P = ParamSpec("P")
K = TypeVar("K")
T = TypeVar("T")
Path: TypeAlias = "str | os.PathLike[str]"
Inputs: TypeAlias = "Iterable[Path] | Callable[..., Iterable[Path]]"
Codec: TypeAlias = Literal["records", "object"]
Progress: TypeAlias = "Callable[[int, int], object] | None"


class Cached(Generic[P, T]):
    """A function decorated with `cached`; ``__wrapped__`` is the function itself."""

    __wrapped__: Callable[P, Any]

    def __init__(
        self,
        function: Callable[P, Any],
        *,
        inputs: tuple[Path, ...] | Callable[..., Iterable[Path]],
        version: str,
        codec: Codec,
        store: Store | Path | None,
        progress: Progress,
    ) -> None:
        functools.update_wrapper(self, function)
        self._inputs, self._version = inputs, version
        self._codec, self._store, self._progress = codec, store, progress

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """Return a bound method. The object is the first argument, so the key includes its class and attributes."""
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the function's result for these arguments, which is built once per machine."""
        inputs = self._keys(*args, **kwargs)
        if kwargs or len(args) != self._positional:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs  # type: ignore[assignment]

        def make() -> Any:
            made = self.__wrapped__(*args, **kwargs)
            if self._codec == "records" and isinstance(made, Iterator):  # which may still read the inputs
                return _rows(made, inputs)
            _expect_unchanged(inputs)
            return made

        name = keys.name_of(self.__wrapped__, (args, kwargs))
        key, store, source = _key_of(inputs, self._version), Store.of(self._store), next(iter(inputs), None)
        if self._codec == "object":
            return data.stored_object(make, f"{key}, object by {name}", store, source)  # type: ignore[no-any-return]
        return data.stored_rows(make, f"{key}, by {name}", store, source, self._progress)  # type: ignore[no-any-return]

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)

    @functools.cached_property
    def _positional(self) -> int:
        """The number of parameters, or -1 if some of them cannot be passed by position."""
        kinds = [each.kind for each in self._signature.parameters.values()]
        positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        return len(kinds) if all(kind in positional for kind in kinds) else -1

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key for the input files and the version. Raise FileNotFoundError if a file is missing."""
        return _key_of(self._keys(*args, **kwargs), self._version)

    def _keys(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, str]:
        """Return the key of each input file, by path."""
        given = _paths(self._inputs(*args, **kwargs)) if callable(self._inputs) else self._inputs
        return {os.fspath(path): file_key(path) for path in given}

    def __reduce__(self) -> str:  # by name, like functions
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<onecopy.cached {self.__module__}.{self.__qualname__}>"

    if TYPE_CHECKING:  # set by functools.update_wrapper
        __qualname__: str
        __name__: str


class _OfRows(Protocol):
    """The type of the decorator that `cached` returns with ``codec="records"``."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a mapping is an iterable too; it becomes a Dict
        self, function: Callable[P, Mapping[K, T]], /
    ) -> Cached[P, Dict[K, T]]: ...

    @overload
    def __call__(self, function: Callable[P, Iterable[T]], /) -> Cached[P, List[T]]: ...


@overload
def cached(function: Callable[P, Mapping[K, T]], /) -> Cached[P, Dict[K, T]]: ...  # type: ignore[overload-overlap]


@overload
def cached(function: Callable[P, Iterable[T]], /) -> Cached[P, List[T]]: ...


@overload
def cached(
    *,
    inputs: Inputs = (),
    version: str = "",
    codec: Literal["records"] = "records",
    store: Store | Path | None = None,
    progress: Progress = None,
) -> _OfRows: ...


@overload
def cached(
    *, inputs: Inputs = (), version: str = "", codec: Literal["object"], store: Store | Path | None = None
) -> Callable[[Callable[P, T]], Cached[P, T]]: ...


def cached(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inputs: Inputs = (),
    version: str = "",
    codec: Codec = "records",
    store: Store | Path | None = None,
    progress: Progress = None,
) -> Any:
    """Build a function's result once per machine, and share it with all processes and later runs.

    The result is built again when an input file or an argument changes, or when the program changes: the function's
    code, defaults, closure, annotations and globals; the functions and classes that it uses, directly or indirectly (in
    an installed package too, if the function belongs to that package); the compiled modules of the program; or the
    version or installed files of a package that it uses. Two functions never share a result. Use ``@oc.cached`` or
    ``@oc.cached(...)``. For a method, the object counts as an argument.

    Some changes are **not detected**. If the result depends on any of these, pass it as an argument or in `version`:

    * environment variables, the current directory, the clock, random numbers, the order of a set of strings
      (PYTHONHASHSEED), and files that are not among the `inputs`, such as those read with `importlib.resources`;
    * process settings: options of pandas, NumPy and torch, the precision of `decimal`, the locale, log levels, names
      added to `builtins`, handlers and accessors registered with a library;
    * edits of installed packages, attributes that the program has replaced in installed modules, and the versions of
      packages that are used only by other installed packages;
    * code that the program finds by a computed name: `eval`, `globals()`, `vars(module)`, `sys.modules[name]`, or an
      import or attribute whose name is not a constant;
    * values that `functools.cache` has already stored, and whether an array is writable.

    Parameters
    ----------
    inputs
        Paths of all files (not folders) that the function reads, directly or indirectly; or a function that returns
        these paths when it is called with the same arguments.
    version
        Any text; it becomes part of the key.
    codec
        "records": the function returns (or yields) rows of plain values, or returns a dict; a call returns a List,
        Table or Dict, like `onecopy.share`. Other containers raise an error. "object": the function returns any object
        that can be pickled; a call returns an equal object whose arrays are views of a mapped file, like
        `onecopy.share_object`.
    store
        A `onecopy.Store`, or a folder; None: the default store on disk.
    progress
        As for `onecopy.share`; only with ``codec="records"``.

    Returns
    -------
    Callable
        A decorator. The decorated function can be pickled and called in any process. It keeps no results in memory:
        each call computes the key and opens the result again. This takes about a millisecond, plus the time to unpickle
        an object, plus about a second per GB of arguments and globals, because every call hashes them. Instead of big
        data, pass a path or list a file in `inputs`.

    Raises
    ------
    TypeError
        When called: an argument, a value that the function uses, or an attribute (except a lock) that a class omits
        from its pickles has no stable identity. The message names it.
    FileNotFoundError, FileChanged
        When called: an input file is missing, or changed while the function read it.
    Exception
        When called: the same errors as `onecopy.share` or `onecopy.share_object`.

    Examples
    --------
    >>> import onecopy as oc, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> path = folder / "names.txt"
    >>> _ = path.write_text("Ada Grace Edsger")
    >>> @oc.cached(inputs=[path], store=folder / "store")
    ... def names(minimum=0):
    ...     return [name for name in path.read_text().split() if len(name) > minimum]
    >>> list(names(3))
    ['Grace', 'Edsger']
    """
    if codec not in ("records", "object"):
        raise ValueError(f"codec must be 'records' or 'object', not {codec!r}")
    if codec == "object" and progress is not None:
        raise ValueError("progress is available only with codec='records'")

    if function is not None and not callable(function):
        raise TypeError(f"cached decorates a function, not {function!r}: pass paths as inputs=[...]")
    decorate = functools.partial(
        Cached[Any, Any],
        inputs=inputs if callable(inputs) else _paths(inputs),
        version=version,
        codec=codec,
        store=store,
        progress=progress,
    )
    return decorate if function is None else decorate(function)


def _rows(rows: Iterator[T], before: dict[str, str]) -> Iterator[T]:
    yield from rows
    _expect_unchanged(before)


def _paths(given: Iterable[Path]) -> tuple[Path, ...]:
    if isinstance(given, (str, bytes, os.PathLike)):
        raise TypeError(f"inputs must be a list, not one path: pass [{given!r}]")
    return tuple(given)


def _expect_unchanged(before: dict[str, str]) -> None:
    for path, key in before.items():
        if file_key(path) != key:
            raise FileChanged(errno.ESTALE, "the file changed while a cached function read it", path)


def _key_of(inputs: dict[str, str], version: str) -> str:
    words, others = list(inputs.values())[:1], list(inputs.values())[1:]
    if version:
        words.append(f"version {version}")
    if others:
        words.append(f"with {len(others)} other inputs {keys.digest_of(others, 'the inputs')}")
    return ", ".join(words) or "no inputs"
