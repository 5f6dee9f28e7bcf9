"""Samples of memory, as the tests here make and draw them."""

from hypothesis import strategies as st

from onecopy_monitor import COLUMNS, FileSample, ProcessSample

MB = 1_000_000
NUMBERS = st.integers(0, 2**50)
ROWS = st.tuples(*[NUMBERS] * len(COLUMNS))


def row(anonymous: int = 0, clean: int = 0, dirty: int = 0, shmem: int = 0) -> tuple[int, ...]:
    real = anonymous + clean + dirty + shmem
    return anonymous, clean, dirty, shmem, 5, 6, real, real + clean


def process(pid: int, memory: tuple[int, ...], peak: int | None = None, name: str = "worker") -> ProcessSample:
    return ProcessSample(pid, float(pid), 1, name, memory, peak, 5, 0, 0.1)


def file_sample(path: str, once: int, dirty: int | None = None, saves: int = 0, inode: int = 2) -> FileSample:
    return FileSample((1, inode), path, "file", 90 * MB, dirty, once, saves, 2)
