"""Python data in mapped files: rows, objects, cached results of functions, and shuffled orders."""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.data.objects import share_object as share_object, stored_object as stored_object
    from onecopy.data.sharing import share as share, stored_rows as stored_rows
    from onecopy.data.shuffle import Shuffle as Shuffle

_HOMES = {
    "objects": ("share_object", "stored_object"),
    "sharing": ("share", "stored_rows"),
    "shuffle": ("Shuffle",),
}

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
