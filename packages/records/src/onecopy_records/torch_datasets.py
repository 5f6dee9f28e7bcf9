"""`share_dataset`: share the large attributes of an existing PyTorch Dataset among workers and ranks.

    dataset = oc.torch.share_dataset(MyDataset(...))
    print(dataset.onecopy_report)
    loader = DataLoader(dataset, num_workers=8)

The call moves large lists, tuples, dicts, NumPy arrays and CPU tensors into mapped files. It replaces lists, tuples and
dicts with a read-only `List` or `Dict`, and arrays and tensors with arrays and tensors on copy-on-write pages. It
changes the dataset in place, stores a report in the attribute ``onecopy_report``, and returns the dataset. The report
is pickled together with the dataset when it is sent to workers, and `onecopy_monitor.assert_shared` reads it.

**When not to use it.** For a dataset that you write yourself, use `onecopy.share` with a function and a key, which
builds the data once per machine. With `share_dataset`, every rank first builds it.

**Limits.** Attributes are found in the ``__dict__`` of the dataset and of nested datasets (`Subset`, `ConcatDataset`,
...). Shared lists are read-only: appending raises an error, and ``isinstance(x, list)`` is False for them. A process
that writes to an array gets private copies of the written pages, and multiprocessing then sends the array's data. All
other pickles of arrays and tensors contain the data; pickles of lists are handles.

This module does not import torch. It finds tensors only if the program has imported torch.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import sys
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from onecopy.base.tensor_values import is_tensor, resolved
from onecopy.base.text import byte_count, size
from onecopy.errors import NotShareable
from onecopy.files.mapping import Mapping
from onecopy.memory.proc import Pages
from onecopy.store.fork import free_unused_memory
from onecopy_records.rows import Backed
from onecopy_records.sharing import share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from onecopy_records.rows import List

DatasetT = TypeVar("DatasetT")

LIBRARIES = {
    "builtins",
    "collections",
    "datasets",
    "numpy",
    "onecopy",
    "onecopy_records",
    "pandas",
    "polars",
    "pyarrow",
    "torch",
}
"""Top-level modules whose objects are not searched for attributes, unless they are torch datasets."""


@dataclass(frozen=True)
class Attribute:
    """The result of `share_dataset` for a single large attribute."""

    name: str
    """Name of the attribute with its path from the dataset, such as "dataset.samples" or "datasets[1].labels"."""
    kind: str
    """Name of the type before sharing, with the dtype of arrays and tensors."""
    rows: int | None
    """Length, or None for an object without a length."""
    bytes_before: int
    """Size in bytes before sharing. For lists and dicts, it includes the contents, estimated from a sample."""
    bytes_after: int | None
    """Size in bytes in the mapped file (one copy per machine), or None if the attribute was not shared."""
    done: str
    """What replaced the attribute, or why it was not shared, as a sentence."""
    shared: Any = field(default=None, repr=False, compare=False)
    """The mapped object that `onecopy.share` returned, or None if the attribute was not shared."""


@dataclass(frozen=True)
class ShareReport:
    """The result of `share_dataset`. `str` returns a table."""

    attributes: tuple[Attribute, ...]
    """The attributes of at least `min_bytes`, shared or not."""

    @property
    def moved(self) -> tuple[Attribute, ...]:
        """The attributes that were shared."""
        return tuple(attribute for attribute in self.attributes if attribute.bytes_after is not None)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The mapped objects, for `onecopy_monitor.assert_shared`."""
        return tuple(attribute.shared for attribute in self.moved)

    def __str__(self) -> str:
        if not self.attributes:
            return "no attribute of the dataset is large"
        rows = [("attribute", "type", "rows", "before", "after", "")]
        for each in self.attributes:
            count = "" if each.rows is None else f"{each.rows:,}"
            after = "" if each.bytes_after is None else size(each.bytes_after)
            rows.append((each.name, each.kind, count, f"~{size(each.bytes_before)}", after, each.done))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)


def share_dataset(dataset: DatasetT, min_bytes: int | str = "1MiB", **share_options: Any) -> DatasetT:
    """Move a dataset's large attributes into mapped files that all processes share, and return the dataset.

    Call it in each rank before the DataLoader starts its workers. With a `key`, all ranks on a machine share one copy.

    Parameters
    ----------
    dataset
        Any object with attributes: a map-style or iterable Dataset, `Subset` or `ConcatDataset`, or an object that
        contains the annotations. It is changed in place.
    min_bytes
        Attributes with fewer (estimated) bytes are not shared: a number, or text such as "10MB".
    **share_options
        Arguments of `onecopy.share`: `codec`, `store`, ... A `key` must identify everything from which the dataset is
        built; the attribute's name is added to it.

    Returns
    -------
    object
        The dataset, with a `ShareReport` in its attribute ``onecopy_report``.

    Raises
    ------
    TypeError
        The object has no ``__dict__``.
    OSError
        The disk or memory of the store is full. Attributes that were already shared remain shared.

    Examples
    --------
    >>> import onecopy as oc
    >>> class Pairs:
    ...     def __init__(self, n):
    ...         self.samples = [(f"images/{i:08}.jpg", i % 10) for i in range(n)]
    ...     def __len__(self):
    ...         return len(self.samples)
    ...     def __getitem__(self, i):
    ...         return self.samples[i]
    >>> pairs = oc.torch.share_dataset(Pairs(20_000))
    >>> pairs[-1]
    ('images/00019999.jpg', 9)
    >>> [attribute.name for attribute in pairs.onecopy_report.moved]
    ['samples']
    """
    if not hasattr(dataset, "__dict__"):
        raise TypeError(f"cannot replace the attributes of a {type(dataset).__name__}: it has no __dict__")
    mover = _Mover(byte_count("min_bytes", min_bytes), share_options)
    mover.move(dataset, "")
    vars(dataset)["onecopy_report"] = ShareReport(tuple(mover.attributes))
    del mover  # it holds the last references to the replaced objects
    free_unused_memory()
    return dataset


class _Mover:
    """Replaces attributes of datasets. An object with several references is shared only once."""

    def __init__(self, min_bytes: int, options: dict[str, Any]) -> None:
        self.attributes: list[Attribute] = []
        self._min_bytes, self._options = min_bytes, options
        self._seen: dict[int, tuple[Any, Any]] = {}
        """Maps ids to objects and their replacements; keeping the objects alive prevents reuse of their ids."""

    def move(self, owner: Any, prefix: str) -> None:
        """Replace the large attributes of an object, and of datasets among its attributes."""
        if id(owner) in self._seen:
            return
        self._seen[id(owner)] = owner, owner
        for name, value in list(vars(owner).items()):
            place = f"{prefix}{name}"
            if inner := list(_datasets_in(value, place)):
                for part, part_place in inner:
                    self.move(part, f"{part_place}.")
            elif not is_mapped(value) and not isinstance(value, ShareReport):
                vars(owner)[name] = self._moved(value, place)

    def _moved(self, value: Any, place: str) -> Any:
        """Return a replacement for a value, or the value itself if it is small or cannot be shared."""
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        before = estimated_bytes(value)
        if before < self._min_bytes:
            return value
        kind, rows = _kind(value), _length(value)
        try:
            now, shared, after = self._share(value, place)
            done = f"now a {_kind(now)}"
        except NotShareable as error:
            now, shared, after, done = value, None, None, f"not shared: {error}"
        self._seen[id(value)] = value, now
        self.attributes.append(Attribute(place, kind, rows, before, after, done, shared))
        return now

    def _share(self, value: Any, place: str) -> tuple[Any, Any, int]:
        """Return a value's replacement, the mapped object and its size. Raise NotShareable for unsupported values."""
        if type(value) in (list, tuple, dict):
            shared = share(list(value) if type(value) is tuple else value, **self._options_of(place))
            return shared, shared, shared.nbytes
        raw, shape = bytes_of(value), tuple(value.shape)
        shared = share([raw], **self._options_of(f"{place} {value.dtype} {shape}"))
        return mapped(shared, value.dtype, shape), shared, raw.nbytes

    def _options_of(self, place: str) -> dict[str, Any]:
        """Return the arguments of `share` for an attribute, with its name in the key."""
        key = self._options.get("key")
        return self._options if key is None else {**self._options, "key": f"{key} {place}"}


def _datasets_in(value: Any, place: str) -> Iterator[tuple[Any, str]]:
    """Yield a dataset, or the datasets in a list or tuple, each with its path."""
    if _is_dataset(value):
        yield value, place
    elif type(value) in (list, tuple) and value and _is_dataset(value[0]):
        for number, part in enumerate(value):
            if _is_dataset(part):
                yield part, f"{place}[{number}]"


def _is_dataset(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.utils.data.Dataset):
        return True
    if isinstance(value, list | tuple | dict | set | frozenset | str | bytes):
        return False
    kind = type(value)
    ours = kind.__module__.partition(".")[0] not in LIBRARIES
    return ours and hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and hasattr(value, "__dict__")


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except TypeError:  # not a container, or a 0-dimensional array
        return None


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{type(value).__name__} {str(dtype).removeprefix('torch.')}"


BREADTHS = (256, 16, 8, 4)  # sampled children by depth; contents below the last depth are not counted


def estimated_bytes(value: Any, depth: int = 0) -> int:
    """Estimate the size in bytes of an object with all its contents. Sizes of arrays and tensors are exact.

    An object to which a container refers several times counts once. Keys of nested dicts are not counted.

    >>> estimated_bytes([]), estimated_bytes(["abcdefg" * 100] * 1000) < 10_000
    (56, True)
    """
    is_of_objects = isinstance(value, np.ndarray) and value.dtype == object  # whose bytes are pointers
    with contextlib.suppress(RuntimeError):  # sparse tensors have no nbytes
        if not is_of_objects and isinstance(nbytes := getattr(value, "nbytes", None), int):  # arrays, tensors
            return nbytes
    own = sys.getsizeof(value, 0)
    if depth == len(BREADTHS):
        return own
    if is_of_objects:
        return own + _estimate_children(list(_sample(value.ravel(), depth)), value.size, depth)
    if isinstance(value, dict):
        keys = (
            0 if depth else _estimate_children(list(_sample(value, depth)), len(value), depth)
        )  # rows share their keys
        return own + keys + _estimate_children([value[key] for key in _sample(value, depth)], len(value), depth)
    if isinstance(value, list | tuple | set | frozenset):
        return own + _estimate_children(list(_sample(value, depth)), len(value), depth)
    return own + (estimated_bytes(vars(value), depth + 1) if hasattr(value, "__dict__") else 0)


def _sample(container: Any, depth: int) -> islice[Any]:
    """Return evenly spaced elements of a list, tuple or array, or the first elements of any other container."""
    step = max(1, len(container) // BREADTHS[depth])
    if isinstance(container, list | tuple | np.ndarray):
        return islice(container[::step], BREADTHS[depth])
    return islice(container, BREADTHS[depth])


def _estimate_children(sample: list[Any], count: int, depth: int) -> int:
    """Estimate the bytes of `count` children from a sample. The list keeps the sample alive, so that ids are unique."""
    different = {id(child): child for child in sample}
    total = sum(estimated_bytes(child, depth + 1) for child in different.values())
    few = 2 * len(different) <= len(sample)  # each has many references
    return total if few else total * count // len(sample)


# --- arrays and tensors on the bytes of a list of one row -------------------------------------------------------------
#
# Their pages are copy-on-write, so that code may write to an item in place: torch has no read-only tensors, and warns
# about tensors of read-only arrays. While no page was written, multiprocessing sends them as the handle of the list;
# any other pickle contains their data.


class MappedArray(np.ndarray[Any, np.dtype[Any]]):
    """An array on mapped memory. Views and results are plain arrays."""

    _rows: List[Any] | None = None  # None for views

    def __getitem__(self, key: Any) -> Any:
        return self.view(np.ndarray)[key]

    def __iter__(self) -> Any:
        return iter(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(np.ndarray)

    def copy(self, order: Any = "C") -> NDArray[Any]:  # type: ignore[override]
        """Return a copy as a plain array in private memory."""
        return self.view(np.ndarray).copy(order)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)


def _sent(value: Any) -> Any:
    """Reduce a mapped array or tensor to its handle for multiprocessing, or to its data if a page was written."""
    address = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
    if value._rows is not None:
        with contextlib.suppress(OSError), Pages() as pages:  # without /proc, any page may have been written
            if pages.private_bytes(address, value.nbytes) == 0:
                return mapped, (value._rows, value.dtype, tuple(value.shape))
    return value.__reduce_ex__(pickle.DEFAULT_PROTOCOL)


ForkingPickler.register(MappedArray, _sent)


def is_mapped(value: Any) -> bool:
    """Return whether an object's memory is a file that onecopy has mapped."""
    return isinstance(value, Backed | MappedArray) or hasattr(type(value), "mapped_by_onecopy")


def bytes_of(value: Any) -> NDArray[np.uint8]:
    """Return an array's or tensor's bytes in C order. Raise NotShareable, with the reason, for other objects."""
    if type(value) is np.ndarray:
        if value.dtype.hasobject:
            raise NotShareable("an array of Python objects cannot be shared: convert it to a list")
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    if not is_tensor(value):
        raise NotShareable(_why_not(value))
    import torch

    if type(value) is not torch.Tensor or value.requires_grad:
        raise NotShareable(f"a {type(value).__name__} holds more than data, such as a gradient: share tensor.detach()")
    try:
        contiguous = resolved(value).contiguous()
    except TypeError as error:
        raise NotShareable(str(error)) from None
    raw: NDArray[np.uint8] = contiguous.flatten().view(torch.uint8).numpy()
    return raw


def _why_not(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, np.memmap):
        return "an array on a mapped file is pickled as a copy: open the file in each worker, or use oc.Mapping"
    if isinstance(value, list | tuple | dict | np.ndarray):
        return f"the class {kind} may behave differently from its base class: convert the object to the base class"
    if isinstance(value, set | frozenset):
        return f"a {kind} cannot be shared: convert it to a sorted list or a dict"
    if hasattr(value, "__dict__"):
        return f"an object of the class {kind} cannot be shared: call oc.torch.share_dataset to share its attributes"
    return f"a {kind} cannot be shared"


def mapped(rows: List[Any], dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return an array, or for a torch dtype a tensor, on copy-on-write pages of the row, without reading the pages."""
    raw = np.asarray(rows.lazy[0])
    offset = raw.__array_interface__["data"][0] - rows.file.core.address
    memory = Mapping(rows.path, offset, raw.nbytes, private=True).view()
    value: Any
    if isinstance(dtype, np.dtype):
        value = np.ndarray(shape, dtype, memory).view(MappedArray)
    else:
        import torch

        value = torch.frombuffer(memory, dtype=torch.uint8).view(dtype).reshape(shape).as_subclass(_tensor_class())
    value._rows = rows  # keeps the file open, and the handle valid
    return value


@functools.cache
def _tensor_class() -> Any:
    """Return the class of mapped tensors. Importing it requires torch."""
    import torch

    class MappedTensor(torch.Tensor):  # type: ignore[misc]
        """A tensor on mapped memory. Views and results are plain tensors."""

        mapped_by_onecopy = True
        __torch_function__ = torch._C._disabled_torch_function_impl

        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)

        def __deepcopy__(self, memo: Any) -> Any:
            return self.clone()

    ForkingPickler.register(MappedTensor, _sent)
    return MappedTensor
