"""An existing PyTorch Dataset whose large attributes are held once for all workers and ranks.

    dataset = oc.torch.share_dataset(MyDataset(...))
    print(dataset.onecopy_report)
    loader = DataLoader(dataset, num_workers=8)

What is large (lists, tuples, dicts, numpy arrays, CPU tensors) is moved into mapped files and replaced by what looks
the same: a read-only `List` or `Dict`; an array or tensor on copy-on-write pages. The dataset comes back itself, so
that the call fits around the constructor. What was done to it stands in its attribute ``onecopy_report``, which travels
to the workers with it, and is what `onecopy.workers.assert_shared` looks at.

**When not to use it.** Where you write the dataset yourself: `onecopy.share` with a function and a key builds once for
the machine, and not once in each rank to throw it away.

**Limits.** Attributes are found in ``__dict__``, of the dataset and of datasets in it (`Subset`, `ConcatDataset`, ...).
A list that something appends to must stay: it raises afterwards, and says so. Pages of an array that are written to
become private to their process. Whoever asks ``isinstance(x, list)`` is told no.

torch is never imported here; where the program has not, there are no tensors.
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
"""Whose objects are not looked into, unless they are torch's datasets."""


@dataclass(frozen=True)
class Attribute:
    """What became of one large attribute."""

    name: str
    """With the names of the datasets that it is in: "dataset.samples", "datasets[1].labels"."""
    kind: str
    """Its type, before."""
    rows: int | None
    """Its length, where it has one."""
    bytes_before: int
    """Of a list or dict, and all that is in it, an estimate from a sample."""
    bytes_after: int | None
    """In the mapped file, once per machine; None: it was left as it is."""
    done: str
    """What was done with it, or why nothing."""
    shared: Any = field(default=None, repr=False, compare=False)
    """What is mapped, as `onecopy.share` gave it."""


@dataclass(frozen=True)
class ShareReport:
    """What `share_dataset` did; printed it is a table."""

    attributes: tuple[Attribute, ...]
    """All that are as large as was asked for, moved or not."""

    @property
    def moved(self) -> tuple[Attribute, ...]:
        """The ones that are shared now."""
        return tuple(attribute for attribute in self.attributes if attribute.bytes_after is not None)

    @property
    def parts(self) -> tuple[Any, ...]:
        """What is mapped: for `onecopy.workers.assert_shared`."""
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
        return "\n".join(line.rstrip() for line in lines) if self.attributes else "nothing in it is large"


def share_dataset(dataset: DatasetT, min_bytes: int | str = "1MiB", **share_options: Any) -> DatasetT:
    """Hold the large attributes of a dataset once for all processes; return the same dataset.

    Call it before the DataLoader starts its workers, in each rank; with a `key` the ranks of a machine share one copy.

    Parameters
    ----------
    dataset
        Any object with attributes: a map-style or iterable Dataset, `Subset` and `ConcatDataset` of such, or the object
        that yours keeps its annotations in. It is changed in place.
    min_bytes
        What is estimated to be smaller stays as it is; "10MB" also.
    **share_options
        As for `onecopy.share`: `codec`, `store`, ... A `key` must say everything the dataset is made from; the
        attribute's name is added to it.

    Returns
    -------
    The dataset, with a `ShareReport` in its attribute ``onecopy_report``.

    Raises
    ------
    TypeError
        The object has no ``__dict__``.
    OSError
        There is no room. What was moved before stays moved.

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
        raise TypeError(f"a {type(dataset).__name__} has no __dict__, in which its attributes could be replaced")
    mover = _Mover(byte_count("min_bytes", min_bytes), share_options)
    mover.walk(dataset, "")
    vars(dataset)["onecopy_report"] = ShareReport(tuple(mover.attributes))
    del mover  # and with it the last that holds what was replaced
    free_unused_memory()
    return dataset


class _Mover:
    """Goes through datasets, and remembers what it has seen: what was one object stays one."""

    def __init__(self, min_bytes: int, options: dict[str, Any]) -> None:
        self.attributes: list[Attribute] = []
        self._min_bytes, self._options = min_bytes, options
        self._seen: dict[
            int, tuple[Any, Any]
        ] = {}  # by id: what was there, kept so that the id stays its, and what is now

    def walk(self, owner: Any, prefix: str) -> None:
        """Replace the large attributes of an object, and of the datasets among them."""
        if id(owner) in self._seen:
            return
        self._seen[id(owner)] = owner, owner
        for name, value in list(vars(owner).items()):
            place = f"{prefix}{name}"
            if inner := list(_datasets_in(value, place)):
                for part, part_place in inner:
                    self.walk(part, f"{part_place}.")
            elif not is_mapped(value) and not isinstance(value, ShareReport):
                vars(owner)[name] = self._moved(value, place)

    def _moved(self, value: Any, place: str) -> Any:
        """Return what takes the place of a value: itself, where it is small or cannot be moved."""
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
            now, shared, after, done = value, None, None, f"stays: {error}"
        self._seen[id(value)] = value, now
        self.attributes.append(Attribute(place, kind, rows, before, after, done, shared))
        return now

    def _share(self, value: Any, place: str) -> tuple[Any, Any, int]:
        """Return what takes the place of a value, what is mapped, and its bytes; NotShareable says why not."""
        if type(value) in (list, tuple, dict):
            shared = records.share(value, **self._options_of(place))
            return shared, shared, shared.nbytes
        raw, shape = bytes_of(value), tuple(value.shape)
        shared = records.share([raw], **self._options_of(f"{place} {value.dtype} {shape}"))
        now = (array_in if _is_array(value) else tensor_in)(shared, value.dtype, shape)
        return now, shared, raw.nbytes

    def _options_of(self, place: str) -> dict[str, Any]:
        """Return the options of one share, whose key says which attribute it is."""
        key = self._options.get("key")
        return self._options if key is None else {**self._options, "key": f"{key} {place}"}


def _datasets_in(value: Any, place: str) -> Iterator[tuple[Any, str]]:
    """Yield a dataset, or those of a list, with their places."""
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
    except TypeError:  # no container, or an array without axes
        return None


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{type(value).__name__} {str(dtype).removeprefix('torch.')}"
