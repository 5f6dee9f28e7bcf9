"""Build once per machine, map everywhere: one process builds a file, the others wait for it and map it.

    import onecopy as oc

    store = oc.Store()                                          # ~/.cache/onecopy, or where the environment says
    index = store.get_or_build(oc.file_key("genome.fa"), build_index, source="genome.fa")
    data = oc.open(index)                                       # or any other reader of the file

The build function, here `build_index`, is called with a path, and writes a file there that must appear complete or not
at all (`oc.save` does that, and so does `os.replace` of a temporary file). If several processes or threads of the
machine request one key, one of them builds; the others wait, and log the process that builds (logger "onecopy"). If the
builder is killed, a waiting process builds instead. If a build raises, each waiting process tries its own build. Later
runs find the file in less than a millisecond.

There is no daemon. The builder of a key holds a file lock, which the kernel releases when the process ends, so a killed
process does not block others. `Store.ls` lists the files that killed builders left, and `Store.prune` removes them;
prune never removes files that are being built, and processes that have a removed file mapped keep its pages.

**When not to use it.** Between machines: the folder must be on a disk of this machine or in memory, because locks of
network file systems are not reliable. Between users: the folder belongs to one user.

**Threads and forks.** All methods are thread-safe. A Store can be pickled and used in forked children; a child that was
forked during a build does not own that build.
"""

from onecopy.store.keys import file_key
from onecopy.store.store import (
    Artefact,
    OnWait,
    Place,
    PruneReport,
    State,
    Store,
    Waiting,
    Where,
    announce,
    choose_place,
    default_folder,
    report_progress,
)

__all__ = [
    "Artefact",
    "OnWait",
    "Place",
    "PruneReport",
    "State",
    "Store",
    "Waiting",
    "Where",
    "announce",
    "choose_place",
    "default_folder",
    "file_key",
    "report_progress",
]
