"""`onecopy bench images`: decode several images, hold them all, stitch them; on the heap, and in mapped files.

Every sample is a fresh process. Its memory is sampled some dozen times a second by the cheapest reads, together with
what is dirty and what is not free on the whole machine, so that the page cache counts; then the canvas is compared,
given up, and the seconds are taken until the process is small again. In the case with a limit the kernel refuses
private memory beyond it (RLIMIT_DATA).
"""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from onecopy.base.text import counted
from onecopy.memory import proc
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.crew import SampleError, crew_of, once
from onecopy_bench.engine.machine import memory_of_machine
from onecopy_bench.engine.memory import difference, disk_bytes
from onecopy_bench.engine.pictures import FAINT, WIDTH
from onecopy_bench.engine.record import Case, Log, Record, Sample, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, plain, table_by_case
from onecopy_bench.engine.ways import installed, require
from onecopy_bench.workers import images as worker
from onecopy_bench.workers.images import WAYS, Way, Work

NAME = "images"
NAMES = tuple(way.name for way in WAYS)
NEEDS = ("tifffile", "imagecodecs")
INPUTS = {"compressed": "compressed files", "plain": "files that are not compressed"}
BACK, BACK_S = 0.1, 20.0
"""A process is small again with this share of its peak; it is waited for so many seconds."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run; with a `limit` of 0 there is no such case, `syncs` are without and with flushing."""

    file: str | None = cli.option(None, "An image of yours, instead of one made up.", type=cli.EXISTING, path=True)
    count: int = cli.option(8, "Number of images.")
    columns: int = cli.option(4, "Images side by side.")
    cap: int = cli.size("128MiB", "Memory of the canvas, for 'onecopy, capped'.")
    limit: int = cli.size("256MiB", "Limit of private memory, in the case that has one.")
    ways: tuple[str, ...] = cli.option(NAMES, "What is compared.", "--way", choices=NAMES)
    inputs: tuple[str, ...] = cli.option(
        tuple(INPUTS), "Kind of the files that are read.", "--input", choices=tuple(INPUTS)
    )
    syncs: tuple[bool, ...] = (False, True)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way in every case; raises ModuleNotFoundError without what makes the images."""
    require(NEEDS, NAME, "'onecopy[images]'")
    watch(Progress(0, 1, "writing the images"))
    shape = _written(place, options)
    chosen, absent = installed(WAYS, options.ways)
    paths = {kind: tuple(map(str, sorted((place / kind).iterdir()))) for kind in INPUTS}
    works = {kind: Work(paths[kind], "", options.columns, shape, options.cap) for kind in options.inputs}
    nbytes = shape[0] * shape[1] * (shape[2] if len(shape) > 2 else 1) * options.count
    compressed = sum(Path(path).stat().st_size for path in paths["compressed"])
    data = {"shape": list(shape), "decoded": nbytes, "compressed": compressed}
    head = heading(NAME, place, options, chosen, data=data, absent=absent)
    cases = [(kind, sync, None) for kind in options.inputs for sync in options.syncs]
    limits = [(kind, False, options.limit) for kind in options.inputs[:1] if options.limit]
    turns = [
        Turn(way.name, case_of(*case), way.private * nbytes, partial(_take, way, works[case[0]], case, options))
        for case in [*cases, *limits]
        for way in chosen
    ]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def case_of(kind: str, sync: bool, limit: int | None) -> Case:
    """Return the name of a case."""
    if limit is not None:
        return INPUTS[kind], f"at most {limit >> 20} MiB of private memory"
    return INPUTS[kind], "brought down to the disk" if sync else "left to the kernel"


def _written(place: Path, options: Options) -> tuple[int, ...]:
    """Write all images in a child; return the shape of one."""
    file = os.path.realpath(options.file) if options.file else None
    facts = once(worker, options.timeout, "written", make=(place, options.count, file))
    if facts["dtype"] != "|u1":
        raise OSError(f"{file}: its pixels are {facts['dtype']}, and bytes are expected")
    return tuple(facts["shape"])


@functools.cache
def expected(work: Work, timeout: float) -> int:
    """Return the checksum of a canvas: of what tifffile and numpy make of the same files."""
    with crew_of(worker, 1, timeout, way="numpy", work=work) as crew:
        crew.step("started")
        return int(crew.step("checked")[0]["checksum"])


def _take(way: Way, work: Work, case: tuple[str, bool, int | None], options: Options, attempt: Attempt) -> Taken:
    attempt.begin()
    folder, wanted = attempt.folder(), expected(work, options.timeout)
    errand = {"way": way.name, "work": replace(work, folder=str(folder)), "sync": case[1], "limit": case[2]}
    before = disk_bytes(folder, written=True)
    with crew_of(worker, 1, options.timeout, way.environment, **errand) as crew:
        sampler = Sampler(crew.pids[0])
        (message,) = crew.step("started", sampler.poll)
        sampler.take()
        numbers = {name: float(value) for name, value in message.items() if name != "phase"} | sampler.peaks()
        written = difference(disk_bytes(folder, written=True), before)
        points = tuple(sampler.points)
        if crew.step("checked")[0]["checksum"] != wanted:
            raise SampleError("wrong data", "the canvas is not what numpy makes of the same files")
        crew.step("dropped")
        back = sampler.until_back(BACK, BACK_S)
        crew.dismiss()
    return Taken({**numbers, "written": written, "back_s": back}, points)


class Sampler:
    """Samples a process and the machine by two small files of /proc; the first snapshot is the base of all numbers.

    Attributes
    ----------
    points
        Lines of (seconds, anonymous, file, dirty, used, cached, committed): bytes above the first snapshot. The first
        two are the pages of the process; of the whole machine what is dirty, all that is not free, its page cache, and
        the private memory that programs have been promised.
    """

    EVERY_S = 0.02
    """Between two snapshots: at 15 us each, less than a thousandth of a CPU."""
    SMALL = 16 << 20
    """Bytes above the first snapshot that no allocator can be blamed for."""
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
        """Take a snapshot, if it is time."""
        if time.monotonic() - self._last >= self.EVERY_S:
            self._last = time.monotonic()
            self.take()

    def take(self) -> tuple[float, ...]:
        """Take a snapshot now."""
        point = tuple(float(value - base) for value, base in zip(self._now(), self._base, strict=True))
        self.points.append((round(time.monotonic() - self._start, 3), *point))
        return self.points[-1]

    def peaks(self) -> dict[str, float]:
        """Return the highest of each kind so far."""
        return {name: max((p[at] for p in self.points), default=0.0) for at, name in enumerate(self.PEAKS, 1)}

    def until_back(self, share: float, seconds: float) -> float | None:
        """Return the seconds until the process holds no more than a share of its peak, or is small; None: never."""
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
HEAP, OURS = "numpy", "onecopy"


def _described(record: Record) -> str:
    data = record.data
    return (
        f"images: {record.options['count']} of {' x '.join(map(str, data['shape']))} bytes, "
        f"{data['decoded'] / MB:.1f} MB decoded ({data['compressed'] / MB:.1f} MB compressed), and a canvas of as much;"
        f" {counted(record.rounds, 'round')}"
    )


HEIGHT = 2.3
ANONYMOUS, FILE, DIRTY, USED = "#D55E00", "#56B4E9", "#0072B2", "#555555"


def draw(figure: Any, record: Record) -> None:
    """Draw memory over time: a line of panels per case, the heap beside ours, on the same axes."""
    cases = [case for case in record.cases() if record.of(HEAP, case) or record.of(OURS, case)]
    figure.set_size_inches(WIDTH, HEIGHT * max(len(cases), 1) + 0.4)
    grid = figure.subplots(max(len(cases), 1), 2, squeeze=False, sharex="row", sharey="row")
    for case, panels in zip(cases, grid, strict=False):
        for axes, row in zip(panels, (HEAP, OURS), strict=True):
            axes.set_title(f"{row}: {', '.join(case)}", fontsize=8)
            axes.grid(color=FAINT, linewidth=0.6)
            if (found := middle(record, row, case)) is not None:
                curves(axes, found)
                axes.legend(fontsize=6.5, frameon=False)
            else:
                axes.text(0.5, 0.5, "does not finish", transform=axes.transAxes, ha="center", va="center")
        panels[0].set_xlim(left=0)
        panels[0].set_ylabel("MB", fontsize=8)


def middle(record: Record, row: str, case: Case) -> Sample | None:
    """Return the sample whose time is the median; None where there is none."""
    found = sorted((s for s in record.of(row, case) if s.points), key=lambda s: s.numbers["total_ns"])
    return found[len(found) // 2] if found else None


def curves(axes: Any, sample: Sample, *, machine: bool = True) -> None:
    """Draw the memory of a sample over time, and that of the whole machine."""
    end = sample.numbers["total_ns"] / 1e9
    points = [point for point in sample.points if point[0] <= end] or list(sample.points)
    seconds = [point[0] for point in points]
    anonymous, file, dirty, used = ([max(point[at], 0.0) / MB for point in points] for at in range(1, 5))
    words = ("anonymous memory", "pages of files, mapped")
    axes.stackplot(seconds, anonymous, file, colors=(ANONYMOUS, FILE), labels=words)
    if machine:
        axes.plot(seconds, dirty, color=DIRTY, linewidth=1.2, label="dirty, whole machine")
        axes.plot(seconds, used, color=USED, linewidth=1.2, linestyle="--", label="all that is not free, whole machine")
    axes.set_ylim(bottom=0)


def _peak_of_process(sample: Sample) -> float | None:
    """Return the most that a process held at once, of its own memory and of files."""
    return max(point[1] + point[2] for point in sample.points) if sample.points else None


SCENARIO = Scenario(
    NAME,
    """Measure decoding and stitching: several images held at once, and one canvas of all of them.

    On the heap, in numpy.memmap, by Pillow, pyvips and zarr, and by oc.images and oc.scratch; with and without bringing
    everything down to the disk, and with a limit of private memory. The page cache is counted.
    """,
    Options(),
    run,
    _described,
    table_by_case(COLUMNS),
    draw=draw,
    measures={"peak_of_process": _peak_of_process},
)
