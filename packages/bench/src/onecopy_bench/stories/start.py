"""The second story: weights that are read ahead while a program starts."""

from __future__ import annotations

from pathlib import Path

from onecopy.text import size
from onecopy_bench.engine.record import Log, Record
from onecopy_bench.scenarios.start import scenario as start
from onecopy_bench.scenarios.start.scenario import EARLY, NONE
from onecopy_bench.scenarios.start.ways import WILLNEED
from onecopy_bench.stories.story import Line, Metric, Scale, Source, Story, Telling, Watch, number_in

SIZE, WORK_S = 2 << 30, 3.0
NARROW = 128 << 10
WAYS = (NONE, WILLNEED, "fromfile", "cat early", EARLY)


def run(place: Path, scale: Scale, watch: Watch, log: Log) -> Record:
    """Measure it: on the disk as it is, and on one that reads 128 KiB ahead, as most do, where that can be made."""
    options = start.Options(
        size=32 << 20 if scale.quick else SIZE,
        work_s=0.05 if scale.quick else WORK_S,
        ways=WAYS,
        read_aheads=(None,) if scale.quick else (None, NARROW),
        **scale.settings(3),
    )
    return start.run(place, options, watch, log)


DISK, NARROW_DISK = ("disk",), ("128K",)

STORY = Story(
    name="start",
    title="Weights read ahead while a program starts",
    problem="Weights are copied out of a mapping to a device. Where they were never read, each page is a fault that"
    " waits for the disk; where they are asked for while the program still does other things, they are there.",
    sources=(
        Source(
            "pytorch/executorch #18236: Prefetch mmap'd weight blobs to eliminate page fault bottleneck",
            "https://github.com/pytorch/executorch/pull/18236",
            "Metal init time: ~25s -> ~9s (2.7x faster) on int4 Voxtral model",
            machine="macOS, Metal, pages of 16 KiB; the model of machine is not stated",
            size="int4 Voxtral",
        ),
    ),
    metrics=(
        Metric("total", "start, all copied", "s", number_in(DISK, "total_ns", 1e9)),
        Metric("rate", "rate of the copy", "GB/s", number_in(DISK, "gb_per_s", 1.0)),
        Metric("narrow", "start, 128 KiB read-ahead", "s", number_in(NARROW_DISK, "total_ns", 1e9)),
        Metric("narrow_rate", "rate, 128 KiB read-ahead", "GB/s", number_in(NARROW_DISK, "gb_per_s", 1.0)),
    ),
    lines=(
        Line(NONE, "mapped; copying reads it", {"total": "~25 s", "rate": "0.3-0.4 GB/s"}),
        Line(WILLNEED, "madvise(MADV_WILLNEED) of all first, as published", {"total": "~9 s", "rate": "5-8 GB/s"}),
        Line("fromfile", "numpy.fromfile when it is needed"),
        Line("cat early", "cat FILE > /dev/null beside the work"),
        Line(EARLY, "oc.warm(wait=False) first, wait() at the end", ours=True),
    ),
    telling=(
        Telling(
            "total", NONE, WILLNEED, EARLY, "prefetch of mapped weights: a start",
            "A start with {size} of cold weights takes {before} when copying reads them, {after} with the published"
            " call, and {ours} with oc.warm beside the work.",
        ),
        Telling(
            "narrow", NONE, WILLNEED, EARLY, "the same, from a disk that reads 128 KiB ahead",
            "From a disk that reads 128 KiB ahead, as most do: {before}, {after}, {ours}.",
        ),
    ),
    carries=(
        "The order: reading that begins with the program costs nothing as long as other work lasts as long as it.",
        "What one MADV_WILLNEED over a large range does: Linux reads no more than a few MiB of it, and the source is of"
        " macOS. This is why the published call helps little here, and why oc.warm reads piece by piece.",
    ),
    changes=(
        "Seconds, and every ratio: they are those of this disk, and of the work beside it, which is made up.",
        "Copying goes to memory here, not to a GPU.",
    ),
    command="onecopy bench start --size 2GiB --work-s 3",
    scenario=start.SCENARIO,
    run=run,
    size=lambda run: size(run.data["bytes"]),
    seconds=200.0,
)  # fmt: skip
