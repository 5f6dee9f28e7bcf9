"""Running stories one after the other, each in a folder of its own, all samples in one file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.record import Log, Record, Sample, heading
from onecopy_bench.engine.rounds import Progress, Watch
from onecopy_bench.stories.reading import NAME, Stories
from onecopy_bench.stories.story import Scale, Story


def run(
    stories: Sequence[Story],
    place: Path,
    scale: Scale,
    log: Log | None = None,
    *,
    watch: Watch = lambda _: None,
    ended: Callable[[Story, Sample], None] = lambda _, __: None,
) -> Stories:
    """Measure stories in their order, each in a folder in a place, and return what became of them.

    What the log has is not measured again; it raises ValueError where it is of another machine or scale. `watch` is
    called before each sample, `ended` after each story.
    """
    log = log or Log()
    head = log.begin(heading(NAME, place, scale, ()))
    found = Stories(head, {record.scenario: record for record in log.records if record.scenario != NAME})
    for number, story in enumerate(stories, start=1):
        if found.of(story) is not None:
            continue

        def seen(now: Progress, title: str = f"{number} of {len(stories)}, {story.name}") -> None:
            watch(Progress(now.done, now.total, f"{title}: {now.next}"))

        outcome, record = _measured(story, place, scale, log, seen)
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
