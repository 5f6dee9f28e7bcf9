"""What a run of stories leaves behind: the record of each scenario as it is, the machine, and what could not be run."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy_bench import record as opened
from onecopy_bench.record import Absent
from onecopy_bench.records import record as data

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy_bench.stories.story import Samples, Story

FORMAT = "onecopy-stories 1"

_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError)
"""What reading text of any kind as a record may raise."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A story that was measured: its name, the seconds that it took, and the record of its scenario."""

    name: str
    seconds: float
    samples: Samples


@dataclass(frozen=True, slots=True)
class Stories:
    """One run: when, where, at which scale, what was measured, and which stories could not be."""

    created: str
    machine: dict[str, Any]
    options: dict[str, Any]
    kept: tuple[Kept, ...] = ()
    absent: tuple[Absent, ...] = ()

    def of(self, story: Story) -> Samples | None:
        """Return the record of a story; None where it was not measured."""
        return next((kept.samples for kept in self.kept if kept.name == story.name), None)

    def missing(self, story: Story) -> str:
        """Return why a story was not measured."""
        return next((absent.reason for absent in self.absent if absent.name == story.name), "not measured in this run")

    @property
    def seconds(self) -> float:
        """What all stories took together, the preparing of their data included."""
        return sum(kept.seconds for kept in self.kept)


def to_json(stories: Stories) -> str:
    """Return a record as JSON text."""
    plain = {
        "format": FORMAT,
        **{name: getattr(stories, name) for name in ("created", "machine", "options")},
        "stories": [{"name": k.name, "seconds": k.seconds, "record": _as_plain(k.samples)} for k in stories.kept],
        "absent": [asdict(absent) for absent in stories.absent],
    }
    return json.dumps(plain, indent=1) + "\n"


def from_json(text: str, known: Iterable[Story]) -> Stories:
    """Read a record back, whose stories are among those that are known.

    Whatever a page shows is computed once, so that a record that was read can be shown.

    Raises
    ------
    ValueError
        The text is no such record, or is one that was cut, changed, or made by a later version; the message says which
        story, and what is wrong.
    """
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON, or only a part of it: {error}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        found = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
        raise ValueError(f"not a record of the format {FORMAT!r}, but {str(found)[:100]!r}")
    names = {story.name: story for story in known}
    try:
        kept = tuple(_kept(entry, names) for entry in plain["stories"])
        absent = tuple(Absent(str(entry["name"]), str(entry["reason"])) for entry in plain["absent"])
        found = Stories(str(plain["created"]), dict(plain["machine"]), dict(plain["options"]), kept, absent)
    except _WRONG as error:
        raise ValueError(f"a record of the format {FORMAT!r} that cannot be read: {_said(error)}") from None
    if twice := len(kept) - len({one.name for one in kept}):
        raise ValueError(f"a record of the format {FORMAT!r} that tells {twice} of its stories twice")
    return found


def write(path: str | os.PathLike[str], stories: Stories) -> None:
    """Write a record in one step: a kill leaves what was there before. OSError names the file."""
    target = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(to_json(stories))
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:  # of a full disk it would not say where
        raise OSError(error.errno, error.strerror, str(target)) from None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _as_plain(samples: Samples) -> dict[str, Any]:
    return data.as_plain(samples) if isinstance(samples, data.Run) else opened.as_plain(samples)


def _kept(plain: dict[str, Any], known: dict[str, Story]) -> Kept:
    """Return a story of a record; raises one of `_WRONG` where it cannot be shown."""
    name = str(plain["name"])
    if name not in known:
        raise ValueError(f"no story {name[:40]!r}: there are {', '.join(known)}")
    story, record = known[name], plain["record"]
    try:
        _refuse_odd_numbers(record)
        text = json.dumps(record)
        samples = data.from_json(text) if record.get("format") == data.FORMAT else opened.from_json(text)
        story.heading(samples)
        story.size(samples)
        for metric in story.metrics:
            for line in story.lines:
                spread = metric.of(samples, line.row)
                if spread is not None and not all(map(math.isfinite, (spread.median, spread.low, spread.high))):
                    raise ValueError(f"{line.row}, {metric.name}: {spread.median}")
    except _WRONG as error:
        raise ValueError(f"the story {name!r}: {_said(error)}") from None
    return Kept(name, float(plain["seconds"]), samples)


def _refuse_odd_numbers(record: dict[str, Any]) -> None:
    """Raise ValueError where a sample's number is none, and none that a picture could show."""
    for sample in record["samples"]:
        values = [
            *sample.get("numbers", {}).values(),
            *(value for point in sample.get("points", ()) for value in point),
        ]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
                raise ValueError(f"a sample has {str(value)[:40]!r} for a number")


def _said(error: BaseException) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)[:300] or type(error).__name__
