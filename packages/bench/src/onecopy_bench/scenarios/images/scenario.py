"""`onecopy bench images`: decode several images, hold them all, stitch them; on the heap, and in mapped files.

Every sample is a fresh process. Its memory is sampled some dozen times a second by the cheapest reads, together with
what is dirty and what is not free on the whole machine, so that the page cache counts; then the canvas is compared,
given up, and the seconds are taken until the process is small again. In the case with a limit the kernel refuses
private memory beyond it (RLIMIT_DATA).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.memory import difference, disk_bytes
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.pictures import FAINT, WIDTH
from onecopy_bench.engine.record import Case, Log, Record, Sample, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, counted, number, plain, table_by_case
from onecopy_bench.engine.ways import installed, require
from onecopy_bench.scenarios.images import inputs, worker
from onecopy_bench.scenarios.images.sampler import Sampler
from onecopy_bench.scenarios.images.ways import NAMES, WAYS, Way, Work

NAME = "images"
NEEDS = ("tifffile", "imagecodecs")
INPUTS = ("compressed", "plain")
BACK, BACK_S = 0.1, 20.0
"""A process is small again with this share of its peak; it is waited for so many seconds."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run; with a `limit` of 0 there is no such case, `syncs` are without and with flushing."""

    count: int = cli.field(8, "Of the images.")
    columns: int = cli.field(4, "Images side by side.")
    cap: int = cli.size("128MiB", "Of the canvas in memory, for 'onecopy, capped'.")
    limit: int = cli.size("256MiB", "Of private memory, in the case that has one.")
    ways: tuple[str, ...] = cli.field(NAMES, "What is compared.", "--way", choices=NAMES)
    inputs: tuple[str, ...] = cli.field(INPUTS, "Of which files.", "--input", choices=INPUTS)
    syncs: tuple[bool, ...] = (False, True)


def run(
    place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None, file: str | None = None
) -> Record:
    """Measure every way in every case; `file` is an image of bytes that tifffile can read, instead of one made up.

    Raises
    ------
    ModuleNotFoundError
        What is needed to make the images is not installed.
    """
    require(NEEDS, NAME, "'onecopy[images]'")
    watch(Progress(0, 1, "writing the images"))
    shape = written(place, options, file)
    chosen, absent = installed(WAYS, options.ways)
    paths = {kind: tuple(map(str, sorted((place / kind).iterdir()))) for kind in INPUTS}
    works = {kind: Work(paths[kind], "", options.columns, shape, options.cap) for kind in options.inputs}
    nbytes = shape[0] * shape[1] * (shape[2] if len(shape) > 2 else 1) * options.count
    compressed = sum(Path(path).stat().st_size for path in paths["compressed"])
    data = {"shape": list(shape), "decoded": nbytes, "compressed": compressed}
    head = heading(NAME, place, options, chosen, data=data, absent=absent)
    wanted = Expected(works, options)
    cases = [(kind, sync, None) for kind in options.inputs for sync in options.syncs]
    limits = [(kind, False, options.limit) for kind in options.inputs[:1] if options.limit]
    turns = [
        Turn(way.name, case_of(*case), way.private * nbytes, sample(way, works[case[0]], case, wanted, options))
        for case in [*cases, *limits]
        for way in chosen
    ]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def case_of(kind: str, sync: bool, limit: int | None) -> Case:
    """Return the name of a case."""
    words = {"compressed": "compressed files", "plain": "files that are not compressed"}[kind]
    if limit is not None:
        return words, f"at most {limit >> 20} MiB of private memory"
    return words, "brought down to the disk" if sync else "left to the kernel"


def written(place: Path, options: Options, file: str | None) -> tuple[int, ...]:
    """Write all images in a child; return the shape of one."""
    arguments = [str(os.getpid()), str(place), str(options.count), *([os.path.realpath(file)] if file else [])]
    command = [sys.executable, "-P", "-m", inputs.__name__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or ["killed"])[-1])
    facts = json.loads(done.stdout)
    if facts["dtype"] != "|u1":
        raise OSError(f"{file}: its pixels are {facts['dtype']}, and bytes are expected")
    return tuple(facts["shape"])


class Expected:
    """What a canvas must be: what tifffile and numpy make of the same files, computed once."""

    def __init__(self, works: dict[str, Work], options: Options) -> None:
        self._works, self._options = works, options
        self._known: dict[str, int] = {}

    def of(self, kind: str) -> int:
        """Return the checksum for a kind of input."""
        if kind not in self._known:
            errand = worker.Errand("numpy", self._works[kind])
            with crew_of(worker.__name__, errand, 1, self._options.timeout) as crew:
                crew.step("started")
                self._known[kind] = crew.step("checked")[0]["checksum"]
        return self._known[kind]


def sample(
    way: Way, work: Work, case: tuple[str, bool, int | None], wanted: Expected, options: Options
) -> Callable[[Attempt], Taken]:
    """Return what takes one sample."""
    kind, sync, limit = case

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        folder, expected = attempt.folder(), wanted.of(kind)
        errand = worker.Errand(way.name, replace(work, folder=str(folder)), sync, limit)
        before = disk_bytes(folder, written=True)
        with crew_of(worker.__name__, errand, 1, options.timeout, way.environment) as crew:
            sampler = Sampler(crew.pids[0])
            (message,) = crew.step("started", sampler.poll)
            sampler.look()
            numbers = {name: float(value) for name, value in message.items() if name != "phase"} | sampler.peaks()
            written = difference(disk_bytes(folder, written=True), before)
            points = tuple(sampler.points)
            (checked,) = crew.step("checked")
            if checked["checksum"] != expected:
                raise SampleError("wrong data", "the canvas is not what numpy makes of the same files")
            crew.step("dropped")
            back = sampler.until_back(BACK, BACK_S)
            crew.dismiss()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return Taken({**numbers, "written": written, "back_s": back}, points)

    return take


COLUMNS: tuple[Column, ...] = (
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


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    data = record.data
    return (
        f"images: {record.options['count']} of {' x '.join(map(str, data['shape']))} bytes, "
        f"{data['decoded'] / MB:.1f} MB decoded ({data['compressed'] / MB:.1f} MB compressed), and a canvas of as much;"
        f" {counted(rounds_of(record), 'round')}"
    )


def findings(record: Record) -> Iterator[str]:
    """Yield, for each case, what becomes of the heap, and at what price."""
    for case in record.cases():
        heap, ours = (record.spread(row, case, "peak_anonymous") for row in (HEAP, OURS))
        slow, fast = (record.spread(row, case, "total_ns") for row in (HEAP, OURS))
        if heap and ours and slow and fast:
            yield (
                f"{', '.join(case)}: anonymous memory {number(heap.median / MB)} MB -> {number(ours.median / MB)} MB, "
                f"in {number(fast.median / slow.median)} of the time."
            )
            continue
        failed = {s.row for s in record.samples if s.case == case and s.state != "ok"}
        if failed and record.of(OURS, case):
            yield f"{', '.join(case)}: {OURS} finishes; these do not: {', '.join(sorted(failed))}."


HEIGHT = 2.3
ANONYMOUS, FILE, DIRTY, USED = "#D55E00", "#56B4E9", "#0072B2", "#555555"


def draw(figure: Any, record: Record) -> None:
    """Draw memory over time: a line of panels per case, the heap beside ours, on the same axes."""
    cases = [case for case in record.cases() if record.of(HEAP, case) or record.of(OURS, case)]
    figure.set_size_inches(WIDTH, HEIGHT * max(len(cases), 1) + 0.4)
    grid = figure.subplots(max(len(cases), 1), 2, squeeze=False, sharex="row", sharey="row")
    for case, panels in zip(cases, grid, strict=False):
        ends = [1e-3]
        for axes, row in zip(panels, (HEAP, OURS), strict=True):
            axes.set_title(f"{row}: {', '.join(case)}", fontsize=8)
            axes.grid(color=FAINT, linewidth=0.6)
            axes.set_axisbelow(True)
            if (found := middle(record, row, case)) is not None:
                ends.append(curves(axes, found))
            else:
                axes.text(0.5, 0.5, "does not finish", transform=axes.transAxes, ha="center", va="center")
        panels[0].set_xlim(0, max(ends))
        panels[0].set_ylabel("MB", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("seconds", fontsize=8)
    legends = [panel.get_legend_handles_labels() for panel in reversed(grid[0])]
    handles, labels = next((legend for legend in legends if legend[0]), ([], []))
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def middle(record: Record, row: str, case: Case) -> Sample | None:
    """Return the sample whose time is the median; None where there is none."""
    found = sorted((s for s in record.of(row, case) if s.points), key=lambda s: s.numbers["total_ns"])
    return found[len(found) // 2] if found else None


def curves(axes: Any, sample: Sample, *, machine: bool = True) -> float:
    """Draw the memory of a sample over time, and that of the whole machine; return when it ended, in seconds."""
    end = sample.numbers["total_ns"] / 1e9
    points = [point for point in sample.points if point[0] <= end] or list(sample.points)
    seconds = [point[0] for point in points]
    anonymous, file, dirty, used = ([max(point[at], 0.0) / MB for point in points] for at in range(1, 5))
    words = ("anonymous memory", "pages of files, mapped")
    axes.stackplot(seconds, anonymous, file, colors=(ANONYMOUS, FILE), labels=words)
    if machine:
        axes.plot(seconds, dirty, color=DIRTY, linewidth=1.2, label="dirty, whole machine")
        dashed = {"linewidth": 1.2, "linestyle": "--", "label": "all that is not free, whole machine"}
        axes.plot(seconds, used, color=USED, **dashed)
    axes.set_ylim(bottom=0)
    return max(seconds)


SCENARIO = Scenario(NAME, described, table_by_case(COLUMNS), findings, draw)


@click.command(NAME)
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="An image of yours, instead of one made up.")
@cli.common(SCENARIO, Options())
def command(*, file: str | None, options: Options, measure: Measure) -> None:
    """Measure decoding and stitching: several images held at once, and one canvas of all of them.

    On the heap, in numpy.memmap, by Pillow, pyvips and zarr, and by oc.images and oc.scratch; with and without bringing
    everything down to the disk, and with a limit of private memory. The page cache is counted.
    """
    measure(lambda place, watch, log: run(place, options, watch, log, file))
