"""`onecopy bench images`: decode several images, keep them all and stitch them, on the heap and in mapped files.

A method decodes each file, creates a canvas, pastes the images, and flushes its output to the disk. It keeps its
results until the sample has been measured. Decoders use their default number of threads.

Every sample is a fresh process. Its memory is sampled up to 50 times per second with inexpensive reads, together with
the dirty and used memory of the whole machine, so that the page cache is included. Then the canvas is verified and
released, and the time until the process has returned its memory is measured. In the case with a limit, the kernel
refuses private memory beyond the limit (RLIMIT_DATA).
"""

from __future__ import annotations

import functools
import gc
import math
import os
import re
import resource
import shutil
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy.memory import proc
from onecopy_bench.peers import Peer, installed, module, named, require
from onecopy_bench.pictures import by_case
from onecopy_bench.processes import call_once, expect_same, start_workers
from onecopy_bench.record import Record
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, option, size_option
from onecopy_bench.system import difference, disk_bytes, memory_of_machine
from onecopy_bench.tables import MB, plain, table_by_case
from onecopy_bench.worker import Steps, prepare, used_since

NAME, NEEDS = "images", ("tifffile", "imagecodecs")
INPUTS = {"compressed": "compressed files", "plain": "files that are not compressed"}
BACK, BACK_S = 0.1, 20.0
"""Memory counts as returned when at most the share `BACK` of its peak is left. A sample waits `BACK_S` s at most."""
Shape = tuple[int, ...]
MADE_UP: Shape = (4864, 3968, 3)
"""The shape of synthetic images, which is that of the real slide in the published figures."""
ROWS = 256
"""Number of rows of a canvas that are read at a time."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a process decodes and stitches: 8-bit images of the same `shape`, (rows, columns, colour channels).

    Methods write to `folder`. `cap` limits the bytes of the canvas in memory, for methods that support a limit.
    """

    paths: tuple[str, ...]
    folder: str
    columns: int
    shape: Shape
    cap: int

    @property
    def canvas(self) -> Shape:
        """Shape of the canvas."""
        rows = -(-len(self.paths) // self.columns)
        return (rows * self.shape[0], self.columns * self.shape[1], *self.shape[2:])

    def origin(self, number: int) -> tuple[int, int]:
        """Row and column of an image's first pixel on the canvas."""
        return number // self.columns * self.shape[0], number % self.columns * self.shape[1]

    def place(self, name: str) -> str:
        """Return the path of a file in `folder`."""
        return os.path.join(self.folder, name)  # noqa: PTH118 - text


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Peer):
    """A method: `decode` reads image number n, `stitch` pastes all images, and `sync` flushes both results to the disk.

    `rows` returns the canvas as an object that can be sliced into arrays by rows.
    """

    decode: Callable[[Work, int], Any]
    stitch: Callable[[Work, list[Any]], Any]
    rows: Callable[[Work, Any], Any] = lambda _, canvas: canvas
    sync: Callable[[Work, list[Any], Any], None]


def _sync(*paths: str | os.PathLike[str]) -> None:
    """Flush files to the disk. If a path is a folder, flush all files in it."""
    for path in paths:
        for file in Path(path).rglob("*") if Path(path).is_dir() else [Path(path)]:
            if file.is_file():
                fd = os.open(file, os.O_RDONLY)
                os.fdatasync(fd)
                os.close(fd)


def _paste(work: Work, images: list[Any], canvas: Any) -> Any:
    height, width = work.shape[:2]
    for number, image in enumerate(images):
        row, column = work.origin(number)
        canvas[row : row + height, column : column + width] = image
    return canvas


def _pillow(work: Work, number: int) -> Any:
    with module("PIL.Image").open(work.paths[number]) as image:
        return np.asarray(image)


def _memmap(work: Work, name: str, shape: Shape) -> Any:
    return np.memmap(work.place(name), np.uint8, "w+", shape=shape)


def _memmap_image(work: Work, number: int) -> Any:
    out = _memmap(work, f"{number}.raw", work.shape)
    with module("tifffile").TiffFile(work.paths[number]) as file:
        file.pages.first.asarray(out=out)
    return out


def _flush(_: Work, images: list[Any], canvas: Any) -> None:
    for array in (*images, canvas):
        array.flush()
        _sync(array.filename)


def _write_canvas(work: Work, _: list[Any], canvas: Any) -> None:
    """Write a canvas from the heap to a file and flush it, like a program that saves its result."""
    with Path(work.place("canvas.raw")).open("wb", buffering=0) as file:
        for row in range(0, len(canvas), 1024):
            file.write(canvas[row : row + 1024])
        os.fdatasync(file.fileno())


def _zarr_canvas(work: Work, images: list[Any]) -> Any:
    shapes: dict[str, Any] = {"shape": work.canvas, "chunks": (1024, *work.shape[1:])}
    array = module("zarr").create_array(work.place("canvas.zarr"), **shapes, dtype="u1", compressors=None)
    return _paste(work, images, array)


def _vips(work: Work, image: Any, name: str) -> Any:
    image.write_to_file(work.place(name))
    return module("pyvips").Image.new_from_file(work.place(name))


def _canvas(work: Work, images: list[Any]) -> Any:
    canvas = module("onecopy").scratch(work.canvas, "u1", dir=work.folder)
    height, width = work.shape[:2]
    for number, image in enumerate(images):
        row, column = work.origin(number)
        canvas.write(np.s_[row : row + height, column : column + width], image.array)
    return canvas


def _capped_mosaic(work: Work, images: list[Any]) -> Any:
    places = [work.origin(number) for number in range(len(images))]
    capped: dict[str, Any] = {"shape": work.canvas[:2], "max_resident": work.cap, "folder": work.folder}
    return module("onecopy_images").mosaic([image.array for image in images], places, **capped).scratch


def _sync_ours(work: Work, _: list[Any], canvas: Any) -> None:
    canvas.flush()
    _sync(work.place("store"))  # these images can be decoded again, so they have not been flushed


_DECODERS = ("numpy", "tifffile", "imagecodecs")
_LAZY = ("arrays.file", "arrays.scratch", "store.keys", "store.location", "store.store")  # loaded on first use
_OURS = (*_DECODERS, "onecopy_images.opening", "onecopy_images._tiff", *(f"onecopy.{name}" for name in _LAZY))
_TIFF: dict[str, Any] = {"decode": lambda work, number: module("tifffile").imread(work.paths[number], key=0)}
_HEAP: dict[str, Any] = {
    "stitch": lambda work, images: _paste(work, images, np.zeros(work.canvas, np.uint8)), "sync": _write_canvas
}  # fmt: skip
_FOLDER: dict[str, Any] = {"sync": lambda work, *_: _sync(work.folder)}
_FILES: dict[str, Any] = {
    "decode": lambda work, number: module("onecopy").images.open(work.paths[number], store=work.place("store")),
    "rows": lambda _, canvas: canvas.array, "sync": _sync_ours, "ours": True,
}  # fmt: skip

METHODS = (
    Method(
        "numpy", "tifffile.imread, numpy.zeros: the heap, in 2 MiB pages", _DECODERS, private=2.2, **_TIFF, **_HEAP
    ),
    Method(
        "numpy.memmap", "decoded into numpy.memmap(mode='w+'), the canvas as well", _DECODERS,
        decode=_memmap_image, sync=_flush,
        stitch=lambda work, images: _paste(work, images, _memmap(work, "canvas.raw", work.canvas)),
    ),
    Method("Pillow", "Image.open, numpy.zeros", ("numpy", "PIL.Image"), private=3.2, decode=_pillow, **_HEAP),
    Method(
        "pyvips", "each to a .v file, arrayjoin to another", ("numpy", "pyvips"), **_FOLDER,
        decode=lambda work, n: _vips(work, module("pyvips").Image.new_from_file(work.paths[n]), f"{n}.v"),
        stitch=lambda work, images: _vips(
            work, module("pyvips").Image.arrayjoin(images, across=work.columns), "canvas.v"
        ),
        rows=lambda work, _: np.memmap(work.place("canvas.v"), np.uint8, "r", 64, work.canvas),  # behind a header
    ),
    Method(
        "zarr", "tifffile.imread, a zarr array in lines of 1024 rows, not compressed", (*_DECODERS, "zarr"),
        private=1.2, stitch=_zarr_canvas, **_TIFF, **_FOLDER,
    ),
    Method("onecopy", "oc.images.open, oc.scratch: decoded here, into files", _OURS, stitch=_canvas, **_FILES),
    Method(
        "onecopy, capped", "oc.images.open, oc.images.mosaic with max_resident", _OURS,
        stitch=_capped_mosaic, **_FILES,
    ),
)  # fmt: skip


def _made_up(seed: int = 1) -> NDArray[np.uint8]:
    """Return an image of blobs that compresses about as well as microscope images."""
    rng = np.random.default_rng(seed)
    image = np.zeros(MADE_UP, np.uint8)
    y, x = np.mgrid[-20:21, -20:21]
    blob = np.clip(20 - np.hypot(y, x), 0, None)
    rows, columns = rng.integers(20, MADE_UP[0] - 21, 9000), rng.integers(20, MADE_UP[1] - 21, 9000)
    for row, column in zip(rows, columns, strict=True):
        part = image[row - 20 : row + 21, column - 20 : column + 21]
        np.maximum(part, (blob[..., None] * rng.uniform(2, 12, 3)).astype(np.uint8), out=part)
    return image


def _write(folder: Path, count: int, file: str | None) -> dict[str, Any]:
    """Write compressed and uncompressed images, from a file or synthetic. Return the shape and dtype of one image."""
    import tifffile

    compressed, plain = folder / "compressed", folder / "plain"
    compressed.mkdir()
    plain.mkdir()
    source = Path(file) if file else compressed / "0.tif"
    if not file:
        tifffile.imwrite(source, _made_up(), tile=(256, 256), compression="jpeg", photometric="rgb")
    image = tifffile.imread(source, key=0)
    for number in range(count):
        copy = compressed / f"{number}{source.suffix}"
        if copy != source:
            shutil.copyfile(source, copy)
        tifffile.imwrite(plain / f"{number}.tif", image, photometric="rgb" if image.ndim == 3 else "minisblack")
    return {"shape": image.shape, "dtype": image.dtype.str}


def _checksum(canvas: Any, rows: int) -> int:
    found = 0
    for row in range(0, rows, ROWS):
        found = zlib.crc32(np.ascontiguousarray(canvas[row : row + ROWS]).data, found)
    return found


def _run(method: Method, work: Work, sync: bool) -> tuple[dict[str, Any], list[Any], Any]:
    """Decode and stitch the images once. Return the times and counters, the images, and the canvas."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), perf_counter_ns()
    images = [method.decode(work, number) for number in range(len(work.paths))]
    decoded = perf_counter_ns()
    canvas = method.stitch(work, images)
    stitched = perf_counter_ns()
    if sync:
        method.sync(work, images, canvas)
    end, used = perf_counter_ns(), used_since(before)
    message = {
        "total_ns": end - start,
        "decode_ns": decoded - start,
        "stitch_ns": stitched - decoded,
        "sync_ns": end - stitched,
        **used,
    }
    return message, images, canvas


def _restrict(limit: int) -> None:
    """Limit further private memory to `limit` bytes; the kernel refuses more."""
    now = int(re.findall(r"^VmData:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (now + limit, now + limit))


def steps(method: str, work: Work, sync: bool = False, limit: int | None = None) -> Steps:
    """Decode, keep and stitch all images, and then release everything. `limit`: maximum private memory, or None."""
    chosen = named(METHODS, method)
    prepare(chosen.needs)
    yield "ready", {}
    if limit is not None:
        _restrict(limit)
    message, images, canvas = _run(chosen, work, sync)
    yield "started", message
    yield "checked", {"checksum": _checksum(chosen.rows(work, canvas), work.canvas[0])}
    del images, canvas
    gc.collect()
    yield "dropped", {}


# --- the scenario -----------------------------------------------------------------------------------------------------


NAMES = tuple(method.name for method in METHODS)


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The scenario's options. A `limit` of 0 omits the case with a limit; `syncs`: whether cases flush to the disk."""

    file: str | None = option(None, "Your own image, instead of a synthetic one.", kind="existing", is_path=True)
    count: int = option(8, "Number of images.")
    columns: int = option(4, "Number of images side by side.")
    cap: int = size_option("128MiB", "Memory limit of the canvas in the method 'onecopy, capped'.")
    limit: int = size_option("256MiB", "Limit on private memory, in the case with a limit.")
    ways: tuple[str, ...] = option(NAMES, "Method to measure.", "--way", choices=NAMES)
    inputs: tuple[str, ...] = option(tuple(INPUTS), "Type of the input files.", "--input", choices=tuple(INPUTS))
    syncs: tuple[bool, ...] = (False, True)


def plan(setup: Setup, options: Options) -> Plan:
    """Plan a run for each method and case. Raise ModuleNotFoundError if a package that writes the images is missing."""
    require(NEEDS, NAME, "'onecopy[images]'")
    setup.say("writing the images")
    place = setup.place
    file = os.path.realpath(options.file) if options.file else None
    facts = call_once(options.timeout, _write, place, options.count, file)
    if facts["dtype"] != "|u1":
        raise OSError(f"{file}: expected 8-bit pixels, found {facts['dtype']}")
    shape = tuple(facts["shape"])
    chosen, absent = installed(METHODS, options.ways)
    paths = {kind: tuple(map(str, sorted((place / kind).iterdir()))) for kind in INPUTS}
    works = {kind: Work(paths[kind], "", options.columns, shape, options.cap) for kind in options.inputs}
    nbytes = math.prod(shape) * options.count
    compressed = sum(Path(path).stat().st_size for path in paths["compressed"])
    data = {"shape": list(shape), "decoded": nbytes, "compressed": compressed}
    flushed = {True: "brought down to the disk", False: "left to the kernel"}
    cases: list[tuple[str, str, dict[str, Any]]]
    cases = [(kind, flushed[sync], {"sync": sync}) for kind in options.inputs for sync in options.syncs]
    if options.limit:
        limited = f"at most {options.limit >> 20} MiB of private memory"
        cases.append((options.inputs[0], limited, {"limit": options.limit}))
    trials = [
        Trial(
            method.name, (INPUTS[kind], words), method.private * nbytes,
            partial(_take, method, works[kind], settings, options),
        )
        for kind, words, settings in cases
        for method in chosen
    ]  # fmt: skip
    return Plan(chosen, trials, data, absent)


@functools.cache
def expected(work: Work, timeout: float) -> int:
    """Return the checksum of the canvas that tifffile and NumPy produce from the same files."""
    with start_workers(__name__, 1, timeout, method="numpy", work=work) as workers:
        workers.step("started")
        return int(workers.step("checked")[0]["checksum"])


def _take(method: Method, work: Work, settings: dict[str, Any], options: Options, attempt: Attempt) -> Measured:
    attempt.begin()
    folder, wanted = attempt.folder(), expected(work, options.timeout)
    arguments = {"method": method.name, "work": replace(work, folder=str(folder)), **settings}
    before = disk_bytes(folder, written=True)
    with start_workers(__name__, 1, options.timeout, **arguments) as workers:
        sampler = Sampler(workers.pids[0])
        (message,) = workers.step("started", sampler.poll)
        sampler.take()
        numbers = {name: float(value) for name, value in message.items() if name != "phase"} | sampler.peaks()
        written = difference(disk_bytes(folder, written=True), before)
        points = tuple(sampler.points)
        expect_same(workers.step("checked")[0]["checksum"], wanted, "the checksums of the canvas and of NumPy's canvas")
        workers.step("dropped")
        back = sampler.until_back(BACK, BACK_S)
        workers.dismiss()
    return Measured({**numbers, "written": written, "back_s": back}, points)


class Sampler:
    """Samples a process and the machine from two small files in /proc. All numbers are relative to the first sample.

    `points` are tuples of (seconds, anonymous, file, dirty, used, cached, committed), in bytes. "anonymous" and "file"
    describe the process; the others describe the whole machine. "committed" is the private memory that the kernel has
    promised to programs.
    """

    EVERY_S = 0.02
    """Seconds between two samples, each of which takes 15 us."""
    SMALL = 16 << 20
    """Bytes above the first sample that an allocator may retain."""
    PEAKS = ("peak_anonymous", "peak_file", "peak_dirty", "peak_used", "peak_cached", "peak_committed")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = self._last = time.monotonic()
        self._base = self._now()
        self.points: list[tuple[float, ...]] = []

    def _now(self) -> tuple[int, ...]:
        status, machine = proc.status(self._pid), memory_of_machine()
        files = (status.rss_file or 0) + (status.rss_shmem or 0)
        used = machine["MemTotal"] - machine["MemFree"]
        dirty = machine["Dirty"] + machine["Writeback"]
        return status.rss_anon or 0, files, dirty, used, machine["Cached"], machine.get("Committed_AS", 0)

    def poll(self) -> None:
        """Take a sample if the interval has passed."""
        if time.monotonic() - self._last >= self.EVERY_S:
            self._last = time.monotonic()
            self.take()

    def take(self) -> tuple[float, ...]:
        """Take a sample now."""
        point = tuple(float(value - base) for value, base in zip(self._now(), self._base, strict=True))
        self.points.append((round(time.monotonic() - self._start, 3), *point))
        return self.points[-1]

    def peaks(self) -> dict[str, float]:
        """Return the maximum of each number in `PEAKS` so far."""
        return {name: max((p[at] for p in self.points), default=0.0) for at, name in enumerate(self.PEAKS, 1)}

    def until_back(self, share: float, seconds: float) -> float | None:
        """Wait until at most `share` of the peak, or `SMALL`, is in use. Return the time, or None after `seconds`."""
        start = time.monotonic()
        peak = max((point[1] + point[2] for point in self.points), default=0.0)
        while time.monotonic() - start < seconds:
            point = self.take()
            if point[1] + point[2] <= max(share * peak, self.SMALL):
                return time.monotonic() - start
            time.sleep(self.EVERY_S)
        return None


COLUMNS = (
    ("all\ns", plain("total_ns", 1e9)),
    ("of it: decode\ns", plain("decode_ns", 1e9)),
    ("CPU\ns", plain("cpu_ns", 1e9)),
    ("anon. peak\nMB", plain("peak_anonymous", MB)),
    ("file pages,\npeak MB", plain("peak_file", MB)),
    ("dirty,\npeak MB", plain("peak_dirty", MB)),
    ("all memory,\npeak MB", plain("peak_used", MB)),
    ("committed,\npeak MB", plain("peak_committed", MB)),
    ("minor\nfaults", plain("minor_faults")),
    ("written\nMB", plain("written", MB)),
    ("back\ns", plain("back_s")),
)
DRAWN = {
    "s, all": plain("total_ns", 1e9),
    "anonymous peak, MB": plain("peak_anonymous", MB),
    "peak of file pages, MB": plain("peak_file", MB),
}


def _described(record: Record) -> str:
    data = record.data
    return (
        f"{record.options['count']} images of {' x '.join(map(str, data['shape']))} bytes, "
        f"{data['decoded'] / MB:.1f} MB decoded ({data['compressed'] / MB:.1f} MB compressed), and a canvas as large"
    )


SCENARIO = Scenario(
    NAME,
    """Measure decoding and stitching: several images held at once, and one canvas of all of them.

    The methods use the heap, numpy.memmap, Pillow, pyvips, zarr, and oc.images with oc.scratch. They run with and
    without flushing everything to the disk, and with a limit on private memory. The page cache is measured too.
    """,
    Options(),
    plan,
    _described,
    table_by_case(COLUMNS),
    draw=by_case(DRAWN),
    measures={"peak_of_process": lambda sample: max((p[1] + p[2] for p in sample.points), default=None)},
)
