"""What a story is: a published measurement, how that is measured here, and what of it means anything elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onecopy_bench.engine.pages import Scenario
from onecopy_bench.engine.record import Case, Log, Record
from onecopy_bench.engine.rounds import Progress
from onecopy_bench.engine.tables import Spread, plain

UNKNOWN = "not stated"
"""What stands where a source does not say something."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where figures were published.

    Attributes
    ----------
    title, url
        Of the page.
    words, quoted
        As they stand there; not quoted: its figures, in other words.
    machine, size
        What it was measured on, and how much data; `UNKNOWN` where it is not stated.
    """

    title: str
    url: str
    words: str
    quoted: bool = True
    machine: str = UNKNOWN
    size: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a story.

    Attributes
    ----------
    name
        Its key.
    words, unit
        The heading of its column, and the unit of `of`.
    of
        Given the samples and the name of a row, returns median and extremes; None where nothing was measured.
    """

    name: str
    words: str
    unit: str
    of: Callable[[Record, str], Spread | None]


def number_in(case: Case, name: str, unit: float) -> Callable[[Record, str], Spread | None]:
    """Return what computes a number of the samples of a row in one case, in a unit."""
    return lambda run, row: plain(name, unit)(run, row, case)


@dataclass(frozen=True, slots=True)
class Line:
    """One way to do it: a row of the scenario, and what was published of it.

    Attributes
    ----------
    row
        Its name in the scenario; empty where it is published and cannot be measured here.
    words
        What it does.
    published
        Figures by metric, as they were written, with their unit.
    ours
        Whether it is onecopy's.
    """

    row: str
    words: str
    published: Mapping[str, str] = field(default_factory=dict)
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Telling:
    """The figures that sum a story up: a metric, and the rows as it is, as was published, and ours.

    `words` say what the metric is in the overview; `said` is a sentence with ``{before}``, ``{after}``,
    ``{ours}`` and ``{size}``.
    """

    metric: str
    before: str
    after: str
    ours: str
    words: str
    said: str


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of a story is measured.

    Attributes
    ----------
    quick
        Small data and one round: to see that it works, not for figures.
    rounds
        Instead of those of the story.
    idle_wait
        Seconds that each story may wait for an idle machine.
    seed
        Of the orders.
    """

    quick: bool = False
    rounds: int | None = None
    idle_wait: float = 20.0
    seed: int = 0

    def settings(self, rounds: int) -> dict[str, Any]:
        """Return what every scenario has to know, given the rounds of the story."""
        count = self.rounds or (1 if self.quick else rounds)
        return {"rounds": count, "idle_wait": self.idle_wait, "seed": self.seed}


Watch = Callable[[Progress], None]
Runs = Callable[[Path, Scale, Watch, Log], Record]


@dataclass(frozen=True, slots=True)
class Story:
    """A story.

    Attributes
    ----------
    name, title
        Its word on the command line, and a heading.
    problem
        What it is about, in a sentence or two.
    sources
        The first is the one that the figures of the lines are from.
    metrics, lines, telling
        The table: a column for each metric, a row for each line; and what it comes down to.
    carries, changes
        What of the result means something on another machine, and what does not.
    command
        The scenario by itself, with all of its options.
    scenario
        What measures it.
    run
        Measures it in a folder. Raises ModuleNotFoundError, FileNotFoundError or OSError where it cannot.
    size
        How much data was measured, as a headline says it.
    seconds
        That it takes on two CPUs, roughly: for the time that is left.
    """

    name: str
    title: str
    problem: str
    sources: tuple[Source, ...]
    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]
    telling: tuple[Telling, ...]
    carries: tuple[str, ...]
    changes: tuple[str, ...]
    command: str
    scenario: Scenario
    run: Runs
    size: Callable[[Record], str]
    seconds: float

    def metric(self, name: str) -> Metric:
        """Return a metric by its key; KeyError where there is none."""
        return {metric.name: metric for metric in self.metrics}[name]

    def line(self, row: str) -> Line:
        """Return a line by its row; KeyError where there is none."""
        return {line.row: line for line in self.lines}[row]
