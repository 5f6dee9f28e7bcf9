"""Records made by hand, read back; and of all stories, with numbers that are made up."""

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from onecopy_bench.engine.record import Absent, Record, Row, Sample, as_json, lines, parse
from onecopy_bench.stories.reading import Stories
from onecopy_bench.stories.story import STORIES, Story

WHEN = "2026-01-01T00:00:00+00:00"


def made(
    scenario: str,
    samples: Iterable[Sample],
    rows: Iterable[Row] = (),
    *,
    options: Any = None,
    data: dict[str, Any] | None = None,
    absent: Iterable[Absent] = (),
    machine: dict[str, Any] | None = None,
) -> Record:
    """Make a record."""
    chosen = as_json(dataclasses.asdict(options)) if dataclasses.is_dataclass(options) else options
    return Record(
        scenario, WHEN, "1234567", machine or {}, chosen or {"rounds": 7}, data or {}, tuple(rows), tuple(absent),
        tuple(samples),
    )  # fmt: skip


def taken(row: str, case: tuple[str, ...], number: int = 0, **numbers: float) -> Sample:
    """Make a good sample, taken on an idle machine."""
    return Sample(row, case, number, started=WHEN, idle_share=1.0, numbers=numbers)


def text_of(record: Record) -> str:
    """Return the text of a record's file."""
    return "".join(lines(record))


def read_back(record: Record) -> Record:
    """Write a record and read it."""
    (found,) = parse(text_of(record))
    return found


MB, S = 1_000_000, 1_000_000_000
CASES = {
    "models": (("convolutions", "1 process"), ("convolutions", "4 processes")),
    "run": (("torch, checkpoint",),),
    "start": (("disk",), ("128K",), ("fuse",)),
    "images": (("compressed files", "left to the kernel"),),
    "share": (("fork", "1"), ("fork", "2")),
    "structs": (("cold", "1"), ("warm", "1")),
    "nodes": (("4 nodes", "1 Gbit/s"),),
}
NUMBERS = ("create_ns", "total_ns", "ready_ns", "second_ready_ns")
DATA = {
    "models": {"convolutions": 94 * MB},
    "run": {"torch, checkpoint": 400 * MB},
    "start": {"bytes": 2 * S, "places": {"disk": 8 << 20, "128K": 128 << 10, "fuse": 128 << 10}},
    "images": {"shape": [4, 3], "decoded": 400 * MB, "compressed": 9 * MB},
    "share": {"kind": "coco", "rows": 1000, "pickled": 5 * MB},
    "structs": {"size": 500 * MB, "kmers": None, "questions": 1000, "checksum": 7, "memory_bytes": None},
    "nodes": {"bytes": 300 * MB, "file": 300 * MB},
}
OPTIONS = {"rounds": 3, "threads": 1, "work_s": 3, "work": "cpu", "count": 8, "loader": "loop", "limit_s": 30}
OPTIONS |= {"processes": 8, "evict": [], "ready": None, "programs": ["torch, checkpoint"]}


def samples_of_story(row: str, case: tuple[str, ...], at: int, number: int) -> Sample:
    """Make the n-th line take n seconds and n GB, more with each round."""
    if case[0] in {"cold", "warm"}:
        memory = {"pss": at * MB, "anonymous": at * MB, "empty_pss": 0, "empty_anonymous": 0}
        process = {"open_ns": at * MB, "resident_ns": at * S, "checksum": 7, "notes": {"few_ns": at * MB}, **memory}
        return replace(taken(row, case, number), processes=(process,))
    numbers = dict.fromkeys(NUMBERS, at * S * (1 + number / 10))
    numbers |= dict.fromkeys(("uss", "pss", "worker_uss", "peak_anonymous", "worker_private"), at * S)
    numbers |= dict.fromkeys(("held_share", "origin_share"), at)
    points = tuple((t / 10, at * S * t / 10, S, 0.0, 0.0, 0.0, 0.0) for t in range(10))
    sample = taken(row, case, number, back_s=0.5, gb_per_s=1.0 * at, **numbers)
    return replace(sample, points=points, processes=({"ready_ns": at * S},))


def record_of_story(story: Story) -> Record:
    """Make the record of a story."""
    samples = [
        samples_of_story(line.row, case, at, number)
        for number in range(3)
        for at, line in enumerate(story.lines, start=1)
        for case in CASES[story.name]
    ]
    rows = [Row(line.row, line.words, line.ours) for line in story.lines]
    return replace(made(story.name, samples, rows, options=OPTIONS, data=DATA[story.name]), seconds=60.0)


def made_up(*, without: str = "", reason: str = "no reason") -> Stories:
    """Return the record, but for a story that could not be measured."""
    records = {story.name: record_of_story(story) for story in STORIES if story.name != without}
    outcomes = [
        Sample(story.name, (), 0, "skipped", reason) if story.name == without else taken(story.name, (), seconds=61.0)
        for story in STORIES
    ]
    facts = {"cpu": "a CPU", "cores_usable": 2, "memory_bytes": 8 << 30, "kernel": "Linux 6"}
    options = {"quick": False, "rounds": None, "seed": 0, "idle_wait": 20.0}
    return Stories(made("stories", outcomes, options=options, machine=facts), records)


def text_of_stories(stories: Stories) -> str:
    """Return the text of the file of a run."""
    return "".join(line for record in (stories.heading, *stories.records.values()) for line in lines(record))
