"""Defines a story: a published measurement, how it is repeated, and which results carry over to other machines.

Stories are text files in `figures/`, without code.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onecopy.base.text import size
from onecopy_bench import images, models, nodes, run, start, structs
from onecopy_bench.record import Log, Record, Spread
from onecopy_bench.rows import share
from onecopy_bench.runs import Watch
from onecopy_bench.scenario import Scenario, option

UNKNOWN = "not stated"
"""The text shown if a source does not report a fact."""


@dataclass(frozen=True, slots=True)
class Source:
    """A published source: the page, a quotation (or figures, if not quoted), the machine, and the data."""

    title: str
    url: str
    words: str
    quoted: bool = True
    machine: str = UNKNOWN
    size: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class Metric:
    """A number in a story: the heading of its column, its unit, its case, its name in a sample, and its divisor."""

    name: str
    words: str
    unit: str
    case: list[str]
    number: str
    divisor: float = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """A method: a row of the scenario, its description, and its published figures by metric, as text."""

    row: str
    words: str
    published: Mapping[str, str] = field(default_factory=dict)
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of a story: a metric and three rows (unchanged, as published, and onecopy).

    `words` names the metric in the overview. `sentence` contains ``{before}``, ``{after}``, ``{ours}`` and ``{size}``.
    """

    metric: str
    rows: list[str]
    words: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a measurement: small data and one round (`quick`), or full-size data and a number of rounds."""

    rounds: int | None = option(None, "Number of rounds of each story.  [default: 3; share: 1]", kind="count")
    quick: bool = option(False, "Use small data and one round, to test the stories; the figures mean nothing.")
    idle_wait: float = option(20.0, "Seconds that each story may wait for an idle machine.", at_least=0.0)
    seed: int = option(0, "Seed of the random orders and choices.", kind="integer")


@dataclass(frozen=True, slots=True)
class Story:
    """A story, as described in its file.

    A scenario measures the story with `options`, or in a quick run with `quick`; `command` runs only that scenario. The
    published figures in the lines come from the first source. The table has a column for each metric and a row for each
    line; `summaries` summarise it. `carries` describes results that also hold on other machines, and `changes` results
    that do not. `amount` names a number in the record's data, and the noun that it counts.
    """

    scenario: Scenario
    name: str
    title: str
    problem: str
    command: str
    amount: tuple[str, str]
    options: dict[str, Any]
    quick: dict[str, Any]
    carries: list[str]
    changes: list[str]
    sources: tuple[Source, ...]
    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]
    summaries: tuple[Summary, ...]

    def metric(self, name: str) -> Metric:
        """Return a metric by name. Raise KeyError if the name is unknown."""
        return {metric.name: metric for metric in self.metrics}[name]

    def line(self, row: str) -> Line:
        """Return a line by its row. Raise KeyError if the row is unknown."""
        return {line.row: line for line in self.lines}[row]

    def spread(self, metric: Metric, record: Record | None, row: str) -> Spread | None:
        """Return the median and extremes of a metric for a row, or None if nothing was measured."""
        measure = self.scenario.measures.get(metric.number, lambda sample: sample.numbers.get(metric.number))
        values = map(measure, [] if record is None else record.of(row, tuple(metric.case)))
        return Spread.of(value / metric.divisor for value in values if value is not None)

    def size(self, record: Record) -> str:
        """Return the size of the measured data, for a headline."""
        name, counts = self.amount
        return size(record.data[name]) if counts == "bytes" else f"{record.data[name]:,} {counts}"

    def run(self, place: Path, scale: Scale, watch: Watch, log: Log) -> Record:
        """Repeat the published measurement. Raise ModuleNotFoundError, RuntimeError or OSError if this fails."""
        chosen: dict[str, Any] = {"rounds": 3} | self.options | (self.quick | {"rounds": 1} if scale.quick else {})
        chosen |= {"idle_wait": scale.idle_wait, "seed": scale.seed}
        chosen |= {"rounds": scale.rounds} if scale.rounds else {}
        if self.scenario is images.SCENARIO and (data := os.environ.get("ONECOPY_TEST_DATA")):
            chosen["file"] = next(map(str, sorted(Path(data, "slides").glob("*.ndpi"))), None)
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in chosen.items()}
        return self.scenario.run(place, replace(self.scenario.options, **given), watch, log)


def read_story(path: Path, scenario: Scenario) -> Story:
    """Read a story from its file."""
    facts = tomllib.loads(path.read_text())
    return Story(
        scenario,
        path.stem,
        **facts
        | {
            "sources": tuple(Source(**each) for each in facts["sources"]),
            "metrics": tuple(Metric(name, **each) for name, each in facts["metrics"].items()),
            "lines": tuple(Line(row, **each) for row, each in facts["lines"].items()),
            "summaries": tuple(Summary(**each) for each in facts["summaries"]),
        },
    )


STORIES = tuple(
    read_story(Path(__file__).with_name("figures") / f"{module.NAME}.toml", module.SCENARIO)
    for module in (models, run, start, images, share, structs, nodes)
)
"""All stories, in the order in which the page shows them."""
