"""The fifth story: an index that is mapped instead of loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onecopy.text import size
from onecopy_bench.engine.record import Log, Record, Sample
from onecopy_bench.engine.rounds import Progress
from onecopy_bench.engine.tables import Spread
from onecopy_bench.files.sampling import above
from onecopy_bench.scenarios import structs
from onecopy_bench.scenarios.structs import program, tables
from onecopy_bench.stories.story import Line, Metric, Scale, Source, Story, Telling, Watch

SIZE = 500_000_000
LOAD, MAP, OURS, WARMED, COPIED = "s.load", "s.mmap", "map", "warm", "copy"
MODES = (LOAD, MAP, "fread", "cereal", OURS, WARMED, COPIED)


def run(place: Path, scale: Scale, watch: Watch, log: Log) -> Record:
    """Measure it: a dictionary of k-mers that is made up, by the C++ program of this checkout."""
    binary = program.find()
    size, questions = (5_000_000, 10_000) if scale.quick else (SIZE, 1_000_000)
    options = structs.Options(
        modes=MODES, threads=(1,), processes=1, fresh=0, nested=0, timeout=300.0, **scale.settings(3)
    )
    watch(Progress(0, 1, "building the index"))
    files = program.build(binary, place, size=size, questions=questions)
    return structs.run(binary, files, options, watch, log)


def _spread(cache: str, value: Callable[[Sample], float | None]) -> Callable[[Record, str], Spread | None]:
    """Return what computes a number of one process with its cache in a state."""

    def of(record: Record, row: str) -> Spread | None:
        return Spread.of(tables.values(record, row, cache, 1, value).values())

    return of


STORY = Story(
    name="structs",
    title="An index mapped instead of loaded",
    problem="A C++ structure of many arrays is saved as one stream, and read into vectors by every process that asks it"
    " something. Arrays that only look at the bytes of the file need not be read at all to be opened.",
    sources=(
        Source(
            "jermp/essentials #11: Add pod_vector and mmap zero-copy support to generic_loader",
            "https://github.com/jermp/essentials/pull/11",
            "95 GB index: load 121.5 s -> map 4.3 s cold (+ 24.7 s map phase), 1.2 s warm; the whole job 2:28 -> 0:55"
            " cold, 0:25 warm",
            quoted=False,
            machine="2 x Intel Xeon E5-2680 v4 at 2.40 GHz, 14 cores a socket",
            size="95 GB, an SSHash graph of Metagraph",
        ),
    ),
    metrics=(
        Metric("warm", "open, file in memory", "ms", _spread("warm", tables.TIMES["open\nms"])),
        Metric("cold", "open, file on disk", "ms", _spread("cold", tables.TIMES["open\nms"])),
        Metric("job_cold", "the whole job, cold", "ms", _spread("cold", tables.TIMES["all\nanswers"])),
        Metric("job", "the whole job, warm", "ms", _spread("warm", tables.TIMES["all\nanswers"])),
        Metric("private", "private memory", "MB", _spread("warm", above("anonymous"))),
    ),
    lines=(
        Line(LOAD, "a packed stream, loaded",
             {"warm": "121.5 s", "cold": "121.5 s", "job_cold": "2:28", "job": "2:28"}),
        Line(MAP, "the same stream, mapped, as published",
             {"warm": "1.2 s", "cold": "4.3 s", "job_cold": "0:55", "job": "0:25"}),
        Line("fread", "fread into std::vector"),
        Line("cereal", "cereal::BinaryInputArchive"),
        Line(OURS, "onecopy::open<T>(path)", ours=True),
        Line(WARMED, "onecopy::open<T>(path, {.warm = true})", ours=True),
        Line(COPIED, "onecopy::open<T>(path, {.mode = copy})", ours=True),
    ),
    telling=(
        Telling(
            "warm", LOAD, MAP, OURS, "an index, mapped instead of loaded: to open it",
            "An index of {size} is loaded in {before}, mapped as published in {after}, opened by onecopy in {ours}.",
        ),
        Telling(
            "job_cold", LOAD, MAP, WARMED, "the same, cold, and all questions answered",
            "From a cold disk, all questions are answered after {before}, {after}, and {ours} with .warm = true.",
        ),
    ),
    carries=(
        "That opening does not depend on the size: a mapped file is opened in the time of its table of contents.",
        "Private memory: none when mapped, all of the index when it is loaded, in each process.",
    ),
    changes=(
        "The size: 0.5 GB here, 95 GB there, so that loading takes a second and not two minutes. It grows with the"
        " size; opening does not.",
        "The published figures are of the whole tool, with a disk that is not stated; nor is it stated whether it was"
        " loaded from there or from memory: 121.5 s and 2:28 stand in both columns. The stream here has the same"
        " layout, and is read by this project's own reader of it.",
    ),
    command="onecopy bench structs --threads 1 --processes 1 --fresh 0 --nested 0",
    scenario=structs.SCENARIO,
    run=run,
    size=lambda record: size(record.data["size"]),
    seconds=120.0,
)  # fmt: skip
