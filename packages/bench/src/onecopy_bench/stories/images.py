"""The third story: decoded images in mapped files instead of the heap."""

from __future__ import annotations

import os
from pathlib import Path

from onecopy.text import size
from onecopy_bench.engine.record import Log, Record
from onecopy_bench.engine.tables import MB, Spread
from onecopy_bench.scenarios.images import scenario as images
from onecopy_bench.scenarios.images.scenario import HEAP, OURS
from onecopy_bench.stories.story import Line, Metric, Scale, Source, Story, Telling, Watch, number_in

WAYS = (HEAP, "Pillow", "pyvips", "numpy.memmap", OURS, "onecopy, capped")
CASE = images.case_of("compressed", sync=False, limit=None)


def run(place: Path, scale: Scale, watch: Watch, log: Log) -> Record:
    """Measure it: eight images decoded, held, and put onto one canvas; a real slide where the test data has one."""
    options = images.Options(
        count=2 if scale.quick else 8,
        columns=2 if scale.quick else 4,
        limit=0,
        ways=WAYS,
        inputs=("compressed",),
        syncs=(False,),
        **scale.settings(3),
    )
    return images.run(place, options, watch, log, slide())


def slide() -> str | None:
    """Return a slide of $ONECOPY_TEST_DATA, by its name the first; None: images are made up."""
    data = os.environ.get("ONECOPY_TEST_DATA")
    return next(map(str, sorted(Path(data, "slides").glob("*.ndpi"))), None) if data else None


def of_the_process(point: tuple[float, ...]) -> float:
    """Return what a process holds at a point of a sample, in bytes: its own memory, and pages of files."""
    return point[1] + point[2]


def _peak(run: Record, row: str) -> Spread | None:
    return Spread.of(max(map(of_the_process, s.points)) / MB for s in run.of(row, CASE) if s.points)


STORY = Story(
    name="images",
    title="Decoded images out of the heap",
    problem="A program decodes compressed microscope images, holds them and stitches them. On the heap they are memory"
    " that the kernel cannot take back; decoded into mapped files they are page cache, which it writes out and drops.",
    sources=(
        Source(
            "KDAB: Making the most of your memory with mmap",
            "https://www.kdab.com/making-the-most-of-your-memory-with-mmap",
            "QiTissue: heap about 500 -> 35 MB, peak RSS 6.2 -> 5.8 GB, faster recovery after peaks",
            quoted=False,
            size="microscope images that are up to gigabytes in size",
        ),
    ),
    metrics=(
        Metric("heap", "heap (anonymous memory), peak", "MB", number_in(CASE, "peak_anonymous", MB)),
        Metric("rss", "with pages of files, peak", "MB", _peak),
        Metric("back", "until small again", "s", number_in(CASE, "back_s", 1.0)),
        Metric("total", "decode and stitch", "s", number_in(CASE, "total_ns", 1e9)),
    ),
    lines=(
        Line(HEAP, "tifffile and numpy: the heap", {"heap": "about 500 MB", "rss": "6.2 GB", "back": "slower"}),
        Line("Pillow", "Image.open, numpy.zeros"),
        Line("pyvips", "each to a .v file, arrayjoin"),
        Line("numpy.memmap", "mapped files by hand, as published",
             {"heap": "35 MB", "rss": "5.8 GB", "back": "faster"}),
        Line(OURS, "oc.images.open, oc.scratch", ours=True),
        Line("onecopy, capped", "oc.images.open, onecopy_mosaic.mosaic with a cap of 128 MiB", ours=True),
    ),
    telling=(
        Telling(
            "heap", HEAP, "numpy.memmap", OURS, "decoded images: the heap at its peak",
            "{size} of decoded images and a canvas take {before} of the heap with numpy, {after} in files mapped by"
            " hand, and {ours} with oc.images.open and oc.scratch.",
        ),
    ),
    carries=(
        "Megabytes of the heap, and their place: what is decoded into files is page cache, and counts as such. Total"
        " RSS hardly changes, in the source as here: a report that does not tell the two apart shows nothing.",
        "By hand is as small. It has no full disk that is an error instead of a signal, no second process that finds"
        " the image decoded, and no cap.",
    ),
    changes=(
        "Seconds: they depend on the decoder, its threads, and on who writes to the disk meanwhile.",
        "Sizes: the source speaks of one session with a program of its own; here it is eight images of one size.",
    ),
    command="onecopy bench images --input compressed",
    scenario=images.SCENARIO,
    run=run,
    size=lambda run: size(run.data["decoded"]),
    seconds=120.0,
)  # fmt: skip
