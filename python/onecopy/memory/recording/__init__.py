r"""Looks in a file: JSON lines that a killed recorder leaves whole, and that are read as if anybody had written them.

    {"format": "onecopy memory", "version": 1, "command": [...], "started": ..., "machine": {...}, "columns": [...]}
    {"process": 0, "pid": 4312, "started": 81.5, "parent": 4300, "name": "python"}
    {"file": 0, "path": "/data/train.bin", "kind": "file", "size": 1000000000}
    {"at": 0.1, "total": [...], "processes": [[0, [...], VmHWM, minor, major, cpu_s], ...], "files": [[0, ...], ...]}
    {"end": 12.5, "exit": 0, ...}

`columns` names the numbers of each list in ``total``; processes and files are numbered where they are first seen, and
told again when a name changes. Of a file a look tells bytes in memory once, dirty bytes, bytes saved, sharers. Lines of
other kinds are for later versions, and are passed over.
"""

from onecopy.memory.recording.reading import Recording, read_recording
from onecopy.memory.recording.writing import FORMAT, VERSION, End, Machine, Recorder

__all__ = ["FORMAT", "VERSION", "End", "Machine", "Recorder", "Recording", "read_recording"]
