"""Names of the environment variables that `onecopy run` sets for its processes; imported before these start."""

RUN = "ONECOPY_RUN"
"""Path of the file to which the processes append what became of their calls (`onecopy.runs.call_log`)."""
KEEPER = "ONECOPY_SNAPSHOTS"
"""Name of the abstract socket of the process that keeps snapshots, a space, and its secret."""
MAP_WRITABLE = "ONECOPY_MAP_WRITABLE"
"""With the value "1", each file is mapped itself, as if it could not be written."""
