"""The process `onecopy run`: it keeps snapshots (`keeper`), and reports (`report`) what its processes log (`call_log`).

This package replaces no function of any framework, unlike `onecopy.auto`, which logs the calls: the command line
imports it to read them. It is imported before each program that is run, and so imports nothing itself.
"""

RUN_FILE = "onecopy-run"
"""Name of the file of calls, which is in memory and belongs to `onecopy run`: nothing is left when that is killed."""
MIN_BYTES = 1 << 20
"""Smaller files are read as always, and their calls are not kept: a copy takes less than what a mapping costs."""
NOTHING_LOADED = (
    "no Python process loaded a file of 1 MB or more with a function that onecopy shares; "
    "files that safetensors maps itself (safetensors.torch.load_file) are in memory once without it"
)
"""The report if no call was logged."""
