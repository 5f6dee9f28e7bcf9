r"""Recordings: samples in a file of JSON lines, which stays readable if the recorder is killed.

    {"format": "onecopy memory", "version": 1, "command": [...], "started": ..., "machine": {...}, "columns": [...]}
    {"process": 0, "pid": 4312, "started": 81.5, "parent": 4300, "name": "python"}
    {"file": 0, "path": "/data/train.bin", "kind": "file", "size": 1000000000}
    {"at": 0.1, "total": [...], "processes": [[0, [...], VmHWM, minor, major, cpu_s], ...], "files": [[0, ...], ...]}
    {"end": 12.5, "exit": 0, ...}

`columns` names the numbers of each list in ``total``. Processes and files have numbers, which are defined by a line
before their first sample, and again when a name changes. The list of a file in a sample has its number, bytes in the
deduplicated total, dirty bytes, bytes saved and number of sharers. Lines of other kinds are reserved for later versions
and are skipped. The contents are validated when they are read: see `read_recording`.
"""

from onecopy_monitor.recording.reading import Recording, read_recording
from onecopy_monitor.recording.writing import FORMAT, VERSION, End, Machine, Recorder

__all__ = ["FORMAT", "VERSION", "End", "Machine", "Recorder", "Recording", "read_recording"]
