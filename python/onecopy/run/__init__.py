"""`onecopy run` and `onecopy hold`: replaced functions, snapshots of files, the call log, and files held in memory.

Every program under `onecopy run` imports this package, so it loads its modules only on first use.
"""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.run.call_log import name_of as name_of, note as note, note_failure as note_failure
    from onecopy.run.mapped import source_of as source_of

_HOMES = {"call_log": ("name_of", "note", "note_failure"), "mapped": ("source_of",)}

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
