"""Running stories one after the other, each in a folder of its own, all samples in one file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.record import Log, Record, Sample, heading
from onecopy_bench.engine.rounds import Progress
from onecopy_bench.stories.record import NAME, Stories
from onecopy_bench.stories.story import Scale, Story

QUICK_S = 10.0
"""That a story takes at most when it is quick, roughly."""


@dataclass(frozen=True, slots=True)
class Step:
    """How far a run is: which story of how many, how far that is, and the seconds left of all, roughly."""

    number: int
    of: int
    story: Story
    progress: Progress
    seconds_left: float


def run(
    stories: Sequence[Story],
    place: Path,
    scale: Scale,
    log: Log | None = None,
    *,
    watch: Callable[[Step], None] = lambda _: None,
    ended: Callable[[Story, Sample], None] = lambda _, __: None,
) -> Stories:
    """Measure stories in their order and return what became of them.

    Parameters
    ----------
    place
        A folder on the disk that is to be measured; each story has a folder in it as long as it runs.
    log
        Where samples are kept as they come; what it has is not measured again.
    watch
        Called before each sample.
    ended
        Called after each story with what became of it.

    Raises
    ------
    ValueError
        The log is of another machine or scale; the message names the first fact that differs.
    OSError
        The log cannot be written.
    """
    log = log or Log()
    head = log.begin(heading(NAME, place, scale, ()))
    found = Stories(head, {record.scenario: record for record in log.records if record.scenario != NAME})
    expected = {story.name: QUICK_S if scale.quick else story.seconds for story in stories}
    taken: list[float] = []
    for number, story in enumerate(stories, start=1):
        expects = expected.pop(story.name)
        if found.of(story) is not None:
            continue

        def seen(now: Progress, number: int = number, story: Story = story, expects: float = expects) -> None:
            done = now.done / now.total if now.total else 0.0
            pace = max(sum(taken) / len(taken), 0.05) if taken else 1.0
            left = pace * (sum(expected.values()) + (1 - done) * expects)
            watch(Step(number, len(stories), story, now, left))

        outcome, record = _measured(story, place, scale, log, seen)
        taken.append(outcome.numbers.get("seconds", expects) / expects)
        log.begin(head)
        log.add(outcome)
        more = {} if record is None else {record.scenario: record}
        samples = (*found.heading.samples, outcome)
        found = Stories(replace(found.heading, samples=samples), {**found.records, **more})
        ended(story, outcome)
    return found


def _measured(
    story: Story, place: Path, scale: Scale, log: Log, watch: Callable[[Progress], None]
) -> tuple[Sample, Record | None]:
    """Run one story; what cannot be run is an outcome with the reason."""
    start, record = time.monotonic(), None
    sample = Sample(story.name, (), 0)
    try:
        with tempfile.TemporaryDirectory(prefix=f"{story.name}-", dir=place) as folder:
            record = story.run(Path(folder), scale, watch, log)
    except (ModuleNotFoundError, OSError, RuntimeError, SampleError) as error:
        reason = error.reason if isinstance(error, SampleError) else str(error)
        return replace(sample, state="skipped", reason=reason.replace(f"{place}{os.sep}", "")), None
    return replace(sample, numbers={"seconds": round(time.monotonic() - start, 1)}), record
