"""
The compiled module of onecopy. Use the package's other modules instead: this one may change without notice.
"""

from collections.abc import Iterator, Mapping as _Mapping, Sequence
import os
from typing import Annotated, Any, Final, overload

import numpy
from numpy.typing import NDArray

def version() -> str:
    """Return the version of the compiled module."""

def crc32c(data: object) -> int:
    """Return the CRC-32C of a buffer's bytes."""

class Permutation:
    """A pseudo-random permutation that is computed on demand."""

    def __init__(self, size: int, seed: int, epoch: int) -> None: ...
    def at(self, position: int) -> int: ...
    def index_of(self, value: int) -> int: ...
    def fill(self, first: int, step: int, values: object) -> None:
        """
        Write the values at positions first, first + step, ... into a buffer of 64-bit integers.
        """

class View:
    """
    A range of a mapping. It supports the buffer protocol and keeps the mapping alive.
    """

    def __len__(self) -> int: ...

class Mapping:
    """A file, or part of a file, in memory."""

    def view(self, offset: int, length: int) -> memoryview:
        """
        Return a view of a range, which is read-only unless the mapping's pages are private.
        """

    def close(self) -> None: ...
    def changed(self) -> bool: ...
    def fileno(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def views(self) -> int: ...
    @property
    def identity(self) -> tuple[int, int, int, int]: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

def take_snapshot(fd: int, name: str, *, drop_source: bool = False, lead: int = 0) -> Mapping:
    """
    Copy an open file into sealed memory, after `lead` zero bytes. This moves the descriptor's position. If `drop_source` is True, drop the copied pages from the page cache.
    """

def copy_contents(source: int, target: int, size: int, name: str, threads: int = 0, lead: int = 0) -> None:
    """
    Copy bytes of an open file into another file, where they start at byte `lead`. Raise TimeoutError if a server does not respond.
    """

def content_identity(fd: int, *, ask: bool) -> tuple[int, int, int, int, int]:
    """
    Return (device, inode, size, time of the last write, time of the last change), with times in ns. If `ask` is True, request them from the file's server.
    """

def is_remote(fd: int) -> bool:
    """Return whether an open file is on a network or user-space file system."""

def is_stacked(fd: int) -> bool:
    """
    Return whether an open file's file system may store it in another file system, as overlayfs does.
    """

def why_not_identified(fd: int) -> str:
    """
    Return why an open file may change while its identity stays the same, or "" if every write changes it.
    """

def guard() -> None: ...
def check() -> None: ...
def open_mapping(
    path: str | os.PathLike,
    *,
    offset: int = 0,
    length: int | None = None,
    copy: bool = False,
    private_pages: bool = False,
    threads: int = 0,
    expected: tuple[int, int, int, int] | None = None,
) -> Mapping: ...
def map_descriptor(
    fd: int, name: str, *, offset: int = 0, length: int | None = None, copy: bool = False, private_pages: bool = False
) -> Mapping: ...
def owned_array(
    fd: int, offset: int, shape: Sequence[int], dtype: numpy.dtype[Any], random: bool = False
) -> Annotated[NDArray, dict(Any, Any)]:
    """
    Return a NumPy array that owns a copy-on-write mapping of part of a file. You may close the descriptor afterwards. If `random` is True, a fault reads only one page, whatever the device's read-ahead.
    """

class FileHandle:
    """A file descriptor that is closed automatically."""

    def __init__(self, fd: int) -> None:
        """Take ownership of the descriptor."""

    def fileno(self) -> int: ...

class Artefact:
    """A file in a store."""

    @property
    def key(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def created(self) -> float: ...
    @property
    def last_used(self) -> float: ...
    @property
    def source(self) -> str: ...
    @property
    def source_present(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def built(self) -> bool: ...
    @property
    def waited(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def reason(self) -> str: ...
    @property
    def handle(self) -> FileHandle | None: ...

class PruneReport:
    """The result of `prune`."""

    @property
    def removed(self) -> list[Artefact]: ...
    @property
    def kept(self) -> list[Artefact]: ...
    @property
    def bytes(self) -> int: ...

class Store:
    """A folder of artefacts."""

    @property
    def folder(self) -> str: ...
    def path(self, key: str) -> str: ...
    def find(self, key: str) -> Artefact | None: ...
    def get_or_build(
        self,
        key: str,
        build: object,
        *,
        source: str | os.PathLike,
        on_wait: object | None,
        timeout: float | None,
        durable: bool,
    ) -> Artefact: ...
    def list(self) -> list[Artefact]: ...
    def prune(
        self,
        *,
        max_age: float | None,
        max_bytes: int | None,
        missing_source: bool,
        keys: Sequence[str],
        everything: bool,
        dry_run: bool,
    ) -> PruneReport: ...

def open_store(folder: str | os.PathLike, *, shared: bool = False, owner: int | None = None) -> Store: ...
def default_folder(*, memory: bool) -> tuple[str, str, str]:
    """Return (path, why it was chosen, why the usual folder was not chosen)."""

def is_in_memory(folder: str | os.PathLike) -> bool: ...
def known_user(id: int) -> int | None:
    """
    Return the user that an ID refers to, or None if it is the overflow ID and may refer to any user.
    """

def owner_of(fd: int) -> int | None:
    """
    Return the owner of an open file, or None if that user has no ID in this user namespace.
    """

def owner_at(path: str | os.PathLike) -> int | None:
    """
    Return the owner of the file at a path, or None if that user has no ID in this user namespace.
    """

def report_progress(bytes: int) -> None: ...
def end_with_parent(parent: int) -> bool:
    """
    Make the kernel kill this forked child when `parent` ends. Return False if it has already ended.
    """

class Residency:
    """
    How much of a mapping is in memory, in bytes. Numbers that the kernel does not report are None.
    """

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def bytes(self) -> int:
        """Bytes of the ranges, in whole pages."""

    @property
    def cached(self) -> int | None:
        """Bytes in the page cache, whichever process read them."""

    @property
    def dirty(self) -> int | None:
        """Cached bytes that are not yet written back to the disk."""

    @property
    def mapped(self) -> int | None:
        """Bytes in the page tables of this process."""

    @property
    def huge(self) -> int | None:
        """Mapped bytes in huge pages (2 MiB)."""

    @property
    def source(self) -> str:
        """The source of the numbers: 'cachestat', 'mincore' or 'unknown'."""

    @property
    def share(self) -> float | None:
        """cached / bytes, from 0 to 1."""

class PageCache:
    """
    Bytes of a file in the page cache, in whole pages, whichever process read them.
    """

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def cached(self) -> int:
        """Bytes in memory."""

    @property
    def dirty(self) -> int:
        """Bytes in memory that are not yet written back to the disk."""

    @property
    def evicted(self) -> int:
        """Bytes that were evicted, as far as the kernel remembers."""

    @property
    def recently_evicted(self) -> int:
        """
        Bytes that were evicted so recently that reading them again indicates a memory shortage.
        """

class MappedPages:
    """Bytes of an address range that are in a process's page tables."""

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def mapped(self) -> int:
        """Mapped bytes of the address range."""

    @property
    def huge(self) -> int:
        """Mapped bytes in huge pages (2 MiB)."""

class WarmReport:
    """
    The result of `warm`. Numbers that the kernel does not report are None.
    """

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def bytes(self) -> int:
        """Bytes of the ranges, in whole pages."""

    @property
    def filled(self) -> int:
        """Bytes that this call read into memory."""

    @property
    def verified(self) -> int | None:
        """
        Bytes whose checksums were compared in the same pass and match, or None if verification was not requested.
        """

    @property
    def cached_before(self) -> int | None:
        """Bytes in the page cache before the call."""

    @property
    def cached_after(self) -> int | None:
        """Bytes in the page cache after the call."""

    @property
    def huge_share(self) -> float | None:
        """Share of the mapped bytes that are in huge pages (2 MiB), from 0 to 1."""

    @property
    def minor_faults(self) -> int:
        """Faults that found the page in memory."""

    @property
    def major_faults(self) -> int:
        """Faults that waited for the disk."""

    @property
    def seconds(self) -> float:
        """Duration of the call."""

    @property
    def gib_per_s(self) -> float:
        """Read rate in GiB (2**30 bytes) per second."""

    @property
    def mechanism(self) -> str:
        """How the bytes were read: 'populate', 'read', 'advise' or 'none'."""

    @property
    def huge(self) -> str | None:
        """
        The kernel's answer to the request for 2 MiB pages: 'applied', 'refused' or 'unsupported'. None if they were not requested.
        """

    @property
    def threads(self) -> int:
        """Number of threads that read, each with one request in flight."""

    @property
    def piece(self) -> int:
        """Bytes that a thread requests at a time, or 0 if nothing was read."""

    @property
    def file_system(self) -> str:
        """Type of the file system, such as 'nfs', or '' if it is unknown."""

    @property
    def latency(self) -> float | None:
        """
        Seconds until the file system answered a read of 4 KiB, or None if that was not measured.
        """

    @property
    def complete(self) -> bool:
        """Whether all bytes of the ranges are in memory."""

    @property
    def reason(self) -> str:
        """What was done and why, as a sentence."""

class EvictReport:
    """
    The result of `evict`. Numbers that the kernel does not report are None.
    """

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def bytes(self) -> int:
        """Bytes of the ranges, in whole pages."""

    @property
    def cached_before(self) -> int | None:
        """Bytes in the page cache before the call."""

    @property
    def cached_after(self) -> int | None:
        """Bytes that stayed, because other processes map or lock them."""

    @property
    def seconds(self) -> float:
        """Duration of the call."""

    @property
    def reason(self) -> str:
        """What was evicted and why bytes stayed, as a sentence."""

class PinReport:
    """The result of `pin`."""

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def bytes(self) -> int:
        """Bytes of the ranges, in whole pages."""

    @property
    def pinned(self) -> int:
        """Bytes that are locked."""

    @property
    def outcome(self) -> str:
        """The kernel's answer: 'applied', 'refused' or 'unsupported'."""

    @property
    def reason(self) -> str:
        """What was locked and what limited it, as a sentence."""

class Inspector:
    """Inspects data while it is read into memory."""

class WarmJob:
    """
    A `warm` call that runs in the background and shares ownership of the mapping.
    """

    def wait_for(self, seconds: float) -> WarmReport | None:
        """
        Return the report, or None if the job is still running after this time.
        """

    @property
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    @property
    def progress(self) -> tuple[int, int]: ...

def available_memory() -> tuple[int, str] | None:
    """
    Return (available bytes, what limits them), or None if the number is unknown.
    """

def expect_memory(size: int, operation: str, path: str | os.PathLike, instead: str) -> None:
    """Raise NotEnoughMemory if this process may not use `size` more bytes."""

def held_by_group(group: str, version: int) -> int:
    """
    Return how many of the bytes charged to a control group the kernel cannot drop: usage minus page cache.
    """

def start_warm(
    parts: Sequence[tuple[Mapping, Sequence[tuple[int, int]] | None, Inspector | None]],
    *,
    threads: int,
    huge: bool | None,
    budget: int | None,
    mechanism: str,
    in_order: bool,
    low_priority: bool = False,
) -> WarmJob:
    """
    Start reading ranges of files in the background. A file without ranges (None) is read completely.
    """

def choose_mode(path: str | os.PathLike, *, whole: int = 0) -> tuple[bool, bool, str]:
    """
    Return (whether to copy, whether to use 2 MiB pages, the reason). `whole` is the total size of all files that are opened together.
    """

def total_residency(reports: Sequence[Residency]) -> Residency: ...
def total_evicted(reports: Sequence[EvictReport]) -> EvictReport: ...
def total_pinned(reports: Sequence[PinReport]) -> PinReport: ...
def residency(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> Residency: ...
def cachestat(descriptor: int, range: tuple[int, int] | None) -> PageCache:
    """
    Report how much of an open file, or of a range in it, is in the page cache.
    """

def mapped_in(process: int, address: int, length: int) -> MappedPages:
    """Report how much of an address range is in a process's page tables."""

def evict(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> EvictReport: ...
def pin(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> PinReport: ...
def unpin(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> None: ...
def register_with_cuda(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None, *, only_tried: bool) -> None: ...

class PagesRead:
    """The private pages that `EqualPages.add` read, in bytes."""

    def __repr__(self) -> str: ...
    @property
    def present(self) -> int:
        """Private pages in memory."""

    @property
    def read(self) -> int:
        """The part whose contents were compared."""

    @property
    def zeros(self) -> int:
        """The part of `read` that contains zeros only, which is not compared."""

    @property
    def swapped(self) -> int:
        """Swapped-out pages, which were not read."""

class EqualPages:
    """Finds pages with equal contents in the private memory of processes."""

    def __init__(self, share: float = 1.0, seed: int = 0) -> None:
        """Read this share of the pages, chosen at random by `seed`."""

    def add(self, process: int, addresses: Sequence[tuple[int, int]]) -> PagesRead:
        """
        Read the private pages in address ranges (start, length) of a process as the next source.
        """

    def compare(self) -> list[tuple[float, float]]:
        """
        Return for each source the bytes that other sources or earlier pages contain already, and their standard error.
        """

    def take(self, block: object) -> list[float]:
        """
        Return for each source the bytes of its pages that occur in `block`, at any position, and in no block that was taken before.
        """

    def occurs(self, block: object) -> bool:
        """Return whether `take` would find pages."""

    page_bytes: Final[int] = ...
    """Size of a page."""

PREPACKED_END: bytes = ...

def parse_onnx(file: Mapping) -> dict[str, object]:
    """
    Return the contents of an ONNX model, with tensors as (name, type, dtype name or None, shape, storage, offset, bytes, location, whether it is an initializer of the main graph).
    """

def onnx_skeleton(file: Mapping, location: str, least: int) -> bytes:
    """
    Return the model without the data of its large initializers, which refer to the file `location` instead.
    """

class ArrayFile:
    """A file of named arrays."""

    def view(self, name: str) -> tuple[memoryview, str, tuple[int, ...], tuple[int, ...]] | None:
        """
        Return (memory, dtype name, shape, strides in elements or () for C order), or None if there is no such array.
        """

    def names(self) -> list[str]:
        """Return the names in header order."""

    def entries(self) -> list[tuple[str, str, tuple[int, ...], int, int]]:
        """
        Return (name, dtype name, shape, offset in the file, bytes) for each array, in header order.
        """

    def entry(self, name: str) -> tuple[str, str, tuple[int, ...], int, int] | None: ...
    def metadata(self) -> dict[str, str]: ...
    def ranges_to_verify(self, ranges: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
        """
        Return the given ranges, widened to whole blocks, or the blocks of the whole file for None.
        """

    def verifier(self) -> Inspector: ...
    def close(self) -> None: ...
    @property
    def mapping(self) -> Mapping: ...
    @property
    def container(self) -> str: ...
    @property
    def kind(self) -> str: ...

def open_arrays(
    path: str | os.PathLike,
    *,
    copy: bool = False,
    private_pages: bool = False,
    threads: int = 0,
    expected: tuple[int, int, int, int] | None = None,
    handle: FileHandle | None = None,
    accept_index: bool = False,
) -> tuple[ArrayFile, str, str, bool]:
    """
    Return (file, container, kind, whether the header's checksum is wrong). If `handle` is an open file, `path` is only its name in messages. If `accept_index` is True, open a sharded model's JSON index as a "shard index".
    """

class ArrayWriter:
    """Writes a file of named arrays sequentially."""

    def write(self, buffer: object) -> None: ...
    def commit(self) -> None: ...
    @property
    def order(self) -> list[int]: ...

def make_writer(
    path: str | os.PathLike,
    specs: Sequence[tuple[str, str, Sequence[int]]],
    *,
    metadata: _Mapping[str, str],
    align: int | None,
    checksum: bool,
    durable: bool,
) -> ArrayWriter: ...

class TensorMemory:
    """The memory of a DLPack tensor. It supports the buffer protocol."""

def import_dlpack(tensor: object) -> tuple[memoryview, int, int, int, list[int], list[int]]: ...

class ScratchMemory:
    """
    A scratch file's memory use, in bytes. Numbers that the kernel does not report are None.
    """

    def __repr__(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def resident(self) -> int | None: ...
    @property
    def dirty(self) -> int | None: ...
    @property
    def clean(self) -> int | None: ...
    @property
    def mapped(self) -> int | None: ...
    @property
    def shared(self) -> int | None: ...
    @property
    def cap(self) -> int | None: ...
    @property
    def over(self) -> int | None: ...
    @property
    def source(self) -> str: ...

class ReleaseReport:
    """
    The result of `release`. Numbers that the kernel does not report are None.
    """

    def __init__(self, reason: str) -> None:
        """Create a report for 0 bytes."""

    def __repr__(self) -> str: ...
    @property
    def bytes(self) -> int:
        """Bytes that were requested, in whole pages."""

    @property
    def resident_before(self) -> int | None:
        """Bytes that were in memory before the call."""

    @property
    def resident_after(self) -> int | None:
        """Bytes that stayed in memory."""

    @property
    def seconds(self) -> float: ...
    @property
    def reason(self) -> str:
        """Where the bytes are and why some stayed, as a sentence."""

class ScratchView:
    """
    A view of the bytes of a scratch file. It supports the buffer protocol and keeps the file alive.
    """

class ScratchFile:
    """Writable memory in an unnamed file."""

    def view(self) -> memoryview:
        """
        Return a view of all bytes, which is writable until the file is sealed.
        """

    def write(self, offset: int, buffer: object) -> None: ...
    def write_rows(self, buffer: object, *, offset: int, stride: int, count: int) -> None: ...
    def write_direct(self, offset: int, buffer: object) -> None:
        """Write bytes without keeping them in memory."""

    def release(self, ranges: Sequence[tuple[int, int]] | None) -> ReleaseReport: ...
    def prefetch(self, ranges: Sequence[tuple[int, int]] | None) -> WarmReport: ...
    def flush(self) -> None: ...
    def memory(self) -> ScratchMemory: ...
    def seal(self) -> Mapping: ...
    def publish(
        self,
        path: str | os.PathLike,
        *,
        name: str,
        dtype: str,
        shape: Sequence[int],
        metadata: _Mapping[str, str],
        checksum: bool,
        durable: bool,
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def sealed(self) -> bool: ...
    @property
    def max_resident(self) -> int | None: ...
    @property
    def head(self) -> int: ...
    @property
    def folder(self) -> str: ...
    @property
    def reason(self) -> str: ...

def create_scratch(
    size: int,
    *,
    folder: str | os.PathLike,
    name: str,
    reserve: bool,
    anywhere: bool,
    head: int,
    max_resident: int | None,
) -> ScratchFile: ...
def scratch_head(dtype: str, shape: Sequence[int]) -> int:
    """
    Return the header size, in bytes, of a file that contains a single array.
    """

class LazyMapping:
    """A dict in the data. Only the parts that are accessed are decoded."""

    def copy(self) -> dict[Any, Any]: ...
    def keys(self) -> list[Any]: ...
    def __getattr__(self, name: str) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __contains__(self, value: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

class LazySequence:
    """A list or a tuple in the data. Only the parts that are accessed are decoded."""

    def copy(self) -> Any: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __contains__(self, value: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

class RecordSource:
    """An opened records file."""

    @property
    def container(self) -> str: ...
    @property
    def payload(self) -> int: ...
    @property
    def views(self) -> int: ...

class LazyRows:
    """Rows that are decoded when they are accessed."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...

class RowIterator:
    """An iterator over rows."""

    def __iter__(self, /) -> RowIterator: ...
    def __next__(self, /) -> Any: ...

class Rows:
    """All rows of a records file, or some of them in any order."""

    @overload
    def __init__(self, rows: Rows) -> None: ...
    @overload
    def __init__(self, source: RecordSource, start: int, step: int, size: int) -> None: ...
    @overload
    def __init__(self, source: RecordSource) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def _rows_iter(self, *, backwards: bool) -> Iterator[Any]: ...
    @property
    def _rows_alike(self) -> bool:
        """Whether all rows are equal."""

    def _rows_slice(self, start: int, step: int, size: int) -> Rows: ...
    def _rows_select(self, rows: Sequence[int]) -> Rows: ...
    def _rows_field(self, name: object) -> Rows: ...
    def _rows_take_columns(
        self, indices: object, columns: object | None, *, ragged: object, wrap: object | None
    ) -> dict: ...
    def _rows_values(self, indices: object) -> list: ...
    def _rows_arrow_schema(self) -> object: ...
    def _rows_arrow_array(self) -> tuple: ...
    def _rows_arrow_stream(self) -> object: ...
    def _rows_close(self) -> None: ...
    @property
    def _rows_fields(self) -> list: ...
    @property
    def _rows_are_dicts(self) -> bool:
        """Whether all rows are dicts with str keys."""

    @property
    def _rows_type(self) -> tuple: ...
    def _rows_view(self) -> Any: ...
    @property
    def _rows_range(self) -> tuple: ...
    @property
    def _rows_places(self) -> list[int] | None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lazy(self) -> LazyRows:
        """
        The same rows. `lazy[i]` decodes only the parts that are accessed, and returns views of numbers.
        """

class LazyDict:
    """A dict whose values are decoded when they are accessed."""

    def __getitem__(self, key: object, /) -> Any: ...

class DictRows:
    """The key-value pairs in a records file."""

    def __init__(self, source: RecordSource) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __contains__(self, key: object, /) -> bool: ...
    def get(self, key: object, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""

    def _dict_rows(self, keys: object) -> list: ...
    def _dict_part(self, position: int) -> Rows: ...
    def _dict_close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lazy(self) -> LazyDict:
        """
        The same dict. `lazy[key]` decodes only the parts of the value that are accessed, and returns views of numbers.
        """

def open_records(arrays: ArrayFile, resolve: object) -> RecordSource: ...
def open_rows(
    path: str | os.PathLike,
    resolve: object,
    *,
    trusted: bool = False,
    expected: tuple[int, int, int, int] | None = None,
    handle: FileHandle | None = None,
) -> tuple[ArrayFile, RecordSource, str]:
    """Return (file, rows, their kind: dict, table or list)."""

class RecordBuilder:
    """Streams rows into a records file."""

    def __init__(self, spool: str | os.PathLike, container: str, metadata: _Mapping[str, str]) -> None: ...
    def append(self, row: object, registry: object) -> None:
        """
        Append a row. `registry` is called with each value that is not plain, and returns (name, plain value) or None.
        """

    def extend(self, rows: object, registry: object, *, progress: object | None = None) -> int:
        """
        Append rows and return their number. `progress` is called after every thousand rows with the total number of rows.
        """

    def extend_json(self, text: Mapping, *, path: list[str], lines: bool, progress: object | None) -> int:
        """
        Append the rows in a JSON text. `progress` is called with the numbers of rows and bytes, about 20 times per second.
        """

    def save(self, path: str | os.PathLike) -> None: ...
    def save_to_memory(self, name: str, share: int = 0) -> int | None:
        """
        Return a descriptor that the caller must close, or None if the rows need at least 1/`share` of the available memory.
        """

    def save_nameless(self, folder: str) -> int:
        """
        Save to an unnamed file in a folder. Return its descriptor, which the caller must close.
        """

    @property
    def length(self) -> int: ...
    @property
    def bytes(self) -> int:
        """The number of bytes moved from memory to the spool file."""
