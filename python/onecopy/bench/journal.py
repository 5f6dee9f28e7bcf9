"""The journal of a run: its samples, line by line as they come, so that a killed run can be continued.

The first line says which run it is: the record without samples. A run continues only where everything that the
numbers depend on is the same: file, machine, options, rows. A last line without its end is what a kill left of a
write, and is dropped. The journal stands beside the record it is going to be, and goes when that is written.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.bench.record import Record, Sample, as_plain, sample_from_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".samples"


class Journal:
    """The samples of one run in a file.

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

    def begin(self, record: Record) -> Record:
        """Return the record to go on with: the given one, or that of the journal with its samples.

        Raises
        ------
        ValueError
            If the journal tells of another run; the message names the first fact that differs.
        """
        if not self._resume:
            self.path.write_text(json.dumps(as_plain(replace(record, samples=()))) + "\n")
            return record
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        os.truncate(self.path, len(whole.encode()))
        heading, *lines = whole.splitlines() or [""]
        created = self._same_run(heading, record)
        return replace(record, created=created, samples=tuple(self._samples(lines)))

    def add(self, sample: Sample) -> None:
        """Append one sample; it is in the file when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")

    def remove(self) -> None:
        """Remove the file: the record holds everything."""
        self.path.unlink(missing_ok=True)

    def _same_run(self, heading: str, record: Record) -> str:
        """Return when the run of the journal was begun; raises ValueError unless it is this run."""
        now = json.loads(json.dumps(as_plain(replace(record, samples=()))))
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

    def _samples(self, lines: list[str]) -> Iterator[Sample]:
        for number, line in enumerate(lines, start=2):
            try:
                yield sample_from_plain(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path.name}: line {number} is no sample: {error}") from error


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + " ..."
