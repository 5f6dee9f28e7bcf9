"""`onecopy run` and `onecopy hold`: replaced functions, their snapshots, what was called, what is kept in memory.

Importing this package loads none of its modules: it is imported before each program that is run.
"""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.run.call_log import (
        Call as Call,
        calls as calls,
        name_of as name_of,
        note as note,
        note_failure as note_failure,
    )
    from onecopy.run.holder import Holder as Holder
    from onecopy.run.mapped import source_of as source_of

_HOMES = {
    "call_log": ("Call", "calls", "name_of", "note", "note_failure"),
    "mapped": ("source_of",),
    "holder": ("Holder",),
}

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
