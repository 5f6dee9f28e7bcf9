"""What the processes of `onecopy run` report: their calls (`call_log`), what these amount to (`report`).

This package replaces no function of any framework, unlike `onecopy.auto`, which writes these reports: the command line
imports it to read them. It is loaded when each process of `onecopy run` starts, and so imports nothing itself.
"""

RUN = "ONECOPY_RUN"
"""Environment variable with the path of the file to which the processes of `onecopy run` append."""
