"""Build once per host, map everywhere: one process builds a file, the others wait for it and attach.

    import onecopy as oc

    store = oc.Store()                                          # ~/.cache/onecopy, or where the environment says
    index = store.get_or_build(oc.file_key("genome.fa"), build_index, source="genome.fa")
    data = oc.open(index)                                       # or whatever reads what `build_index` wrote

`build_index` is given a path, and puts a file there that appears whole or not at all (`oc.save` does that, and so does
writing beside it and `os.replace`). Of all processes and threads of the machine that ask for one key, one calls it; the
others are told whom they wait for (logger "onecopy"). When the builder dies, killed or not, one that waits takes its
place. When it raises, each that waits tries for itself. A second run attaches in less than a millisecond.

There is no daemon and no clean-up process, and what is killed leaves nothing that stands in anybody's way: who builds
is decided by a lock that the kernel gives back. What dead builders left is told by `Store.ls`, and goes with
`Store.prune`, which never removes what is being built; who has a file mapped keeps it.

**When not to use it.** To share between machines: the folder is to be on a disk of this machine or in memory, because
locks of network file systems cannot be relied on. To share with other users: the folder is yours alone.

**Threads and forks.** Any thread may call anything. A Store may be pickled and used in forked children; a child that is
forked while its parent builds takes no part in that.
"""

from onecopy.store.artefact import Artefact, PruneReport, State, Waiting
from onecopy.store.place import Place, choose_place
from onecopy.store.store import Store, Where, announce, default_folder, file_key, progress

__all__ = [
    "Artefact",
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
    "progress",
]
