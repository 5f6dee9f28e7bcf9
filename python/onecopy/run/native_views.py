"""Objects of C++ libraries that view a snapshot, until the program does more than read them.

A view cannot be changed, while what a library has read into memory of its own can. So the Python object of such a view
does not hold the native object. `__getattr__` of its class (`defer`) returns it: to functions that only read, the view;
to all others a native object that is read from the same snapshot first, which everything uses from then on.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from onecopy.run.call_log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onecopy.run.mapped import Source

_KEY = "_onecopy_view"


class View:
    """The native part of one object of a library: a view of a snapshot, or what was read from it."""

    def __init__(self, native: Any, read: Callable[[], Any], source: Source | None = None) -> None:
        self.native = native
        self._view = native, read  # these stay, with the memory: other threads may be in functions of the view
        self.read: Callable[[], Any] | None = read
        """Returns the native object that owns its memory; None if that is `native` already."""
        self._note = (source.function, source.path, source.nbytes) if source is not None else None
        self._lock = threading.RLock()

    def reading(self) -> Any:
        """Return the native object for a function that only reads."""
        return self.native

    def take_from(self, owner: Any, handle: str) -> None:
        """Take the native object out of the attribute `handle` of its Python object, which has this view instead."""
        owner.__dict__[_KEY] = self
        del owner.__dict__[handle]

    def own(self, reason: str) -> Any:
        """Return the native object that owns its memory; it is read when this is called first."""
        with self._lock:
            if self.read is not None:
                if self._note is not None:
                    function, path, nbytes = self._note
                    note(function, path, copied=nbytes, reason=reason)
                self.native, self.read = self.read(), None
        return self.native

    def keep(self) -> None:
        """Use the native object as it is from now on: nothing is read."""
        self.read = None

    def __reduce__(self) -> Any:
        """Pickle, or copy, as the native object does."""
        return self.own("pickled").__reduce_ex__(4)


_HERE = os.path.dirname(__file__)  # noqa: PTH120 - text
_OURS = {_HERE, os.path.join(os.path.dirname(_HERE), "frameworks", "hooks")}  # noqa: PTH118, PTH120


def view_of(owner: Any) -> View | None:
    """Return the view of a Python object; None if it has none."""
    return getattr(owner, "__dict__", {}).get(_KEY)


def defer(owner: Any, handle: str, names: Collection[str], module: Any) -> None:
    """Let a class return the native object `handle` of a view.

    Functions of the folder of `module` that have one of the names, and those of `onecopy.frameworks.hooks`, only read.
    """
    theirs = os.path.dirname(module.__file__)  # noqa: PTH120 - text

    def __getattr__(self: Any, name: str) -> Any:  # noqa: N807
        view = view_of(self) if name == handle else None
        if view is None:
            return object.__getattribute__(self, name)  # raises the error of a missing attribute
        code = sys._getframe(1).f_code
        folder = os.path.dirname(code.co_filename)  # noqa: PTH120
        only_reads = folder in _OURS or (folder == theirs and code.co_name in names)
        return view.reading() if only_reads else view.own(f"used by {code.co_qualname}")

    type.__setattr__(owner, "__getattr__", __getattr__)
