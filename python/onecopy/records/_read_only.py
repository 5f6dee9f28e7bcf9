"""What a shared list or dict answers to code that would write to it: no, and what to do instead."""

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
_ADVICE = "shared data is read-only: change it before it is shared, or a copy of your own, list(data) or dict(data)"


class ReadOnly:
    """Gives the errors of writing attempts an advice; a list has no such methods, so `hasattr` is False for them."""

    if not TYPE_CHECKING:  # a checker would believe that there is any attribute

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{text}: {_ADVICE}" if name in _WRITERS else text, name=name, obj=self)

        def __setitem__(self, index: Any, value: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item assignment: {_ADVICE}")

        def __delitem__(self, index: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item deletion: {_ADVICE}")
