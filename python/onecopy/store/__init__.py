"""One copy per machine: files that are built once (`Store`), keys of what they are built from, snapshots of files."""

from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy.store.keys import file_key
    from onecopy.store.store import Artefact, OnWait, Place, PruneReport, State, Store, Waiting, Where
    from onecopy.store.store import announce as announce
    from onecopy.store.store import choose_place as choose_place
    from onecopy.store.store import default_folder as default_folder
    from onecopy.store.store import reopened as reopened
    from onecopy.store.store import report_progress as report_progress

_OF_STORE = ("Artefact", "OnWait", "Place", "PruneReport", "State", "Store", "Waiting", "Where")
_HELPERS = ("announce", "choose_place", "default_folder", "reopened", "report_progress")
"""`reopened` is in pickles."""
__all__ = ["Artefact", "OnWait", "Place", "PruneReport", "State", "Store", "Waiting", "Where", "file_key"]

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, {"keys": ("file_key",), "store": (*_OF_STORE, *_HELPERS)})
