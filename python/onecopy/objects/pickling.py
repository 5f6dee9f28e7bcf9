"""A pickler that leaves the buffers of arrays and tensors out of the pickle, and describes them."""

from __future__ import annotations

import io
import pickle
import sys
from collections import deque
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.objects import made
from onecopy.objects.loading import BUFFERS, METADATA, MIN_BYTES, PICKLE, SMALL, SMALL_ALIGNMENT, About, version_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

if TYPE_CHECKING:
    Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


class Part(NamedTuple):
    """A buffer that is not in the pickle."""

    name: str
    """The path of its array in the object, or the class that holds it; not unique."""
    content: Any
    """What is saved: an array or tensor with the type and shape of the data, or its bytes."""
    raw: memoryview
    """The same bytes."""
    is_tensor: bool


class Pickled(NamedTuple):
    """An object as a pickle and buffers."""

    pickle: memoryview
    parts: list[Part]
    """The buffers, in the order in which the pickle takes them."""
    packages: dict[str, str]
    """Versions of the top-level packages whose classes and functions the pickle names."""


def pickled(value: Any) -> Pickled:
    """Pickle an object; exceptions of its classes are passed on.

    Arrays are not copied, except those that are not contiguous.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, paths_of(value))
    pickler.dump(value)
    modules = sorted(pickler.modules - {"onecopy"})
    packages = {name: version for name in modules if (version := version_of(name)) is not None}
    return Pickled(file.getbuffer(), pickler.buffers.parts, packages)


class _Storage:
    """The memory of tensors, pickled once however many tensors share it."""

    def __init__(self, name: str, content: Any, raw: NDArray[Any]) -> None:
        self.name, self.content, self.raw = name, content, raw


class _Described(NamedTuple):
    """A buffer whose array is known, until the pickler passes it on."""

    buffer: pickle.PickleBuffer
    """Kept, so that its `id` is not used again."""
    name: str
    content: Any
    is_tensor: bool


def _content(flat: NDArray[Any], raw: NDArray[Any]) -> NDArray[Any]:
    """Return an array as it is saved; as bytes, with an axis for those of an element, if safetensors lacks its type."""
    from onecopy.arrays import dtypes

    little = flat.dtype.newbyteorder("<") == flat.dtype
    return flat if little and dtypes.of_numpy(flat.dtype) else raw.reshape(*flat.shape, flat.dtype.itemsize)


def _is_parameter(value: Any) -> bool:
    import torch

    return type(value) is torch.nn.Parameter and not value.__dict__ and not value._backward_hooks


def _is_spacy_vectors(value: Any) -> bool:
    """Return whether a value is a table of vectors of spaCy, which pickles itself as bytes."""
    kind = type(value)
    return (kind.__module__, kind.__name__) == ("spacy.vectors", "Vectors") and is_array(value.data)


def _arrow_of(value: Any) -> Any:
    """Return a frame or series of polars, which pickles itself as bytes, as an Arrow table; None if it is neither.

    None also without pyarrow, and for what Arrow does not give back as it was, such as columns of Python objects.
    """
    polars = sys.modules.get("polars")
    if polars is None or type(value) not in (polars.DataFrame, polars.Series):
        return None
    try:
        frame = value if type(value) is polars.DataFrame else value.to_frame()
        table = frame.to_arrow(compat_level=polars.CompatLevel.newest())
        return table if made.polars_frame(table).schema == frame.schema else None
    except Exception:  # any: of polars, of Arrow, or pyarrow is missing
        return None


class _Buffers:
    """The buffers that are left out of a pickle.

    It does not refer to the pickler, which refers to it: in a cycle they would stay until the garbage collector clears
    them, and it clears views of memory that is still exported, which crashes classes such as trees of scikit-learn.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.owner = ""
        """The class whose object is being pickled."""
        self._described: dict[int, _Described] = {}

    def name(self, kind: str) -> str:
        """Return a name for the next buffer, whose path in the object is not known."""
        return f"{self.owner or kind} {len(self.parts)}"

    def describe(self, raw: NDArray[Any], name: str, content: Any, *, is_tensor: bool) -> pickle.PickleBuffer:
        """Return a buffer with the bytes of an array, which `take` saves under its name."""
        buffer = pickle.PickleBuffer(raw.data)
        self._described[id(buffer)] = _Described(buffer, name, content, is_tensor)
        return buffer

    def take(self, buffer: pickle.PickleBuffer) -> None:
        """Keep a buffer out of the pickle; called in the order in which the pickle takes them."""
        import numpy as np

        raw = buffer.raw()
        described = self._described.pop(id(buffer), None)
        if described is not None:
            self.parts.append(Part(described.name, described.content, raw, described.is_tensor))
        else:  # of another library, such as Arrow
            self.parts.append(Part(self.name("buffer"), np.frombuffer(raw, np.uint8), raw, False))


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, paths: dict[int, str]) -> None:
        self.buffers = _Buffers()
        super().__init__(file, protocol=5, buffer_callback=self.buffers.take)
        self.modules: set[str] = set()
        self._paths = paths
        self._storages: dict[int, _Storage] = {}

    def reducer_override(self, value: Any) -> Any:
        """Return how an array, tensor or storage is made; NotImplemented for what pickles itself."""
        if isinstance(value, (type, FunctionType)):
            self.modules.add(str(value.__module__).partition(".")[0])
            return NotImplemented
        if is_array(value):
            return self._reduced_array(value)
        if is_tensor(value):
            return self._reduced_parameter(value) if _is_parameter(value) else self._reduced_tensor(value)
        if type(value) is _Storage:
            buffer = self.buffers.describe(value.raw, value.name, value.content, is_tensor=True)
            return made.storage, (buffer,)
        if (reduced := self._reduced_of_library(value)) is not None:
            return reduced
        if not hasattr(value, "__qualname__") and type(value).__module__.partition(".")[0] != "numpy":
            self.buffers.owner = type(value).__name__
        return NotImplemented

    def _reduced_of_library(self, value: Any) -> Reduced | None:
        """Return how an object is made that its library would pickle as bytes; None for any other."""
        if (table := _arrow_of(value)) is not None:
            self.buffers.owner, self.modules = type(value).__name__, self.modules | {"polars"}
            return (made.polars_frame if self.buffers.owner == "DataFrame" else made.polars_series), (table,)
        if _is_spacy_vectors(value):
            self.buffers.owner, self.modules = "Vectors", self.modules | {"spacy"}
            options = {name: getattr(value, name) for name in made.OPTIONS_OF_SPACY_VECTORS}
            return made.spacy_vectors, (value.strings, value.data, value.key2row, options)
        return None

    def _reduced_array(self, value: NDArray[Any]) -> Reduced | Any:
        import numpy as np

        if type(value) not in (np.ndarray, np.memmap) or value.dtype.hasobject or value.dtype.itemsize == 0:
            return NotImplemented  # pickled by numpy: the data is in the pickle
        array = np.asarray(value)
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        if not array.flags.forc:
            array = array.copy()
        flat = array.T if order == "F" else array
        raw = flat.reshape(-1).view(np.uint8)  # not the buffer of the array: datetime64 and bfloat16 have none
        buffer = self.buffers.describe(raw, self._name(value), _content(flat, raw), is_tensor=False)
        return made.array, (buffer, array.dtype, array.shape, order)

    def _reduced_tensor(self, value: Any) -> Reduced | Any:
        import torch

        plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
        unusual = value.is_quantized or value.is_conj() or value.is_neg() or not value.is_leaf
        if not plain or unusual or value.__dict__ or value._backward_hooks:
            return NotImplemented  # pickled by torch: the data is in the pickle
        memory = value.untyped_storage()
        storage = self._storages.get(memory._cdata)
        if storage is None:
            raw = torch.empty(0, dtype=torch.uint8).set_(memory).numpy()
            whole = value.is_contiguous() and value.nbytes == memory.nbytes() and not value.dtype.is_complex
            content = value.detach() if whole else raw
            storage = self._storages[memory._cdata] = _Storage(self._name(value), content, raw)
        dtype, shape, strides = str(value.dtype).removeprefix("torch."), tuple(value.shape), value.stride()
        return made.tensor, (storage, dtype, value.storage_offset(), shape, strides, value.requires_grad)

    def _reduced_parameter(self, value: Any) -> Reduced:
        data = value.data
        self._paths[id(data)] = self._name(value)  # the pickler keeps `data` until it ends
        return made.parameter, (data, value.requires_grad)

    def _name(self, value: Any) -> str:
        return self._paths.get(id(value)) or self.buffers.name("array")


_MAX_OBJECTS = 100_000
"""Objects that are visited; arrays that are not found until then are named after the class that holds them."""
_MAX_ITEMS = 1000
"""Items of a list or dict that are visited."""
_MAX_NAME = 200
"""Characters of a name."""
_OF_MODULES = ("_modules", "_parameters", "_buffers")
"""Attributes of modules of torch, which names of weights leave out: "0.weight"."""
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), type)


def paths_of(value: Any) -> dict[int, str]:
    """Return the paths of the arrays and tensors in an object by their `id`; the shortest path of each.

    No method of the object is called: attributes are read from ``__dict__``.

    Examples
    --------
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
    """Return whether a value is a numpy array; does not import numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


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
    if key in _OF_MODULES:
        return path
    if isinstance(key, str) and (key.isidentifier() or key.isdigit()):
        return f"{path}.{key}" if path else key
    if isinstance(key, (str, int, tuple)) and path:
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else str(key) if isinstance(key, (str, int)) else type(key).__name__


class Names:
    """Gives each array of a file a name of its own."""

    def __init__(self, reserved: tuple[str, ...]) -> None:
        self._taken = set(reserved)

    def unique(self, wanted: str) -> str:
        """Return the wanted name, as valid text, with a number if it is taken."""
        text = wanted.encode("utf-8", "backslashreplace").decode()[:_MAX_NAME]
        if text.startswith("#") or not text:  # reserved by the file format
            text = f"array {text}"
        name, number = text, 1
        while name in self._taken:
            number += 1
            name = f"{text} ({number})"
        self._taken.add(name)
        return name


def save_object(
    path: str | os.PathLike[str],
    value: object,
    *,
    durable: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Write an object to a file from which `load_object` maps its arrays.

    The file is a valid safetensors file, written complete or not at all, with checksums, as by `onecopy.save`. These
    are arrays of the file, at multiples of 64 bytes: numpy arrays, CPU tensors of torch, and all buffers that classes
    pass on with pickle protocol 5 (pandas, SciPy, scikit-learn, Arrow). They are named after their paths in the object,
    "coef_" or "layers.0.weight", and arrays of Fortran order appear transposed. Everything else is a pickle in the
    array "object.pickle": also arrays of Python objects, subclasses of arrays other than `numpy.memmap`, and what other
    classes pickle as bytes.

    Parameters
    ----------
    path
        Path of the file; an existing file is replaced.
    value
        Any object that can be pickled. Its classes must be importable where it is loaded.
    durable, progress
        As for `onecopy.save`.

    Raises
    ------
    OSError, ValueError
        As for `onecopy.save`.
    Exception
        The object cannot be pickled; the exception of its class, usually pickle.PicklingError or TypeError.

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

    from onecopy.arrays import save

    done = pickled(value)
    arrays, rows, small = _placed(done.parts)
    kind = type(value)
    about = About(f"{kind.__module__}.{kind.__qualname__}", list(arrays), python_version(), done.packages)
    own = {
        PICKLE: np.frombuffer(done.pickle, np.uint8),
        BUFFERS: np.array(rows, np.int64).reshape(-1, 4),
        SMALL: np.frombuffer(small, np.uint8),
    }
    save(path, own | arrays, {METADATA: about.to_json()}, 64, durable=durable, progress=progress)


def python_version() -> str:
    """Return the version of Python as it is recorded: "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _placed(parts: list[Part]) -> tuple[dict[str, Any], list[tuple[int, int, int, int]], bytearray]:
    """Return the arrays that hold one buffer each, the rows of "object.buffers", and "object.small"."""
    arrays: dict[str, Any] = {}
    rows, small, names = [], bytearray(), Names((PICKLE, BUFFERS, SMALL))
    for part in parts:
        nbytes = part.raw.nbytes
        if nbytes >= MIN_BYTES:
            arrays[names.unique(part.name)] = part.content
            rows.append((len(arrays), 0, nbytes, int(part.is_tensor)))
        else:
            small += bytes(-len(small) % SMALL_ALIGNMENT)
            rows.append((0, len(small), nbytes, int(part.is_tensor)))
            small += part.raw
    return arrays, rows, small
