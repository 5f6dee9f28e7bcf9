"""Run a command where something is refused.

    python -m tests.fallbacks.run --refuse cachestat=EPERM,O_TMPFILE -- COMMAND ARGUMENTS

The command's exit status is ours. What is refused stays refused in everything that the command starts.
"""

import argparse
import ctypes
import errno
import os
import resource
import sys
from itertools import groupby

from tests.fallbacks.settings import ALL
from tests.support.memory_group import memory_group
from tests.support.page_cache import serve_cachestat
from tests.support.seccomp import refuse


def refuse_list(text: str) -> None:
    """Refuse "cachestat=EPERM,O_TMPFILE": names, each with the errno it shall give, or a kernel's own; or "all"."""
    text = ALL if text == "all" else text
    pairs = [name.partition("=")[::2] for name in text.split(",")]
    for error, names in groupby(sorted(pairs, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
        refuse(*(name for name, _ in names), error=getattr(errno, error) if error else None)


def limit(text: str) -> None:
    """Set "MEMLOCK=0" or the like, soft and hard."""
    name, _, number = text.partition("=")
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(number), int(number)))


def disable_huge_pages() -> None:
    """PR_SET_THP_DISABLE, which children and exec inherit."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(41, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")


def confine_and_run(options: argparse.Namespace) -> None:
    """Take everything away in the order in which it can be, then become the command."""
    if options.no_huge_pages:
        disable_huge_pages()
    for text in options.limit:
        limit(text)
    if options.refuse:
        serve_cachestat()
        refuse_list(options.refuse)
    os.execvp(options.command[0], options.command)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refuse", metavar="all | NAME[=ERRNO],...")
    parser.add_argument("--no-huge-pages", action="store_true")
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="of a control group")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.memory is None:
        confine_and_run(options)
    with memory_group(options.memory) as join:
        pid = os.fork()
        if pid == 0:
            join()
            confine_and_run(options)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
