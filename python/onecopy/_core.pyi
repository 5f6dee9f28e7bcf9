"""
The compiled half of onecopy. Use the package's own modules; what is here may change without notice.
"""

from collections.abc import Iterator, Mapping as _Mapping, Sequence
import os
from typing import Annotated, Any, overload

import numpy
from numpy.typing import NDArray

def version() -> str:
    """Return the version that this was built from."""

def crc32c(data: object) -> int:
    """Return the CRC-32C of the bytes of a buffer."""

class Permutation:
    """A pseudo-random permutation that is computed, not stored."""

    def __init__(self, size: int, seed: int, epoch: int) -> None: ...
    def at(self, position: int) -> int: ...
    def index_of(self, value: int) -> int: ...
    def fill(self, first: int, step: int, values: object) -> None:
        """
        Write what stands at first, first + step, ... into a buffer of 64-bit integers.
        """

class View:
    """Bytes of a mapping, for the buffer protocol; keeps the mapping alive."""

    def __len__(self) -> int: ...

class Mapping:
    """Part or all of a file in memory."""

    def view(self, offset: int, length: int) -> memoryview:
        """Bytes of the mapping; read-only unless its pages are private."""

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
    A copy of an open file in sealed memory, behind `lead` zero bytes; moves the position of the descriptor. `drop_source`: out of the page cache as it is copied.
    """

def copy_contents(source: int, target: int, size: int, name: str, threads: int = 0, lead: int = 0) -> None:
    """
    Copy bytes of an open file into another, from its byte `lead`; TimeoutError if its server does not answer.
    """

def content_identity(fd: int, *, ask: bool) -> tuple[int, int, int, int, int]:
    """
    (device, inode, size, times of the last write and change in ns); `ask`: as a server says now.
    """

def is_remote(fd: int) -> bool:
    """Whether an open file is on a network or user-space file system."""

def is_stacked(fd: int) -> bool:
    """
    Whether the file system of an open file may keep its contents in files of another one (overlayfs).
    """

def why_not_identified(fd: int) -> str:
    """
    Why an open file may be changed while its identity stays; empty if each write from now on changes it.
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
    An array of numpy that owns a copy-on-write mapping of bytes of a file; the descriptor may be closed. `random`: a fault reads one page, whatever the device reads ahead.
    """

class FileHandle:
    """A descriptor that closes itself."""

    def __init__(self, fd: int) -> None:
        """Takes the descriptor."""

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
    """Result of a `prune`."""

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
    """(path, why, why not the usual one)"""

def is_in_memory(folder: str | os.PathLike) -> bool: ...
def known_user(id: int) -> int | None:
    """
    The user that the kernel means by an id; None for the overflow id where it may stand for any user.
    """

def owner_of(fd: int) -> int | None:
    """The owner of an open file; None if that user has no id here."""

def owner_at(path: str | os.PathLike) -> int | None:
    """The same of what is at a path."""

def report_progress(bytes: int) -> None: ...
def end_with_parent(parent: int) -> bool:
    """
    In a forked child: be killed when `parent` ends; False where it has ended already.
    """

class Residency:
    """
    How much of a mapping is in memory, in bytes; None: the kernel does not report it.
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
        """Mapped bytes in entries of 2 MiB."""

    @property
    def source(self) -> str:
        """The source of the numbers: 'cachestat', 'mincore' or 'unknown'."""

    @property
    def share(self) -> float | None:
        """cached / bytes, 0 to 1."""

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
        Bytes that were evicted so recently that reading them again shows a shortage of memory.
        """

class MappedPages:
    """Bytes of an address range that are in the page tables of a process."""

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def mapped(self) -> int:
        """Mapped bytes of the address range."""

    @property
    def huge(self) -> int:
        """Mapped bytes in entries of 2 MiB."""

class WarmReport:
    """Result of a `warm`. A number that the kernel does not report is None."""

    def __repr__(self) -> str: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...
    @property
    def bytes(self) -> int:
        """Bytes of the ranges, in whole pages."""

    @property
    def filled(self) -> int:
        """Bytes that this call brought into memory."""

    @property
    def verified(self) -> int | None:
        """
        Bytes whose checksums were compared in the same pass, and agreed; None: not requested.
        """

    @property
    def cached_before(self) -> int | None:
        """Bytes in the page cache before the call."""

    @property
    def cached_after(self) -> int | None:
        """Bytes in the page cache after the call."""

    @property
    def huge_share(self) -> float | None:
        """Part of the mapped bytes in entries of 2 MiB, 0 to 1."""

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
        """Rate of the bytes that were brought in; 2**30 bytes a second."""

    @property
    def mechanism(self) -> str:
        """How the bytes were read: 'populate', 'read', 'advise' or 'none'."""

    @property
    def huge(self) -> str | None:
        """
        The kernel's answer to the request for 2 MiB pages: 'applied', 'refused', 'unsupported'; None: not requested.
        """

    @property
    def threads(self) -> int:
        """Number of threads that read; each has one request in flight."""

    @property
    def piece(self) -> int:
        """Bytes that a thread requests at a time; 0: nothing was read."""

    @property
    def file_system(self) -> str:
        """Type of the file system, such as 'nfs'; '': not known."""

    @property
    def latency(self) -> float | None:
        """
        Seconds until the file system answered a read of 4 KiB; None: not measured.
        """

    @property
    def complete(self) -> bool:
        """True when all bytes of the ranges are in memory."""

    @property
    def reason(self) -> str:
        """A sentence: what was done, and why."""

class EvictReport:
    """
    Result of an `evict`. A number that the kernel does not report is None.
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
        """Bytes that stayed: other processes map or lock them."""

    @property
    def seconds(self) -> float:
        """Duration of the call."""

    @property
    def reason(self) -> str:
        """A sentence: what was evicted, and why bytes stayed."""

class PinReport:
    """Result of a `pin`."""

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
        """A sentence: what was locked, and what limited it."""

class Inspector:
    """Inspects bytes in the pass that reads them into memory."""

class WarmJob:
    """A warming that runs beside other work; owns a share of the mapping."""

    def wait_for(self, seconds: float) -> WarmReport | None:
        """The report, or None after this time."""

    @property
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    @property
    def progress(self) -> tuple[int, int]: ...

def available_memory() -> tuple[int, str] | None:
    """(bytes, what limits them)"""

def expect_memory(size: int, operation: str, path: str | os.PathLike, instead: str) -> None:
    """
    Raises NotEnoughMemory where `size` bytes more are more than may be used.
    """

def held_by_group(group: str, version: int) -> int:
    """
    Bytes charged to a control group that the kernel cannot drop: usage minus page cache.
    """

def start_warm(
    parts: Sequence[tuple[Mapping, Sequence[tuple[int, int]] | None, Inspector | None]],
    *,
    threads: int,
    huge: bool | None,
    budget: int | None,
    mechanism: str,
    in_order: bool,
) -> WarmJob:
    """Start to read ranges of files; ranges None: the whole file."""

def choose_mode(path: str | os.PathLike, *, whole: int = 0) -> tuple[bool, bool, str]:
    """
    (copy?, in 2 MiB pages?, why); `whole`: bytes of all the files that are opened as one with it.
    """

def total_residency(reports: Sequence[Residency]) -> Residency: ...
def total_evicted(reports: Sequence[EvictReport]) -> EvictReport: ...
def total_pinned(reports: Sequence[PinReport]) -> PinReport: ...
def residency(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> Residency: ...
def cachestat(descriptor: int, range: tuple[int, int] | None) -> PageCache:
    """
    Report the page cache of a range of an open file; None: of the whole file.
    """

def mapped_in(process: int, address: int, length: int) -> MappedPages:
    """Report the page tables of an address range of a process."""

def evict(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> EvictReport: ...
def pin(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> PinReport: ...
def unpin(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None) -> None: ...
def register_with_cuda(mapping: Mapping, ranges: Sequence[tuple[int, int]] | None, *, only_tried: bool) -> None: ...

PREPACKED_END: bytes = ...

def parse_onnx(file: Mapping) -> dict[str, object]:
    """
    What an ONNX model holds; tensors as (name, type, dtype name or None, shape, storage, offset, bytes, location, is an initializer of the main graph).
    """

def onnx_skeleton(file: Mapping, location: str, least: int) -> bytes:
    """
    The model with the data of its large initializers in a file of that name.
    """

class ArrayFile:
    """A file of named arrays."""

    def view(self, name: str) -> tuple[memoryview, str, tuple[int, ...], tuple[int, ...]] | None:
        """
        (memory, dtype name, shape, strides in elements or () where the last axis runs fastest), or None.
        """

    def names(self) -> list[str]:
        """In the order of the header."""

    def entries(self) -> list[tuple[str, str, tuple[int, ...], int, int]]:
        """
        (name, dtype name, shape, offset in the file, bytes) of each, in header order.
        """

    def entry(self, name: str) -> tuple[str, str, tuple[int, ...], int, int] | None: ...
    def metadata(self) -> dict[str, str]: ...
    def ranges_to_verify(self, ranges: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
        """Widened to whole blocks; None: the whole file."""

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
    (file, container, kind, whether the checksum of the header is wrong). `handle`: the open file, which the path then only names. `accept_index`: open the JSON index of a sharded model as a "shard index".
    """

class ArrayWriter:
    """Writes a file of named arrays in one stream."""

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
    """The memory of a DLPack tensor, for the buffer protocol."""

def import_dlpack(tensor: object) -> tuple[memoryview, int, int, int, list[int], list[int]]: ...

class ScratchMemory:
    """
    Memory that a scratch file consumes, in bytes. A number that the kernel does not report is None.
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
    Result of a `release`. A number that the kernel does not report is None.
    """

    def __init__(self, reason: str) -> None:
        """A report of no bytes."""

    def __repr__(self) -> str: ...
    @property
    def bytes(self) -> int:
        """Bytes that were requested, in whole pages."""

    @property
    def resident_before(self) -> int | None:
        """Bytes that were in memory before."""

    @property
    def resident_after(self) -> int | None:
        """Bytes that stayed in memory."""

    @property
    def seconds(self) -> float: ...
    @property
    def reason(self) -> str:
        """A sentence: where the bytes are, and why some stayed."""

class ScratchView:
    """Bytes of a scratch file, for the buffer protocol; keeps the file."""

class ScratchFile:
    """Writable memory in a nameless file."""

    def view(self) -> memoryview:
        """All bytes; writable until it is sealed."""

    def write(self, offset: int, buffer: object) -> None: ...
    def write_rows(self, buffer: object, *, offset: int, stride: int, count: int) -> None: ...
    def write_direct(self, offset: int, buffer: object) -> None:
        """Nothing of it stays in memory."""

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
    """Bytes before the data, so that it can become a file of one array."""

class LazyMapping:
    """A dict in the data, decoded only where it is touched."""

    def copy(self) -> dict[Any, Any]: ...
    def keys(self) -> list[Any]: ...
    def __getattr__(self, name: str) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __contains__(self, value: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

class LazySequence:
    """A list or a tuple in the data, decoded only where it is touched."""

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
    """Rows that are decoded where they are touched."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...

class RowIterator:
    """Rows, one by one."""

    def __iter__(self, /) -> RowIterator: ...
    def __next__(self, /) -> Any: ...

class Rows:
    """Rows of a records file, or some of them in any order."""

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
        The same rows: `lazy[i]` decodes only what is touched of it, and views numbers in place.
        """

class LazyDict:
    """A dict whose values are decoded on access."""

    def __getitem__(self, key: object, /) -> Any: ...

class DictRows:
    """The pairs of a records file, found by key."""

    def __init__(self, source: RecordSource) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __contains__(self, key: object, /) -> bool: ...
    def get(self, key: object, default: Any = None) -> Any:
        """The value of a key, or `default`."""

    def _dict_rows(self, keys: object) -> list: ...
    def _dict_part(self, position: int) -> Rows: ...
    def _dict_close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lazy(self) -> LazyDict:
        """
        The same dict: `lazy[key]` decodes only what is touched of the value, and views numbers in place.
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
    """The file, its rows, and their kind: dict, table or list."""

class RecordBuilder:
    """Rows streamed into a records file."""

    def __init__(self, spool: str | os.PathLike, container: str, metadata: _Mapping[str, str]) -> None: ...
    def append(self, row: object, registry: object) -> None:
        """
        `registry` is called with what is no plain value, and returns (name, plain value) or None.
        """

    def extend(self, rows: object, registry: object, *, progress: object | None = None) -> int:
        """
        Gives how many. `progress` is called with the number of all rows after every thousand.
        """

    def extend_json(self, text: Mapping, *, path: list[str], lines: bool, progress: object | None) -> int:
        """
        The rows of a JSON text. `progress` is called with rows and bytes, some 20 times a second.
        """

    def save(self, path: str | os.PathLike) -> None: ...
    def save_to_memory(self, name: str, share: int = 0) -> int | None:
        """
        A descriptor, which is the caller's to close; None if the rows take a `share`th of the available memory or more.
        """

    def save_nameless(self, folder: str) -> int:
        """The same of an unnamed file in a folder."""

    @property
    def length(self) -> int: ...
    @property
    def bytes(self) -> int:
        """What has left the memory for the spool."""
