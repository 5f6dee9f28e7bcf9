"""`Dict`: a read-only dict in a mapped file, shared by all processes, with an index of its keys in the same file.

    boxes = oc.share(lambda: {name: box_of(name) for name in names}, key=...)
    boxes["a.jpg"]               # a new Python object
    boxes.lazy["a.jpg"].corner   # decodes only this field
    part = boxes.select(train)   # the values of these keys as a list; 8 bytes per key

Opening builds nothing: a lookup reads the index, the key and the value. Keys are str, bytes, int, float, bool, None,
and tuples of these.

**Threads.** All methods may be called from any thread.
"""

from __future__ import annotations

import itertools
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onecopy import _core
from onecopy.errors import FormatError
from onecopy.records.backing import Backed, Origin
from onecopy.records.opening import list_of
from onecopy.records.rows import SHORT
from onecopy.text import size

if TYPE_CHECKING:
    from onecopy.records.rows import List

__all__ = ["Dict"]

K = TypeVar("K")
V = TypeVar("V", covariant=True)  # noqa: PLC0105


class Dict(_core.DictRows, Backed, Generic[K, V]):
    """The pairs of a records file as a read-only mapping; created by `onecopy.share` and `onecopy.open_records`.

    ``d[key]`` decodes the value into a new Python object. Keys are compared as in a dict, by ``==`` and ``hash``, so
    that 1, 1.0 and True are one key; a NaN is never found.

    Examples
    --------
    >>> import onecopy as oc
    >>> ages = oc.share({"Ada": 36, "Grace": 85})
    >>> ages["Ada"], ages.get("Alan"), "Grace" in ages, len(ages)
    (36, None, True, 2)
    >>> list(ages.items())
    [('Ada', 36), ('Grace', 85)]
    """

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin.source)
        self._origin = origin

    if TYPE_CHECKING:  # implemented in the compiled module

        def __getitem__(self, key: Any) -> V: ...

    def __iter__(self) -> Iterator[K]:
        return iter(self._part(0))

    def keys(self) -> KeysView[K]:
        """Return the keys, in the order in which they were written."""
        return KeysView(self)  # Dict is registered as a Mapping below: a compiled class has its own metaclass

    def values(self) -> List[V]:
        """Return the values in the order of the keys, without a copy: a Table if all values are dicts, else a List."""
        return self._part(1)

    def items(self) -> ItemsView[K, V]:
        """Return the pairs (key, value), in the order in which they were written."""
        return _Items(self)

    def select(self, keys: Iterable[K]) -> List[V]:
        """Return the values of some keys, in their order, as a List or a Table; takes 8 bytes per key, copies no value.

        Raises
        ------
        KeyError
            One of the keys is missing.

        Examples
        --------
        >>> import onecopy as oc
        >>> sizes = oc.share({"a": {"w": 3}, "b": {"w": 4}, "c": {"w": 5}})
        >>> sizes.select(["c", "a"]).take([0, 1])["w"]
        array([5, 3], dtype=int8)
        """
        return self._part(1).select(self._dict_rows(keys))

    def _part(self, position: int) -> List[Any]:
        return list_of(self._dict_part(position), self._origin, (position,))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        missing = object()
        return len(self) == len(other) and all(other.get(key, missing) == value for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]  # like dict

    def __repr__(self) -> str:
        if self.closed:
            return "<onecopy.Dict, closed>"
        about = f"{len(self):,} keys in {size(self.nbytes)}, {self._origin.given}"
        return f"<onecopy.Dict of {about}: {self._start()}>"

    def _start(self) -> str:
        """Return the first pairs as shortened text; the message of the error if a pair cannot be decoded."""
        try:
            first = itertools.islice(self.items(), 2)
            shown = [f"{SHORT.repr(key)}: {SHORT.repr(value)}" for key, value in first]
        except FormatError as error:
            return f"<{error}>"
        return "{" + ", ".join(shown + ["..."] * (len(self) > len(shown))) + "}"

    def close(self) -> None:
        """Release the file; lists and views made from this dict stay valid."""
        self._dict_close()

    def __reduce__(self) -> tuple[Any, ...]:
        from onecopy.records.opening import attach

        return attach, self._origin.handle(None)


Mapping.register(Dict)


class _Items(ItemsView[K, V]):
    """Items that iterate over keys and values in parallel, without a lookup per key."""

    _mapping: Dict[K, V]

    def __init__(self, mapping: Dict[K, V]) -> None:
        super().__init__(mapping)

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return zip(self._mapping, self._mapping.values(), strict=True)
