"""The journal of a run: its samples, line by line as they come, so that a killed run can be continued.

The first line says which run it is: the record without samples. A run continues only where everything that the
numbers depend on is the same: file, machine, options, rows. A last line without its end is what a kill left of a
write, and is dropped. The journal stands beside the record it is going to be, and goes when that is written.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onecopy_bench.record import Record, Sample, as_plain, sample_from_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import DataclassInstance

SUFFIX = ".samples"

AnyRecord = TypeVar("AnyRecord", bound="DataclassInstance")


class JournalOf(ABC, Generic[AnyRecord]):
    """The samples of one run in a file, for records of any kind that have `created` and `samples`.

    Parameters
    ----------
    path
        The file of the journal.
    resume
        Continue the run that the file tells of; else begin anew.
    """

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = False) -> None:
        self.path = Path(path)
        self._resume = resume and self.path.exists()

    @abstractmethod
    def plain(self, record: AnyRecord) -> dict[str, Any]:
        """Return a record as JSON types."""

    @abstractmethod
    def sample(self, plain: dict[str, Any]) -> Any:
        """Return a sample from its JSON types; raises KeyError or TypeError where a field is missing or unknown."""

    def begin(self, record: AnyRecord) -> AnyRecord:
        """Return the record to go on with: the given one, or that of the journal with its samples.

        Raises
        ------
        ValueError
            If the journal tells of another run; the message names the first fact that differs.
        """
        if not self._resume:
            self.path.write_text(json.dumps(self.plain(replace(record, samples=()))) + "\n")
            return record
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        os.truncate(self.path, len(whole.encode()))
        heading, *lines = whole.splitlines() or [""]
        created = self._same_run(heading, record)
        return replace(record, created=created, samples=tuple(self._samples(lines)))

    def add(self, sample: DataclassInstance) -> None:
        """Append one sample; it is in the file when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")

    def remove(self) -> None:
        """Remove the file: the record holds everything."""
        self.path.unlink(missing_ok=True)

    def _same_run(self, heading: str, record: AnyRecord) -> str:
        """Return when the run of the journal was begun; raises ValueError unless it is this run."""
        now = json.loads(json.dumps(self.plain(replace(record, samples=()))))
        try:
            then = json.loads(heading)
            differing = next((key for key in now if key != "created" and then.get(key) != now[key]), None)
            created = str(then["created"])
        except (ValueError, AttributeError, KeyError):
            raise ValueError(f"{self.path.name} is no journal of a benchmark") from None
        if differing is not None:
            raise ValueError(
                f"{self.path.name} tells of another run: {differing} was {_short(then.get(differing))},"
                f" is {_short(now[differing])}"
            )
        return created

    def _samples(self, lines: list[str]) -> Iterator[Any]:
        for number, line in enumerate(lines, start=2):
            try:
                yield self.sample(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path.name}: line {number} is no sample: {error}") from error


class Journal(JournalOf[Record]):
    """The journal of a record of `onecopy_bench.record`."""

    def plain(self, record: Record) -> dict[str, Any]:
        """Return a record as JSON types."""
        return as_plain(record)

    def sample(self, plain: dict[str, Any]) -> Sample:
        """Return a sample from its JSON types."""
        return sample_from_plain(plain)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + " ..."
