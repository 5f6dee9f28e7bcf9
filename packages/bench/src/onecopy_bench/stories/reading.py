"""The file of a run of stories, and what is said of it: cells, sentences, and what limits them.

The file has a record of its own, with a sample for each story, and the record of each scenario.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.record import Log, Record, Sample, heading, read as read_records
from onecopy_bench.engine.rounds import Progress, Watch
from onecopy_bench.engine.tables import Spread, number
from onecopy_bench.stories.story import Line, Metric, Scale, Story, Telling

NAME = "stories"
WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
"""What a record whose samples are not those of a scenario may raise when it is shown."""


@dataclass(frozen=True, slots=True)
class Stories:
    """One run: the heading has when, where, at which scale, and what became of each story."""

    heading: Record
    records: Mapping[str, Record]

    @property
    def outcomes(self) -> dict[str, Sample]:
        """What became of the stories last, by their names."""
        return {sample.row: sample for sample in self.heading.samples}

    def of(self, story: Story) -> Record | None:
        """Return the record of a story; None where it was not measured, or not to the end."""
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
        """What all stories took together, the preparing of their data included."""
        return sum(outcome.numbers["seconds"] for outcome in self.outcomes.values() if outcome.state == "ok")


def stories_of(found: Iterable[Record]) -> Stories:
    """Return the stories that some records hold; raises ValueError where these are of something else."""
    by_name = {record.scenario: record for record in found}
    if NAME not in by_name:
        raise ValueError(f"it holds no stories, but {', '.join(by_name)}")
    return Stories(by_name.pop(NAME), by_name)


def read(path: str | os.PathLike[str], known: Iterable[Story]) -> Stories:
    """Read the file of a run, and make sure that whatever a page shows of it can be computed.

    Raises
    ------
    ValueError
        It is no such file, or one that was changed; the message says which story, and what is wrong.
    """
    found = stories_of(read_records(path))
    for story in known:
        try:
            if (record := found.of(story)) is not None:
                _check(story, record)
        except WRONG as error:
            words = f"it lacks {error}" if isinstance(error, KeyError) else str(error)[:300] or type(error).__name__
            raise ValueError(f"{path}: the story {story.name!r}: {words}") from None
    return found


def _check(story: Story, record: Record) -> None:
    story.scenario.heading(record)
    story.size(record)
    for metric in story.metrics:
        for line in story.lines:
            spread = story.spread(metric, record, line.row)
            if spread is not None and not all(map(math.isfinite, (spread.median, spread.low, spread.high))):
                raise ValueError(f"{line.row}, {metric.name}: {spread.median}")


ARROW = "→"
NOTHING = "-"
TIE = 1.05
QUICK = "A quick run: small data and one round, to see that it works. Its figures mean nothing."


class Cell(NamedTuple):
    """A metric of a line: what was published, what was measured here, and its extremes where there are several."""

    published: str
    here: str
    extremes: str


class Told(NamedTuple):
    """What a story comes down to, as text: published, the same here, onecopy here; "" where there is nothing.

    `said` is that in a sentence, where all was measured. `ahead` is whether the published way is the better one here,
    and whether onecopy is: both, within 5 %.
    """

    words: str
    published: str
    here: str = ""
    ours: str = ""
    said: str = ""
    ahead: tuple[bool, bool] = (False, False)


def amount(spread: Spread | None, unit: str) -> str:
    """Return a median with its unit; times below a second in ms.

    Examples
    --------
    >>> from onecopy_bench.engine.tables import Spread
    >>> amount(Spread(0.0012, 0, 1), "s"), amount(Spread(12.34, 12, 13), "MB"), amount(None, "s")
    ('1.2 ms', '12.3 MB', '-')
    >>> amount(Spread(1.001, 1, 1.01), "copies")
    '1 copy'
    """
    if spread is None:
        return NOTHING
    value, words = spread.median, unit
    if unit == "s" and value < 0.1:
        value, words = value * 1e3, "ms"
    elif unit == "ms" and value >= 10_000:
        value, words = value / 1e3, "s"
    elif unit == "GiB" and value < 0.1:
        value, words = value * 1024, "MiB"
    elif unit == "copies" and number(value) == "1":
        words = "copy"
    return f"{number(value)} {words}"


def cell(story: Story, metric: Metric, line: Line, samples: Record | None) -> Cell:
    """Return a cell of the table of a story."""
    spread = None if samples is None else story.spread(metric, samples, line.row)
    extremes = ""
    if spread is not None and number(spread.low) != number(spread.high):
        extremes = f"{number(spread.low)}-{number(spread.high)}"
    return Cell(line.published.get(metric.name, ""), amount(spread, metric.unit), extremes)


def is_published(story: Story, metric: Metric) -> bool:
    """Return whether a source has a figure of a metric."""
    return any(metric.name in line.published for line in story.lines)


def measured(story: Story, samples: Record | None) -> list[Line]:
    """Return the lines that have a figure here or in the source."""
    return [line for line in story.lines if line.published or _is_here(story, samples, story.metrics, (line,))]


def shown(story: Story, samples: Record | None) -> list[Metric]:
    """Return the metrics that have a figure here or in the source."""
    return [m for m in story.metrics if is_published(story, m) or _is_here(story, samples, (m,), story.lines)]


def _is_here(story: Story, samples: Record | None, metrics: Sequence[Metric], lines: Sequence[Line]) -> bool:
    return samples is not None and any(story.spread(m, samples, x.row) for m in metrics for x in lines)


def told(story: Story, telling: Telling, samples: Record | None) -> Told:
    """Return what a telling says, in the words of a table."""
    metric, rows = story.metric(telling.metric), (telling.before, telling.after, telling.ours)
    both = (story.line(row).published.get(telling.metric, "") for row in rows[:2])
    published = f" {ARROW} ".join(filter(None, both))
    if samples is None:
        return Told(telling.words, published)
    before, after, ours = spreads = [story.spread(metric, samples, row) for row in rows]
    first, second, last = (amount(spread, metric.unit) for spread in spreads)
    here = f"{first} {ARROW} {second}" if before or after else ""
    size = story.size(samples)
    said = telling.said.format(before=first, after=second, ours=last, size=size) if all(spreads) else ""
    theirs = min((spread.median for spread in (before, after) if spread), default=math.inf)
    mine = ours.median if ours else math.inf
    ahead = bool(before or after) and theirs <= TIE * mine, ours is not None and mine <= TIE * theirs
    return Told(telling.words, published, here, last if ours else "", said, ahead)


def headlines(story: Story, samples: Record) -> list[str]:
    """Return the sentences of a story; none for what was not measured."""
    return [found.said for telling in story.telling if (found := told(story, telling, samples)).said]


def overview(record: Stories, stories: Sequence[Story]) -> list[Told]:
    """Return the lines of the overview: all that sums the stories up."""
    return [told(story, telling, record.of(story)) for story in stories for telling in story.telling]


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
