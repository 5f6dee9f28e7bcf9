"""Build once per machine, map everywhere: one process builds a file, the others wait for it and map it.

    import onecopy as oc

    store = oc.Store()                                          # ~/.cache/onecopy, or where the environment says
    index = store.get_or_build(oc.file_key("genome.fa"), build_index, source="genome.fa")
    data = oc.open(index)                                       # or whatever reads what `build_index` wrote

`build_index` is called with a path, where it writes a file that must appear complete or not at all (`oc.save` does
that, and so does `os.replace` of a temporary file). Of all processes and threads of the machine that want one key, one
builds; the others wait and log which process they wait for (logger "onecopy"). When the builder is killed, a waiting
process takes over. When a build raises, each waiting process tries for itself. Later runs attach in less than a
millisecond.

There is no daemon. The builder of a key holds a file lock, which the kernel releases when the process ends, so a killed
process blocks nobody. `Store.ls` lists what killed builders left, and `Store.prune` removes it; prune never removes
what is being built, and processes that have a removed file mapped keep it.

**When not to use it.** Between machines: the folder must be on a disk of this machine or in memory, because locks of
network file systems are not reliable. Between users: the folder belongs to one user.

**Threads and forks.** All calls are thread-safe. A Store can be pickled and used in forked children; a child that is
forked during a build takes no part in it.
"""

from onecopy.store.artefact import Artefact, PruneReport, State, Waiting
from onecopy.store.place import Place, choose_place
from onecopy.store.store import OnWait, Store, Where, announce, default_folder, file_key, report_progress

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
