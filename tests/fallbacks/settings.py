"""What may be missing on a machine, by name, and how to run a command as if it were: the rows of `make fallbacks`."""

import os
import shutil
import sys
from typing import NamedTuple

from tests.support.memory_group import NoMemoryGroupError, place

# Ubuntu 22.04 and RHEL 9 have no cachestat and no PAGEMAP_SCAN, RHEL 8 nothing of these; NFS and overlay no O_TMPFILE;
# containers forbid process_vm_readv and answer EPERM instead of ENOSYS.
REFUSED = {
    "no cachestat": "cachestat",
    "cachestat forbidden": "cachestat=EPERM",
    "no MADV_POPULATE_READ": "MADV_POPULATE_READ",
    "no O_TMPFILE": "O_TMPFILE",
    "no memfd_create": "memfd_create",
    "process_vm_readv forbidden": "process_vm_readv=EPERM",
    "no PAGEMAP_SCAN": "PAGEMAP_SCAN",
    "no MADV_HUGEPAGE": "MADV_HUGEPAGE",
    "no O_DIRECT": "O_DIRECT",
    "no F_OFD_SETLK": "F_OFD_SETLK",
    "no fallocate": "fallocate=EOPNOTSUPP,sync_file_range",
}
ALL = (
    "cachestat,MADV_POPULATE_READ,MADV_COLLAPSE,O_TMPFILE,memfd_create,process_vm_readv=EPERM,PAGEMAP_SCAN,F_OFD_SETLK"
)
RUN = [sys.executable, "-m", "tests.fallbacks.run"]
# A user that owns no files. The process may read and search everywhere, so that it can use this interpreter and tree:
# neither cachestat nor mincore asks for that privilege.
SOMEBODY = [
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
]


class Setting(NamedTuple):
    """A command to put before the command; why this machine cannot, if it cannot."""

    name: str
    command: list[str]
    obstacle: str = ""


def obstacle_to_groups() -> str:
    try:
        place()
    except NoMemoryGroupError as error:
        return str(error)
    return "" if os.geteuid() == 0 else "only root can make a control group"


def settings() -> list[Setting]:
    root = "" if os.geteuid() == 0 else "only root can become another user"
    # Large enough for the tests, and smaller than the sparse files that they read.
    little_memory = [*RUN, "--memory", str(3 << 29), "--"]
    return [
        Setting("all refused together", [*RUN, "--refuse", ALL, "--"]),
        *(Setting(name, [*RUN, "--refuse", names, "--"]) for name, names in REFUSED.items()),
        Setting("huge pages off", [*RUN, "--no-huge-pages", "--"]),
        Setting("nothing may be locked", [*RUN, "--limit", "MEMLOCK=0", "--"]),
        Setting("another user", SOMEBODY, root if shutil.which("setpriv") else "needs setpriv (util-linux)"),
        Setting("1.5 GiB of memory", little_memory, obstacle_to_groups()),
    ]
