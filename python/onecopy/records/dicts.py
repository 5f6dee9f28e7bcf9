"""A dict in a mapped file: one copy for every process, its keys found through an index that is mapped with it.

    boxes = oc.share(lambda: {name: box_of(name) for name in names}, key=...)
    boxes["a.jpg"]               # an ordinary object of the caller's own
    boxes.lazy["a.jpg"].corner   # decodes this only
    part = boxes.select(train)   # the values of these keys as a list: 8 bytes each

Nothing is built when it is opened: a lookup is one look into the index, one at the key and one at the value. Keys are
str, bytes, int, float, bool, None, and tuples of those. Threads: any.
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
    """The pairs of a records file as a read-only mapping; made by `onecopy.share` and `onecopy.open`.

    ``d[key]`` decodes the value into an ordinary private object. Keys are looked up as in a dict, by ``==`` and
    ``hash``, so that 1, 1.0 and True are one key; only a NaN is found by nobody.

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

    if TYPE_CHECKING:  # the compiled half has it

        def __getitem__(self, key: Any) -> V: ...

    def __iter__(self) -> Iterator[K]:
        return iter(self._part(0))

    def keys(self) -> KeysView[K]:
        """Return the keys, in the order in which they were written."""
        return KeysView(self)  # registered below: a compiled class has a metaclass of its own

    def values(self) -> List[V]:
        """Return the values in the same order: a List, or a Table where all of them are dicts. No copy."""
        return self._part(1)

    def items(self) -> ItemsView[K, V]:
        """Return the pairs, in the same order."""
        return _Items(self)

    def select(self, keys: Iterable[K]) -> List[V]:
        """Return the values of some keys, in their order, as a List or a Table: 8 bytes each, no value is copied.

        Raises
        ------
        KeyError
            There is no such key.

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

    __hash__ = None  # type: ignore[assignment]  # as dicts

    def __repr__(self) -> str:
        if self.closed:
            return "<onecopy.Dict, closed>"
        about = f"{len(self):,} keys in {size(self.nbytes)}, {self._origin.given}"
        return f"<onecopy.Dict of {about}: {self._start()}>"

    def _start(self) -> str:
        """Show the first pairs, shortened; a pair that cannot be made is no reason to raise here."""
        try:
            first = itertools.islice(self.items(), 2)
            shown = [f"{SHORT.repr(key)}: {SHORT.repr(value)}" for key, value in first]
        except FormatError as error:
            return f"<{error}>"
        return "{" + ", ".join(shown + ["..."] * (len(self) > len(shown))) + "}"

    def close(self) -> None:
        """Let go of the file: of this dict. Lists and views that came from it live on."""
        self._dict_close()

    def __reduce__(self) -> tuple[Any, ...]:
        from onecopy.records.opening import attach

        return attach, self._origin.handle(None)


Mapping.register(Dict)


class _Items(ItemsView[K, V]):
    """Iterates the rows, and does not look every key up."""

    _mapping: Dict[K, V]

    def __init__(self, mapping: Dict[K, V]) -> None:
        super().__init__(mapping)

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return zip(self._mapping, self._mapping.values(), strict=True)
