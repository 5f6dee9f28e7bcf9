"""From the record of stories to what is said of them: cells, sentences, and what limits them. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onecopy_bench.engine import machine
from onecopy_bench.engine.machine import quiet
from onecopy_bench.engine.record import Record
from onecopy_bench.engine.tables import Spread, number
from onecopy_bench.stories.record import Stories
from onecopy_bench.stories.story import Line, Metric, Story, Telling

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
    """What a story comes down to, as text: published, the same here, onecopy here; "" where there is nothing."""

    words: str
    published: str
    here: str
    ours: str


def amount(spread: Spread | None, unit: str) -> str:
    """Return a median with its unit; times below a second in ms.

    Examples
    --------
    >>> from onecopy_bench.engine.tables import Spread
    >>> amount(Spread(0.0012, 0, 1), "s"), amount(Spread(12.34, 12, 13), "MB"), amount(None, "s")
    ('1.2 ms', '12.3 MB', '-')
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
    return f"{number(value)} {words}"


def cell(metric: Metric, line: Line, samples: Record | None) -> Cell:
    """Return a cell of the table of a story."""
    spread = None if samples is None else metric.of(samples, line.row)
    extremes = ""
    if spread is not None and number(spread.low) != number(spread.high):
        extremes = f"{number(spread.low)}-{number(spread.high)}"
    return Cell(line.published.get(metric.name, ""), amount(spread, metric.unit), extremes)


def is_published(story: Story, metric: Metric) -> bool:
    """Return whether a source has a figure of a metric."""
    return any(metric.name in line.published for line in story.lines)


def measured(story: Story, samples: Record | None) -> list[Line]:
    """Return the lines that have a figure here or in the source."""
    here = set() if samples is None else {x.row for x in story.lines for m in story.metrics if m.of(samples, x.row)}
    return [line for line in story.lines if line.published or line.row in here]


def shown(story: Story, samples: Record | None) -> list[Metric]:
    """Return the metrics that have a figure here or in the source."""
    here = set() if samples is None else {m.name for m in story.metrics for x in story.lines if m.of(samples, x.row)}
    return [metric for metric in story.metrics if is_published(story, metric) or metric.name in here]


def told(story: Story, telling: Telling, samples: Record | None) -> Told:
    """Return what a telling says, in the words of a table."""
    metric = story.metric(telling.metric)
    before, after = (story.line(row).published.get(telling.metric, "") for row in (telling.before, telling.after))
    published = f"{before} {ARROW} {after}" if before and after else before or after
    if samples is None:
        return Told(telling.words, published, "", "")
    rows = (telling.before, telling.after, telling.ours)
    first, second, ours = (amount(metric.of(samples, row), metric.unit) for row in rows)
    here = "" if first == second == NOTHING else f"{first} {ARROW} {second}"
    return Told(telling.words, published, here, "" if ours == NOTHING else ours)


def ahead(story: Story, telling: Telling, samples: Record | None) -> tuple[bool, bool]:
    """Return whether the published way is the better one here, and whether onecopy is; both are within 5 %."""
    metric = story.metric(telling.metric)
    rows = (telling.before, telling.after, telling.ours)
    before, after, ours = (metric.of(samples, row) if samples is not None else None for row in rows)
    theirs = [spread.median for spread in (before, after) if spread is not None]
    if ours is None or not theirs:
        return bool(theirs), ours is not None
    return min(theirs) <= TIE * ours.median, ours.median <= TIE * min(theirs)


def headlines(story: Story, samples: Record) -> Iterator[str]:
    """Yield the sentences of a story; none for what was not measured."""
    for telling in story.telling:
        metric = story.metric(telling.metric)
        rows = {"before": telling.before, "after": telling.after, "ours": telling.ours}
        found = {words: metric.of(samples, row) for words, row in rows.items()}
        if all(found.values()):
            texts = {words: amount(spread, metric.unit) for words, spread in found.items()}
            yield telling.said.format(**texts, size=story.size(samples))


def limits(samples: Record) -> Iterator[str]:
    """Yield what went wrong, what was not there, and how far figures can be trusted."""
    for absent in samples.absent:
        yield f"{absent.name}: {absent.reason}."
    lost: dict[tuple[str, str, str], int] = {}
    for sample in samples.samples:
        if sample.state != "ok":
            key = sample.row, sample.state, sample.reason
            lost[key] = lost.get(key, 0) + 1
    for (row, state, reason), times in lost.items():
        yield f"{row}: {state}, {times} of its samples: {reason}."
    if doubt := quiet.doubt(samples.samples):
        yield doubt


def overview(record: Stories, stories: Sequence[Story]) -> list[Told]:
    """Return the lines of the overview: all that sums the stories up."""
    return [told(story, telling, record.of(story)) for story in stories for telling in story.telling]


def where(record: Stories) -> str:
    """Return machine and day in one sentence."""
    known = machine.known_of(record.heading.machine)
    return f"{', '.join(known)}. Measured {record.heading.created}."


def duration(seconds: float) -> str:
    """Return seconds in words.

    Examples
    --------
    >>> duration(75), duration(32.4), duration(1130)
    ('1 min 15 s', '32 s', '18 min 50 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
