"""The file of a run of stories: a record of its own, with a sample for each story, and the record of each scenario."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onecopy_bench.engine import record as records
from onecopy_bench.engine.record import Record, Sample
from onecopy_bench.stories.story import Story

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
    found = stories_of(records.read(path))
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
            spread = metric.of(record, line.row)
            if spread is not None and not all(map(math.isfinite, (spread.median, spread.low, spread.high))):
                raise ValueError(f"{line.row}, {metric.name}: {spread.median}")
