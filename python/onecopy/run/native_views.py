"""Native objects of C++ libraries that use a snapshot in place as long as the program only reads them.

Unlike an object that a library has read into its own memory, a view cannot be changed. Therefore the Python object does
not hold the native object. Instead, `defer` adds a `__getattr__` to its class. Functions that only read use the view.
Before any other function runs, an object is read from the same snapshot and replaces the view.
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
    """The native part of a library's object: a view of a snapshot, or an object that was read from the snapshot."""

    def __init__(self, native: Any, read: Callable[[], Any], source: Source | None = None) -> None:
        self.native = native
        self._view = native, read  # kept: other threads may still be in functions of the view
        self.read: Callable[[], Any] | None = read
        """Reads a native object that owns its memory, or None if `native` owns it already."""
        self._note = (source.function, source.path, source.nbytes) if source is not None else None
        self._lock = threading.RLock()

    def reading(self) -> Any:
        """Return the native object for a function that only reads."""
        return self.native

    def take_from(self, owner: Any, handle: str) -> None:
        """Replace the native object in a Python object's attribute `handle` with this view."""
        owner.__dict__[_KEY] = self
        del owner.__dict__[handle]

    def own(self, reason: str) -> Any:
        """Return a native object that owns its memory. The first call reads it from the snapshot."""
        with self._lock:
            if self.read is not None:
                if self._note is not None:
                    function, path, nbytes = self._note
                    note(function, path, copied=nbytes, reason=reason)
                self.native, self.read = self.read(), None
        return self.native

    def keep(self) -> None:
        """Keep the current native object, and never read from the snapshot again."""
        self.read = None

    def __reduce__(self) -> Any:
        """Pickle or copy the native object."""
        return self.own("pickled").__reduce_ex__(4)


_HERE = os.path.dirname(__file__)  # noqa: PTH120 - text
_OURS = {_HERE, os.path.join(os.path.dirname(_HERE), "frameworks", "hooks")}  # noqa: PTH118, PTH120


def view_of(owner: Any) -> View | None:
    """Return a Python object's view, or None if it has no view."""
    return getattr(owner, "__dict__", {}).get(_KEY)


def defer(owner: Any, handle: str, names: Collection[str], module: Any) -> None:
    """Make a class return native objects as the attribute `handle`. The functions `names` in `module` only read."""
    theirs = os.path.dirname(module.__file__)  # noqa: PTH120 - text

    def __getattr__(self: Any, name: str) -> Any:  # noqa: N807
        view = view_of(self) if name == handle else None
        if view is None:
            return object.__getattribute__(self, name)  # raises the usual AttributeError
        code = sys._getframe(1).f_code
        folder = os.path.dirname(code.co_filename)  # noqa: PTH120
        only_reads = folder in _OURS or (folder == theirs and code.co_name in names)
        return view.reading() if only_reads else view.own(f"used by {code.co_qualname}")

    type.__setattr__(owner, "__getattr__", __getattr__)
