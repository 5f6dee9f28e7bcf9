"""Number of threads at the import of this module, which the fork server imports last, before its first fork."""

from pathlib import Path

THREADS = len(list(Path("/proc/self/task").iterdir()))
