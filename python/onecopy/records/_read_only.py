"""Errors of attempts to write to a shared list or dict, with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_WRITERS = {
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
}
_ADVICE = "shared data is read-only: change it before it is shared, or change a copy, list(data) or dict(data)"


class ReadOnly:
    """Base class whose errors for writing methods give advice; `hasattr` is False for these methods."""

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{text}: {_ADVICE}" if name in _WRITERS else text, name=name, obj=self)

        def __setitem__(self, index: Any, value: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item assignment: {_ADVICE}")

        def __delitem__(self, index: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item deletion: {_ADVICE}")
