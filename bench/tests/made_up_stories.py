"""A record of all stories whose numbers are made up, every line measured in every round."""

from onecopy_bench.record import Absent, Case, Entry, File, Memory, Options, Reading, Record, Sample
from onecopy_bench.records.record import Entry as RunEntry
from onecopy_bench.records.record import Measured, Run
from onecopy_bench.stories import images, models, structs
from onecopy_bench.stories.every import STORIES
from onecopy_bench.stories.record import Kept, Stories
from onecopy_bench.stories.story import Story

MB, S = 1_000_000, 1_000_000_000
WHEN = "2026-01-01T00:00:00+00:00"
CASES = {
    "models": ((models.MODEL, "1 process"), (models.MODEL, "4 processes")),
    "start": (("disk",), ("128K",)),
    "images": (images.CASE,),
    "share": (("fork", "1"), ("fork", "2")),
}
NUMBERS = ("create_ns", "total_ns", "ready_ns", "second_ready_ns")
DATA = {
    "models": {models.MODEL: 94 * MB},
    "start": {"bytes": 2 * S, "places": {"disk": 8 << 20, "128K": 128 << 10}},
    "images": {"shape": [4, 3], "decoded": 400 * MB, "compressed": 9 * MB},
    "share": {"kind": "coco", "rows": 1000, "pickled": 5 * MB},
}
OPTIONS = {"rounds": 3, "threads": 1, "work_s": 3, "work": "cpu", "count": 8, "loader": "loop"}


def run_of(story: Story) -> Run:
    """Make the n-th line take n seconds and n GB, more with each round."""
    samples = []
    for number in range(3):
        for at, line in enumerate(story.lines, start=1):
            numbers = dict.fromkeys(NUMBERS, at * S * (1 + number / 10))
            numbers |= dict.fromkeys(("uss", "pss", "worker_uss", "peak_anonymous"), at * S)
            numbers |= {"back_s": 0.5, "gb_per_s": 1.0 * at}
            points = tuple((t / 10, at * S * t / 10, S, 0.0, 0.0, 0.0, 0.0) for t in range(10))
            samples += [
                Measured(line.row, case, number, "ok", "", WHEN, 1.0, numbers, points) for case in CASES[story.name]
            ]
    entries = tuple(RunEntry(line.row, line.words, line.ours) for line in story.lines)
    return Run(story.name, WHEN, {}, DATA[story.name], OPTIONS, entries, tuple(samples))


def record_of() -> Record:
    """Make the same of the C++ program."""
    empty, samples = Memory(0, 0, 0, 0, 0), []
    for number in range(3):
        for at, line in enumerate(structs.STORY.lines, start=1):
            for case in (Case(1, "cold"), Case(1, "warm")):
                held = Memory(at * MB, at * MB, at * MB, 0, 0)
                reading = Reading(at * MB, None, at * S, 7, 0, 0, 0.0, 0, empty, held, {"few_ns": at * MB})
                samples.append(Sample(line.row, number, 1, "ok", "", case.cache, WHEN, 1.0, 0, 0, 0, 0, (reading,)))
    entries = tuple(Entry(line.row, line.words, "row", True) for line in structs.STORY.lines)
    file = File("index.oc", "struct", 500 * MB, 500 * MB, 1, 7)
    options = Options(processes=(1,), caches=("cold", "warm"), iterations=3, ceilings="none")
    return Record("structs", WHEN, {}, options, file, entries, tuple(samples))


def made_up(*, without: str = "", reason: str = "no reason") -> Stories:
    """Return the record, but for a story that could not be measured."""
    found = {story.name: record_of() if story is structs.STORY else run_of(story) for story in STORIES}
    kept = [Kept(name, 61.0, samples) for name, samples in found.items() if name != without]
    absent = (Absent(without, reason),) if without else ()
    facts = {"cpu": "a processor", "cores_usable": 2, "memory_bytes": 8 << 30, "kernel": "Linux 6"}
    options = {"quick": False, "rounds": None, "seed": 0}
    return Stories(WHEN, facts, options, tuple(kept), absent)
