"""Runs stories. A run file contains a record with a sample for each story, and the record of each scenario."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onecopy_bench.record import Log, Record, Sample, heading, read as read_records
from onecopy_bench.runs import Progress, Watch
from onecopy_bench.stories.story import Scale, Story
from onecopy_bench.worker import SampleError

NAME = "stories"


@dataclass(frozen=True, slots=True)
class Stories:
    """One run of stories. The heading contains the time, the machine, the scale, and the outcome of each story."""

    heading: Record
    records: Mapping[str, Record]

    @property
    def outcomes(self) -> dict[str, Sample]:
        """The last outcome of each story, by name."""
        return {sample.row: sample for sample in self.heading.samples}

    def of(self, story: Story) -> Record | None:
        """Return the record of a story, or None if it was not measured completely."""
        outcome = self.outcomes.get(story.name)
        return self.records[story.scenario.name] if outcome is not None and outcome.state == "ok" else None

    def missing(self, story: Story) -> str:
        """Return why a story was not measured."""
        outcome = self.outcomes.get(story.name)
        return "not measured in this run" if outcome is None else outcome.reason

    @property
    def measured(self) -> list[str]:
        """The names of the stories that were measured."""
        return [name for name, outcome in self.outcomes.items() if outcome.state == "ok"]

    @property
    def seconds(self) -> float:
        """The total duration of all stories in seconds, including the preparation of their data."""
        return sum(outcome.numbers["seconds"] for outcome in self.outcomes.values() if outcome.state == "ok")


def stories_of(found: Iterable[Record]) -> Stories:
    """Return the stories in these records. Raise ValueError if they are not records of stories."""
    by_name = {record.scenario: record for record in found}
    if NAME not in by_name:
        raise ValueError(f"expected a record of stories, found a record of {', '.join(by_name)}")
    return Stories(by_name.pop(NAME), by_name)


def read(path: str | os.PathLike[str]) -> Stories:
    """Read a run file. Raise a ValueError that names the file if it is not a run file."""
    try:
        return stories_of(read_records(path))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def run(
    stories: Sequence[Story],
    place: Path,
    scale: Scale,
    log: Log | None = None,
    *,
    watch: Watch = lambda _: None,
    ended: Callable[[Story, Sample], None] = lambda _, __: None,
) -> Stories:
    """Measure stories in order, each in a separate folder, and return their outcomes.

    Stories in the log are not measured again. `watch` is called before each sample, and `ended` after each story. Raise
    ValueError if the log belongs to another machine or scale.
    """
    log = log or Log()
    head = log.begin(heading(NAME, place, scale, ()))
    found = Stories(head, {record.scenario: record for record in log.records if record.scenario != NAME})
    for at, story in enumerate(stories, start=1):
        if found.of(story) is not None:
            continue

        def seen(now: Progress, title: str = f"{at} of {len(stories)}, {story.name}") -> None:
            watch(Progress(now.done, now.total, f"{title}: {now.next}"))

        outcome, record = _run_one(story, place, scale, log, seen)
        log.begin(head)
        log.add(outcome)
        more = {} if record is None else {record.scenario: record}
        samples = (*found.heading.samples, outcome)
        found = Stories(replace(found.heading, samples=samples), {**found.records, **more})
        ended(story, outcome)
    return found


def _run_one(
    story: Story, place: Path, scale: Scale, log: Log, watch: Callable[[Progress], None]
) -> tuple[Sample, Record | None]:
    """Run one story. If it cannot run, the returned outcome contains the reason."""
    start, record = time.monotonic(), None
    sample = Sample(story.name, (), 0)
    try:
        with tempfile.TemporaryDirectory(prefix=f"{story.name}-", dir=place) as folder:
            record = story.run(Path(folder), scale, watch, log)
    except (ModuleNotFoundError, OSError, RuntimeError, SampleError) as error:
        reason = error.reason if isinstance(error, SampleError) else str(error)
        return replace(sample, state="skipped", reason=reason.replace(f"{place}{os.sep}", "")), None
    return replace(sample, numbers={"seconds": round(time.monotonic() - start, 1)}), record
