"""Explain the memory of a process and of its control group, using numbers from the kernel.

    from onecopy.memory import container, explain

    print(explain())        # what this process uses memory for, and how much of it is copies
    print(container())      # how much memory is left before the OOM killer acts

`proc` and `cgroup` parse the kernel's files. The distribution onecopy-monitor samples, records and plots the memory of
process groups over time.

Modules are loaded on first use, because most of the library needs only the parsers.
"""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.memory import cgroup as cgroup, proc as proc
    from onecopy.memory.cgroup import Container as Container, container as container
    from onecopy.memory.explaining import (
        Cause as Cause,
        ExaminedProcess as ExaminedProcess,
        Explanation as Explanation,
        explain as explain,
    )
    from onecopy.memory.objects import Finding as Finding, ObjectExplanation as ObjectExplanation

_HOMES = {
    "cgroup": ("Container", "container"),
    "explaining": ("Cause", "Explanation", "ExaminedProcess", "explain"),
    "objects": ("Finding", "ObjectExplanation"),
}
__all__ = [name for names in _HOMES.values() for name in names]


if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
