"""Python objects in mapped files, and cached results of functions."""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.data.objects import share_object as share_object, stored_object as stored_object
    from onecopy_records.sharing import stored_rows as stored_rows

_HOMES = {
    "objects": ("share_object", "stored_object"),
    "onecopy_records.sharing": ("stored_rows",),
}

if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
