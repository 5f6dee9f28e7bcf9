"""One copy per machine: files that are built once (`Store`), keys for their sources, and snapshots of files."""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.store.fork import free_unused_memory as free_unused_memory
    from onecopy.store.keys import digest_of as digest_of, file_key, name_of as name_of, text_of as text_of
    from onecopy.store.packages import version_of as version_of
    from onecopy.store.snapshots import handle_of as handle_of, held as held
    from onecopy.store.store import (
        Artefact,
        OnWait,
        Place,
        PruneReport,
        State,
        Store,
        Waiting,
        Where,
        announce as announce,
        choose_place as choose_place,
        default_folder as default_folder,
        reopened as reopened,
        report_progress as report_progress,
    )

__all__ = ["Artefact", "OnWait", "Place", "PruneReport", "State", "Store", "Waiting", "Where", "file_key"]
_HOMES = {
    "store": (*__all__[:-1], "announce", "choose_place", "default_folder", "reopened", "report_progress"),
    "keys": ("digest_of", "file_key", "name_of", "text_of"),
    "fork": ("free_unused_memory",),
    "packages": ("version_of",),
    "snapshots": ("handle_of", "held"),
}

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
