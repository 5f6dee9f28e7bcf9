"""Names of the environment variables that `onecopy run` sets for its processes; imported before these start."""

RUN = "ONECOPY_RUN"
"""What a process needs to know to ask `onecopy run` (`onecopy.protocol`), to which it reports its calls."""
KEEPER = "ONECOPY_SNAPSHOTS"
"""The same, if `onecopy run` keeps snapshots in memory; without it they are in the store."""
MAP_WRITABLE = "ONECOPY_MAP_WRITABLE"
"""With the value "1", each file is mapped itself, as if it could not be written."""
