"""`share_dataset`: share the large attributes of an existing PyTorch Dataset between workers and ranks.

    dataset = oc.torch.share_dataset(MyDataset(...))
    print(dataset.onecopy_report)
    loader = DataLoader(dataset, num_workers=8)

Large lists, tuples, dicts, numpy arrays and CPU tensors are moved into mapped files. Lists, tuples and dicts are
replaced by a read-only `List` or `Dict`, arrays and tensors by ones on copy-on-write pages. The call changes the
dataset in place and returns it. The attribute ``onecopy_report`` has the report; it is pickled to the workers with the
dataset, and `onecopy.workers.assert_shared` reads it.

**When not to use it.** For a dataset that you write yourself: `onecopy.share` with a function and a key builds the data
once per machine, while here every rank builds it first.

**Limits.** Attributes are found in ``__dict__`` of the dataset and of datasets in it (`Subset`, `ConcatDataset`, ...).
Shared lists are read-only: appending raises. Written pages of an array become private to the process that writes.
``isinstance(x, list)`` is False for a shared list.

This module does not import torch; tensors are found if the program has imported it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from onecopy import records
from onecopy.arguments import byte_count
from onecopy.errors import NotShareable
from onecopy.integrations.torch._estimate import estimated_bytes
from onecopy.integrations.torch._mapped import array_in, bytes_of, is_mapped, tensor_in
from onecopy.store.fork import free_unused_memory
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Attribute", "ShareReport", "share_dataset"]

DatasetT = TypeVar("DatasetT")

LIBRARIES = {"builtins", "collections", "datasets", "numpy", "onecopy", "pandas", "polars", "pyarrow", "torch"}
"""Top-level modules whose objects are not searched for attributes, unless they are datasets of torch."""


@dataclass(frozen=True)
class Attribute:
    """Result of `share_dataset` for one large attribute."""

    name: str
    """Name of the attribute with its path from the dataset: "dataset.samples", "datasets[1].labels"."""
    kind: str
    """Type name before sharing, with the dtype of arrays and tensors."""
    rows: int | None
    """Length; None for objects without a length."""
    bytes_before: int
    """Size in bytes before; for lists and dicts with all contents, estimated from a sample."""
    bytes_after: int | None
    """Size in bytes in the mapped file, once per machine; None if the attribute was not shared."""
    done: str
    """A sentence on what replaced the attribute, or why it was not shared."""
    shared: Any = field(default=None, repr=False, compare=False)
    """The mapped object that `onecopy.share` returned; None if the attribute was not shared."""


@dataclass(frozen=True)
class ShareReport:
    """Result of `share_dataset`; `str` gives a table."""

    attributes: tuple[Attribute, ...]
    """The attributes of at least `min_bytes`, shared or not."""

    @property
    def moved(self) -> tuple[Attribute, ...]:
        """The attributes that were shared."""
        return tuple(attribute for attribute in self.attributes if attribute.bytes_after is not None)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The mapped objects, for `onecopy.workers.assert_shared`."""
        return tuple(attribute.shared for attribute in self.moved)

    def __str__(self) -> str:
        rows = [("attribute", "type", "rows", "before", "after", "")]
        for a in self.attributes:
            after = "" if a.bytes_after is None else size(a.bytes_after)
            rows.append(
                (a.name, a.kind, "" if a.rows is None else f"{a.rows:,}", f"~{size(a.bytes_before)}", after, a.done)
            )
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = [
            "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[5]]) for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines) if self.attributes else "no attribute of the dataset is large"


def share_dataset(dataset: DatasetT, min_bytes: int | str = "1MiB", **share_options: Any) -> DatasetT:
    """Move the large attributes of a dataset into mapped files that all processes share; return the same dataset.

    Call it in each rank before the DataLoader starts its workers. With a `key`, all ranks of a machine share one copy.

    Parameters
    ----------
    dataset
        Any object with attributes: a map-style or iterable Dataset, `Subset` or `ConcatDataset`, or an object that
        holds the annotations. It is changed in place.
    min_bytes
        Attributes of fewer bytes, as estimated, are not shared: a number, or text such as "10MB".
    **share_options
        Arguments of `onecopy.share`: `codec`, `store`, ... A `key` must identify everything that the dataset is made
        from; the name of the attribute is added to it.

    Returns
    -------
    object
        The dataset, with a `ShareReport` in its attribute ``onecopy_report``.

    Raises
    ------
    TypeError
        The object has no ``__dict__``.
    OSError
        The disk or memory of the store is full. Attributes that were shared before stay shared.

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
    """Replaces attributes of datasets; an object with several references is shared once."""

    def __init__(self, min_bytes: int, options: dict[str, Any]) -> None:
        self.attributes: list[Attribute] = []
        self._min_bytes, self._options = min_bytes, options
        self._seen: dict[
            int, tuple[Any, Any]
        ] = {}  # by id: what was there, kept so that the id stays its, and what is now

    def move(self, owner: Any, prefix: str) -> None:
        """Replace the large attributes of an object, and of the datasets among them."""
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
        """Return the replacement of a value: the value itself if it is small or cannot be shared."""
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
        """Return the replacement of a value, the mapped object and its bytes; NotShareable if it cannot be shared."""
        if type(value) in (list, tuple, dict):
            shared = records.share(list(value) if type(value) is tuple else value, **self._options_of(place))
            return shared, shared, shared.nbytes
        raw, shape = bytes_of(value), tuple(value.shape)
        shared = records.share([raw], **self._options_of(f"{place} {value.dtype} {shape}"))
        now = (array_in if _is_array(value) else tensor_in)(shared, value.dtype, shape)
        return now, shared, raw.nbytes

    def _options_of(self, place: str) -> dict[str, Any]:
        """Return the arguments of `share` for one attribute, with its name in the key."""
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


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy"


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except TypeError:  # not a container, or a 0-dimensional array
        return None


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{type(value).__name__} {str(dtype).removeprefix('torch.')}"
