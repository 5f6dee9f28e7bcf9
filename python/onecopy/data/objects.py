"""`save_object`, `load_object` and `share_object`: any Python object in a file whose arrays are mapped.

    oc.save_object("knn.oc", model)                       # a scikit-learn model, a DataFrame, a dataclass of arrays ...
    model = oc.load_object("knn.oc", trusted=True)        # arrays are views of the file, one copy per machine
    model = oc.share_object(train, key=oc.file_key(path)) # built once per machine, then loaded by every process

The file is a valid safetensors file. The object's buffers (NumPy arrays, CPU torch tensors, pandas columns, Arrow
buffers) are arrays in that file, with names such as "coef_"; `onecopy.open` shows them without running any code. The
rest, usually a few kilobytes, is a pickle in the array "object.pickle".

**Trust.** A pickle is a program: loading it runs code that its author wrote. Only two functions load pickles:
`load_object` with ``trusted=True``, and `share_object` for files in a store that only this user can access.

**When not to use it.** For rows of plain Python values, use `onecopy.share`, which keeps them in the file; unpickling
creates all of them in each process. For weights alone, use `onecopy.save`.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
import weakref
from collections import deque
from contextlib import suppress
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from onecopy import arrays, store
from onecopy.base.load_report import Copied, LoadReport
from onecopy.base.tensor_values import is_lazy, is_tensor, why_not_dense
from onecopy.data import unpickle
from onecopy.errors import FormatError, Kind
from onecopy.store import Store, free_unused_memory, name_of, text_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from weakref import ReferenceType

    from numpy.typing import NDArray

    from onecopy.arrays import ArrayFile
    from onecopy.store import Artefact

    Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

__all__ = ["Copied", "LoadReport", "load_object", "save_object", "share_object"]

T = TypeVar("T")
_MIN_WARNED_BYTES = 1 << 20


def load_object(
    path: str | os.PathLike[str] | Artefact,
    *,
    trusted: bool,
    private: bool = False,
    report: Callable[[LoadReport], object] | None = None,
) -> Any:
    """Return the object that `save_object` wrote, with arrays that are views of the mapped file.

    The call does not read the arrays. All processes that load the file share one copy, and each view keeps it mapped.

    **This runs code from the file**: unpickling calls the functions that its author chose. Load only files that you
    wrote yourself, or that come from a source whose programs you would install. `onecopy.open` shows the arrays of any
    file without running code.

    Parameters
    ----------
    path
        Path of the file, or an `Artefact` of a `Store`.
    trusted
        Must be True, to confirm that the file may run code in this process.
    private
        True: arrays are writable, in copy-on-write pages: the file never changes, and written pages become private
        memory of this process. False: NumPy arrays are read-only; torch tensors are still writable, because torch
        has no read-only tensors.
    report
        Called with a `LoadReport`. None: the logger "onecopy" warns if 1 MiB or more is copied: the pickle, and arrays
        that the object's classes copy during loading, as scikit-learn's trees do.

    Raises
    ------
    ValueError
        `trusted` is not True. Nothing was opened.
    OSError
        The file cannot be opened or mapped.
    FormatError
        The file was not written by `save_object`, or it is damaged.
    ChecksumError, NoChecksum
        The pickle does not match its checksum, or has no checksum. Nothing was unpickled. The arrays are not verified,
        because they are only data; use `ArrayFile.verify` to verify them.
    Exception
        Errors of the object's classes, such as ImportError if they are missing. A note states the file's path and
        the versions of the packages that wrote it.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "table.oc")
    >>> oc.save_object(path, {"table": np.arange(1000.0)})
    >>> table = oc.load_object(path, trusted=True, report=lambda report: print(report.mapped))["table"]
    8000
    >>> table[-1], table.flags.writeable
    (np.float64(999.0), False)
    """
    if trusted is not True:
        raise ValueError(
            f"load_object unpickles {path}, which runs code from the file: pass trusted=True if you trust its author; "
            "onecopy.open shows its arrays without running code"
        )
    with arrays.open(path, private=True) as file:
        about = about_of(file)
        file.verify([name for name in (PICKLE, BUFFERS, SMALL) if name in file])
        rows = buffers_of(file, about.arrays)
        views = _views(file, rows, private=private)
        alive = [weakref.ref(view) for view in views]
        try:
            value = pickle.loads(file[PICKLE].data, buffers=views)  # noqa: S301 - the caller trusts the file
        except Exception as error:
            versions = ", ".join(f"{name} {version}" for name, version in about.packages.items())
            error.add_note(
                f"{file.path}: a {about.type}, saved by Python {about.python} with {versions or 'no packages'}"
            )
            raise
        pickled = file.entry(PICKLE).nbytes
    views.clear()
    _report(_loaded(file.path, pickled, rows, alive), report)
    return value


load_object.__kwdefaults__ = {**(load_object.__kwdefaults__ or {}), "trusted": False}  # only type checkers require it


def _loaded(path: str, pickled: int, rows: list[Buffer], views: list[ReferenceType[Any]]) -> LoadReport:
    """Return a report: the bytes of views that still exist are mapped; the object's classes copied the other bytes."""
    mapped, copied = 0, {PICKLE: pickled}
    for row, view in zip(rows, views, strict=True):
        if view() is not None:
            mapped += row.nbytes
        elif row.nbytes:
            copied[row.array] = copied.get(row.array, 0) + row.nbytes
    reasons = {PICKLE: "all parts except arrays are unpickled"}
    parts = [Copied(name, n, reasons.get(name, "copied by the object's classes")) for name, n in copied.items()]
    return LoadReport(path, mapped, tuple(sorted(parts, key=lambda one: -one.bytes)))


def _report(found: LoadReport, report: Callable[[LoadReport], object] | None) -> None:
    if report is not None:
        report(found)
    elif sum(one.bytes for one in found.copied) >= _MIN_WARNED_BYTES:
        import logging

        logging.getLogger("onecopy").warning("onecopy: %s", found)


def _views(file: ArrayFile, rows: Sequence[Buffer], *, private: bool) -> list[NDArray[Any]]:
    """Return the bytes of each buffer as a separate array, without copying."""
    import numpy as np

    memory = {name: file.memory_of(name).view for name in {row.array for row in rows}}
    views = []
    for row in rows:  # a view whose base is an array would refer to the base of that array: use memoryviews
        view = np.ndarray(row.nbytes, np.uint8, memory[row.array][row.offset : row.offset + row.nbytes])
        view.flags.writeable = private or row.is_tensor
        views.append(view)
    return views


# --- the file ---------------------------------------------------------------------------------------------------------
#
# The file has one array for each buffer of 1 KiB and more, named after its path in the object, and these arrays:
#
# * "object.pickle", U8: the pickle (protocol 5, buffers out of band).
# * "object.buffers", I64 of shape (n, 4): a row for each buffer, in the order in which the pickle needs them: the
#   number of its array (0: "object.small"; i: the i-th of the list "arrays" in the metadata), the offset of its first
#   byte there, its size in bytes, and 1 if it is memory of a torch tensor, else 0.
# * "object.small", U8: all smaller buffers, each at a multiple of 16 bytes.
#
# The metadata has the key "onecopy.object": a JSON object with "version", "type" (the class of the object), "arrays",
# "python" and "packages" (the versions of the packages whose classes the pickle names).

METADATA = "onecopy.object"
PICKLE, BUFFERS, SMALL = "object.pickle", "object.buffers", "object.small"
VERSION = 1
MIN_BYTES = 1024
"""Minimum size in bytes of a buffer that is stored as a separate array."""
SMALL_ALIGNMENT = 16


class Buffer(NamedTuple):
    """The location of a buffer, as a row in "object.buffers"."""

    array: str
    offset: int
    nbytes: int
    is_tensor: bool


class About(NamedTuple):
    """The description of an object in its file's metadata."""

    type: str
    """Module and name of the object's class."""
    arrays: list[str]
    """Names of the arrays that consist of a single buffer."""
    python: str
    """Version of Python, such as "3.11"."""
    packages: dict[str, str]
    """Versions of the packages whose classes the pickle uses."""


def version_of(package: str) -> str | None:
    """Return an imported package's version as recorded in an object's file, or None if it is unknown."""
    module = sys.modules.get(package)
    version = getattr(module, "__version__", None)
    return version if isinstance(version, str) else store.version_of(getattr(module, "__file__", None))


def about_of(file: ArrayFile) -> About:
    """Return the description of the object in a file. Raise FormatError if it is missing, damaged or too new."""
    text = file.metadata.get(METADATA)
    if text is None:
        raise FormatError(
            "expected a file written by onecopy.save_object, found a file of arrays: use onecopy.open",
            Kind.NOT_THIS_FORMAT,
            path=file.path,
        )
    try:
        fields: Any = json.loads(text)
        found, version = About(*(fields[name] for name in About._fields)), fields["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(file, f"the metadata {METADATA!r} does not describe an object") from None
    if version != VERSION:
        raise FormatError(
            f"version {version!r} of the object layout is not supported: use a newer onecopy",
            Kind.UNSUPPORTED,
            path=file.path,
        )
    if not _has_types(*found):
        raise _damaged(file, f"the metadata {METADATA!r} contains values of the wrong types")
    return found


def _has_types(kind: Any, arrays: Any, python: Any, packages: Any) -> bool:
    if not isinstance(arrays, list) or not isinstance(packages, dict):
        return False
    return all(isinstance(one, str) for one in (kind, python, *arrays, *packages, *packages.values()))


def buffers_of(file: ArrayFile, names: list[str]) -> list[Buffer]:
    """Return the locations of the buffers. Raise FormatError if a buffer is outside of the arrays."""
    sizes = {entry.name: entry.nbytes for entry in file.entries}
    missing = [name for name in (PICKLE, BUFFERS, SMALL, *names) if name not in sizes]
    if missing:
        raise _damaged(file, f"array {missing[0]!r} is missing", Kind.INCONSISTENT)
    entry = file.entry(BUFFERS)
    if entry.dtype != "I64" or len(entry.shape) != 2 or entry.shape[1] != 4:
        raise _damaged(file, f"{BUFFERS!r} must be an array of type I64 and shape (n, 4)")
    found = []
    for number, (which, offset, nbytes, of_tensor) in enumerate(file[BUFFERS].tolist()):
        name = SMALL if which == 0 else names[which - 1] if 0 < which <= len(names) else None
        if name is None or offset < 0 or nbytes < 0 or offset > sizes[name] or nbytes > sizes[name] - offset:
            raise _damaged(file, f"row {number} of {BUFFERS!r} is outside of the arrays", Kind.OUT_OF_BOUNDS)
        found.append(Buffer(name, offset, nbytes, bool(of_tensor)))
    return found


def _damaged(file: ArrayFile, what: str, kind: Kind = Kind.MALFORMED) -> FormatError:
    return FormatError(f"the file is damaged: {what}", kind, path=file.path)


def share_object(
    factory: Callable[[], T],
    key: str,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    private: bool = False,
    report: Callable[[LoadReport], object] | None = None,
) -> T:
    """Return the object that a function builds once per machine, with arrays that all processes share.

    The first process on the machine that calls this function calls `factory` and writes the object to the store
    (`save_object`). All processes, in this run and later ones, load it from there (`load_object`) without reading the
    arrays. Before unpickling, the call checks that only this user has access to the store, and verifies the pickle's
    checksums.

    Parameters
    ----------
    factory
        A function without arguments that returns the object. As with `onecopy.cached`, the object is built again if the
        function, or any of the program's code that it uses, changes. It is also built again if the version of Python,
        or of a package whose classes the object contains, changes.
    key
        Text that identifies the data from which the object is built; see `onecopy.file_key`.
    store
        A `onecopy.Store`, or a folder; None: the default store on disk.
    source
        The file from which the object is built. `onecopy store ls` shows it. A change during the build raises an error.
    private, report
        As for `load_object`.

    Raises
    ------
    TypeError
        The key is not text, or the function uses a value without a stable identity; the message names the value.
    OSError
        ENOSPC: there is not enough space. Other errors: the folder cannot be used.
    TimeoutError, FileChanged, ChildProcessError
        See `onecopy.Store.get_or_build`.
    Exception
        Errors of `factory`, and of the object's classes during pickling or unpickling.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile
    >>> store = oc.Store(tempfile.mkdtemp())
    >>> squares = oc.share_object(lambda: {"squares": np.arange(1000) ** 2}, "squares up to 1000", store=store)
    >>> squares["squares"][7], squares["squares"].flags.writeable
    (np.int64(49), False)
    """
    if not callable(factory):
        raise TypeError(
            f"share_object expects a function that returns the object, not a {type(factory).__name__}: use lambda: data"
        )
    name = f"{text_of(key)}, object by {name_of(factory)}"
    value: T = stored_object(factory, name, Store.of(store), source, private=private, report=report)
    return value


def stored_object(
    make: Callable[[], Any],
    key: str,
    place: Store,
    source: str | os.PathLike[str] | None,
    *,
    private: bool = False,
    report: Callable[[LoadReport], object] | None = None,
) -> Any:
    """Load an object from the store, or build it there with `make` if it is missing. `key` identifies the source."""

    def find(name: str) -> Artefact:
        return place.get_or_build(name, lambda path: save_object(path, make(), durable=place.durable), source=source)

    name = f"{key}, Python {python_version()}"
    found = find(name)
    if versions := _other_versions(found):
        found = find(f"{name}, {versions}")
    if found.built:
        free_unused_memory()
    return load_object(found, trusted=True, private=private, report=report)


def _other_versions(found: Artefact) -> str:
    """Return the installed versions of an object's packages if any of them has changed, or "" otherwise."""
    with arrays.open(found) as file:
        saved = about_of(file).packages
    now = dict[str, str | None]()
    for name in saved:
        with suppress(ImportError):  # unpickling will raise it again
            import_module(name)
        now[name] = version_of(name)
    return ", ".join(f"{name} {version}" for name, version in now.items()) if now != saved else ""


class _Part(NamedTuple):
    """A buffer outside of the pickle. Tensors that share memory share a buffer."""

    name: str
    """Path of the array in the object, or the class that contains the array. Names may repeat."""
    content: Any
    """The value to save: an array or tensor with the type and shape of the data, or its bytes."""
    raw: memoryview
    """The bytes of `content`."""
    is_tensor: bool


def _content(flat: NDArray[Any], raw: NDArray[Any]) -> NDArray[Any]:
    """Convert an array for saving: if safetensors lacks its type, to bytes with an additional axis."""
    little = flat.dtype.newbyteorder("<") == flat.dtype
    return flat if little and arrays.of_numpy(flat.dtype) else raw.reshape(*flat.shape, flat.dtype.itemsize)


def _is_spacy_vectors(value: Any) -> bool:
    kind = type(value)
    return (kind.__module__, kind.__name__) == ("spacy.vectors", "Vectors") and is_array(value.data)


def _arrow_of(value: Any) -> Any:
    """Convert a polars frame or series to an Arrow table. Return None for other values, or if Arrow would change it."""
    polars = sys.modules.get("polars")
    if polars is None or type(value) not in (polars.DataFrame, polars.Series):
        return None
    try:
        frame = value if type(value) is polars.DataFrame else value.to_frame()
        table = frame.to_arrow(compat_level=polars.CompatLevel.newest())
        return table if unpickle.polars_frame(table).schema == frame.schema else None
    except Exception:  # any error of polars or Arrow, or pyarrow is missing
        return None


class _Buffers:
    """The buffers outside of a pickle.

    They must not refer to the pickler: in a reference cycle, they would exist until the garbage collector clears them,
    and clearing views of memory that is still exported crashes classes such as scikit-learn's trees.
    """

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.owner = ""
        """The class whose object is being pickled."""
        self._waiting: dict[int, tuple[pickle.PickleBuffer, _Part]] = {}  # by `id` of the buffer

    def name(self, kind: str) -> str:
        """Return a name for the next buffer, for use if its path in the object is unknown."""
        return f"{self.owner or kind} {len(self.parts)}"

    def add(self, part: _Part) -> pickle.PickleBuffer:
        """Add a part, and return its buffer for the pickler, which then passes it to `take`."""
        buffer = pickle.PickleBuffer(part.raw)
        self._waiting[id(buffer)] = buffer, part
        return buffer

    def take(self, buffer: pickle.PickleBuffer) -> None:
        """Keep a buffer out of the pickle."""
        import numpy as np

        _, part = self._waiting.pop(id(buffer), (None, None))
        if part is None:  # from another library, such as Arrow
            raw = buffer.raw()
            part = _Part(self.name("buffer"), np.frombuffer(raw, np.uint8), raw, False)
        self.parts.append(part)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, paths: dict[int, str]) -> None:
        self.buffers = _Buffers()
        super().__init__(file, protocol=5, buffer_callback=self.buffers.take)
        self.modules: set[str] = set()
        self._paths = paths
        self._storages: dict[int, _Part] = {}

    def reducer_override(self, value: Any) -> Any:
        """Return a function and arguments that recreate an array, tensor or storage, or NotImplemented otherwise."""
        if isinstance(value, (type, FunctionType)):
            self.modules.add(str(value.__module__).partition(".")[0])
            return NotImplemented
        if is_array(value):
            return self._reduced_array(value)
        if is_tensor(value):
            return self._reduced_tensor(value)
        if type(value) is _Part:
            return unpickle.storage, (self.buffers.add(value),)
        if (reduced := self._reduced_of_library(value)) is not None:
            return reduced
        if not hasattr(value, "__qualname__") and type(value).__module__.partition(".")[0] != "numpy":
            self.buffers.owner = type(value).__name__
        return NotImplemented

    def _reduced_of_library(self, value: Any) -> Reduced | None:
        """Return a function and arguments that recreate an object, or None unless its library pickles it as bytes."""
        if (table := _arrow_of(value)) is not None:
            self.buffers.owner, self.modules = type(value).__name__, self.modules | {"polars"}
            return (unpickle.polars_frame if self.buffers.owner == "DataFrame" else unpickle.polars_series), (table,)
        if _is_spacy_vectors(value):
            self.buffers.owner, self.modules = "Vectors", self.modules | {"spacy"}
            options = {name: getattr(value, name) for name in unpickle.OPTIONS_OF_SPACY_VECTORS}
            return unpickle.spacy_vectors, (value.strings, value.data, value.key2row, options)
        return None

    def _reduced_array(self, value: NDArray[Any]) -> Reduced | Any:
        import numpy as np

        if type(value) not in (np.ndarray, np.memmap) or value.dtype.hasobject or value.dtype.itemsize == 0:
            return NotImplemented  # numpy puts the data into the pickle
        array = np.asarray(value)
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        if not array.flags.forc:
            array = array.copy()
        flat = array.T if order == "F" else array
        raw = flat.reshape(-1).view(np.uint8)  # arrays of datetime64 and bfloat16 have no buffer
        part = _Part(self._name(value), _content(flat, raw), raw.data, False)
        return unpickle.array, (self.buffers.add(part), array.dtype, array.shape, order)

    def _reduced_tensor(self, value: Any) -> Reduced | Any:
        import torch

        if type(value) is torch.nn.Parameter and not value.__dict__ and not value._backward_hooks:
            data = value.data
            self._paths[id(data)] = self._name(value)  # the pickler keeps `data` until it ends
            return unpickle.parameter, (data, value.requires_grad)
        plain = type(value) is torch.Tensor and value.device.type == "cpu" and value.is_leaf
        if not plain or why_not_dense(value) or is_lazy(value) or value.__dict__ or value._backward_hooks:
            return NotImplemented  # torch puts the data into the pickle
        memory = value.untyped_storage()
        storage = self._storages.get(memory._cdata)
        if storage is None:
            raw = torch.empty(0, dtype=torch.uint8).set_(memory).numpy()
            whole = value.is_contiguous() and value.nbytes == memory.nbytes() and not value.dtype.is_complex
            content = value.detach() if whole else raw
            storage = self._storages[memory._cdata] = _Part(self._name(value), content, raw.data, True)
        dtype, shape, strides = str(value.dtype).removeprefix("torch."), tuple(value.shape), value.stride()
        return unpickle.tensor, (storage, dtype, value.storage_offset(), shape, strides, value.requires_grad)

    def _name(self, value: Any) -> str:
        return self._paths.get(id(value)) or self.buffers.name("array")


_MAX_OBJECTS = 100_000
"""Maximum number of objects to visit. Arrays in other objects are named after the class that contains them."""
_MAX_ITEMS = 1000
"""Maximum number of items to visit in a list or dict."""
_MAX_NAME_LENGTH = 200
_TORCH_MODULE_ATTRIBUTES = ("_modules", "_parameters", "_buffers")
"""Attributes that the names of weights, such as "0.weight", omit."""
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), type)


def paths_of(value: Any) -> dict[int, str]:
    """Map the `id` of each array and tensor in an object to its shortest path, without calling the object's methods.

    >>> import numpy as np
    >>> inner = np.zeros(3)
    >>> paths_of({"layers": [inner], "x y": 1})[id(inner)]
    'layers[0]'
    """
    found: dict[int, str] = {}
    seen = {id(value)}
    waiting = deque([("", value)])
    while waiting and len(seen) < _MAX_OBJECTS:
        path, one = waiting.popleft()
        if is_array(one) or is_tensor(one):
            found[id(one)] = path or type(one).__name__
            continue
        for name, part in _parts(path, one):
            if id(part) not in seen and not isinstance(part, _PLAIN):
                seen.add(id(part))
                waiting.append((name, part))
    return found


def is_array(value: Any) -> bool:
    """Return whether a value is a NumPy array, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each part of an object."""
    if isinstance(value, dict):
        for number, (key, part) in enumerate(value.items()):
            if number >= _MAX_ITEMS:
                return
            yield _joined(path, key), part
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value[:_MAX_ITEMS]):
            yield f"{path}[{number}]", part
    if isinstance(getattr(value, "__dict__", None), dict):
        for name, part in value.__dict__.items():
            yield _joined(path, name), part


def _joined(path: str, key: Any) -> str:
    if key in _TORCH_MODULE_ATTRIBUTES:
        return path
    if isinstance(key, str) and (key.isidentifier() or key.isdigit()):
        return f"{path}.{key}" if path else key
    if isinstance(key, (str, int, tuple)) and path:
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else str(key) if isinstance(key, (str, int)) else type(key).__name__


def _unique(wanted: str, taken: set[str]) -> str:
    """Return `wanted` as valid text, with a number if the name is taken, and add the result to `taken`."""
    text = wanted.encode("utf-8", "backslashreplace").decode()[:_MAX_NAME_LENGTH]
    if text.startswith("#") or not text:  # reserved by the file format
        text = f"array {text}"
    name, number = text, 1
    while name in taken:
        number += 1
        name = f"{text} ({number})"
    taken.add(name)
    return name


def save_object(
    path: str | os.PathLike[str],
    value: object,
    *,
    durable: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Write an object to a file from which `load_object` maps its arrays.

    The result is a valid safetensors file with checksums. As with `onecopy.save`, it appears complete or not at all.
    Each NumPy array, each CPU torch tensor, and each buffer that a class exports with pickle protocol 5 (pandas, SciPy,
    scikit-learn, Arrow) becomes an array in the file, aligned to 64 bytes and named after its path in the object, such
    as "coef_" or "layers.0.weight". Arrays in Fortran order are stored transposed. All other parts are pickled into the
    array "object.pickle", including arrays of Python objects, subclasses of arrays other than `numpy.memmap`, and data
    that other classes pickle as bytes.

    Parameters
    ----------
    path
        Path of the file; an existing file is replaced.
    value
        Any object that can be pickled. Processes that load it must be able to import its classes.
    durable, progress
        As for `onecopy.save`.

    Raises
    ------
    OSError, ValueError
        As for `onecopy.save`.
    Exception
        The object cannot be pickled. Its class usually raises pickle.PicklingError or TypeError.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.oc")
    >>> oc.save_object(path, {"weights": np.zeros((1000, 8)), "labels": ["cat", "dog"]})
    >>> oc.open(path)["weights"].shape
    (1000, 8)
    >>> oc.load_object(path, trusted=True)["labels"]
    ['cat', 'dog']
    """
    import numpy as np

    text = io.BytesIO()
    pickler = _Pickler(text, paths_of(value))
    pickler.dump(value)
    packages = {name: version for name in sorted(pickler.modules - {"onecopy"}) if (version := version_of(name))}
    large, rows, small = _place(pickler.buffers.parts)
    kind = type(value)
    about = About(f"{kind.__module__}.{kind.__qualname__}", list(large), python_version(), packages)
    own = {
        PICKLE: np.frombuffer(text.getbuffer(), np.uint8),
        BUFFERS: np.array(rows, np.int64).reshape(-1, 4),
        SMALL: np.frombuffer(small, np.uint8),
    }
    arrays.save(
        path,
        own | large,
        {METADATA: json.dumps({"version": VERSION, **about._asdict()})},
        64,
        durable=durable,
        progress=progress,
    )


def python_version() -> str:
    """Return the version of Python as recorded in an object's file, such as "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _place(parts: list[_Part]) -> tuple[dict[str, Any], list[tuple[int, int, int, int]], bytearray]:
    """Return the arrays that consist of one buffer, the rows of "object.buffers", and the bytes of "object.small"."""
    arrays: dict[str, Any] = {}
    rows, small, names = [], bytearray(), {PICKLE, BUFFERS, SMALL}
    for part in parts:
        nbytes = part.raw.nbytes
        if nbytes >= MIN_BYTES:
            arrays[_unique(part.name, names)] = part.content
            rows.append((len(arrays), 0, nbytes, int(part.is_tensor)))
        else:
            small += bytes(-len(small) % SMALL_ALIGNMENT)
            rows.append((0, len(small), nbytes, int(part.is_tensor)))
            small += part.raw
    return arrays, rows, small
