"""Every configuration there is, by name: the child finds its own here."""

from __future__ import annotations

from onecopy.bench.ceilings import CEILINGS, CONTROLS
from onecopy.bench.configurations import ROWS, Configuration

EVERY = {entry.name: entry for entry in (*ROWS, *CEILINGS, *CONTROLS)}


def configuration_named(name: str) -> Configuration:
    """Return the configuration of that name; raises ValueError that lists the names."""
    if name not in EVERY:
        raise ValueError(f"no configuration {name!r}; there are {', '.join(EVERY)}")
    return EVERY[name]
