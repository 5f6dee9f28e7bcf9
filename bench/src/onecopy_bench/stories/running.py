"""Running stories one after the other: each in a folder of its own, what is done kept at once, a kill losing little.

The record is written again after each story. What one has measured so far is in a journal beside the record, which is
its own; a run that goes on takes both.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy_bench import machine
from onecopy_bench.children import SampleError
from onecopy_bench.journal import SUFFIX
from onecopy_bench.record import Absent
from onecopy_bench.stories import record as records
from onecopy_bench.stories.record import Kept, Stories

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy_bench.journal import JournalOf
    from onecopy_bench.runner import Progress
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
    *,
    json_path: str | os.PathLike[str] | None = None,
    before: Stories | None = None,
    resume: bool = False,
    watch: Callable[[Step], None] = lambda _: None,
    told: Callable[[Story, Kept | Absent], None] = lambda _, __: None,
) -> Stories:
    """Measure stories in their order and return the record.

    Parameters
    ----------
    stories
        Which.
    place
        A folder on the disk that is to be measured; each story has a folder in it as long as it runs.
    scale
        How much of each.
    json_path
        The record is written here after each story; samples are kept beside it.
    before
        The record of a run that was ended, to go on with: what it has is not measured again.
    resume
        Go on with the samples beside the record, too, which are of the story that was not done.
    watch
        Called before each sample.
    told
        Called after each story with what became of it.

    Raises
    ------
    ValueError
        The run that was ended was of another machine or scale; the message names the first fact that differs.
    OSError
        The record cannot be written.
    """
    found = _begun(place, scale, before)
    clock = _Clock(stories, scale)
    for number, story in enumerate(stories, start=1):
        if found.of(story) is not None:
            clock.skip(story)
            continue

        def seen(progress: Progress, number: int = number, story: Story = story) -> None:
            watch(Step(number, len(stories), story, progress, clock.seconds_left(story, progress)))

        with clock.timing(story):
            outcome = _measured(story, place, scale, _journal(story, json_path, again=resume), seen)
        found = _with(found, outcome)
        if json_path is not None:
            records.write(json_path, found)
            Path(_journal_path(story, json_path)).unlink(missing_ok=True)
        told(story, outcome)
    return found


def _begun(place: Path, scale: Scale, before: Stories | None) -> Stories:
    """Return the record to go on with; raises ValueError where that would mix what is not alike."""
    # The seconds of waiting change no number.
    options = {name: value for name, value in asdict(scale).items() if name != "idle_wait"}
    now = Stories(datetime.now(UTC).isoformat(timespec="seconds"), machine.facts(place), options)
    if before is None:
        return now
    for words in ("options", "machine"):
        then, here = getattr(before, words), getattr(now, words)
        if differing := next((key for key in here if then.get(key) != here[key]), None):
            raise ValueError(f"another run: {differing} was {then.get(differing)!r}, is {here[differing]!r}")
    return before


def _measured(
    story: Story, place: Path, scale: Scale, journal: JournalOf[Any] | None, watch: Callable[[Progress], None]
) -> Kept | Absent:
    """Run one story; what cannot be run is absent, with the reason."""
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix=f"{story.name}-", dir=place) as folder:
            samples = story.run(Path(folder), scale, watch, journal)
    except (ModuleNotFoundError, OSError, RuntimeError, SampleError) as error:
        reason = error.reason if isinstance(error, SampleError) else str(error)
        return Absent(story.name, reason.replace(f"{place}{os.sep}", ""))
    return Kept(story.name, round(time.monotonic() - start, 1), samples)


def _with(found: Stories, outcome: Kept | Absent) -> Stories:
    """Return a record with one more story; a reason that it could not be run gives way to its samples."""
    absent = tuple(one for one in found.absent if one.name != outcome.name)
    if isinstance(outcome, Kept):
        return replace(found, kept=(*found.kept, outcome), absent=absent)
    return replace(found, absent=(*absent, outcome))


def _journal_path(story: Story, json_path: str | os.PathLike[str]) -> str:
    return f"{os.fspath(json_path)}.{story.name}{SUFFIX}"


def _journal(story: Story, json_path: str | os.PathLike[str] | None, *, again: bool) -> JournalOf[Any] | None:
    return None if json_path is None else story.journal(_journal_path(story, json_path), resume=again)


class _Clock:
    """How long all stories will take: as long as expected, times what those so far took of what was expected."""

    def __init__(self, stories: Sequence[Story], scale: Scale) -> None:
        self._expected = {story.name: QUICK_S if scale.quick else story.seconds for story in stories}
        self._left = dict(self._expected)
        self._taken: list[float] = []

    def skip(self, story: Story) -> None:
        """Take a story as done."""
        self._left.pop(story.name)

    @contextlib.contextmanager
    def timing(self, story: Story) -> Any:
        """Time a story."""
        start = time.monotonic()
        yield
        self._left.pop(story.name)
        self._taken.append((time.monotonic() - start) / self._expected[story.name])

    def seconds_left(self, story: Story, progress: Progress) -> float:
        """Return the estimate, given how far the present story is."""
        rest = math.fsum(seconds for name, seconds in self._left.items() if name != story.name)
        done = progress.done / progress.total if progress.total else 0.0
        pace = max(sum(self._taken) / len(self._taken), 0.05) if self._taken else 1.0
        return pace * (rest + (1 - done) * self._expected[story.name])
