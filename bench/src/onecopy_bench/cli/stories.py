"""`onecopy bench stories`: five published stories, measured again here, as one record and one page."""

from __future__ import annotations

import signal
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onecopy.cli import screen
from onecopy.cli.words import plain
from onecopy_bench.cli import passes, rounds
from onecopy_bench.record import Absent
from onecopy_bench.stories import html_page, page, pictures, reading, running
from onecopy_bench.stories import record as records
from onecopy_bench.stories.every import NAMES, STORIES
from onecopy_bench.stories.story import Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_bench.stories.record import Kept, Stories
    from onecopy_bench.stories.running import Step
    from onecopy_bench.stories.story import Story

SUFFIXES = (".md", ".html", ".svg")
DEFAULTS = Scale()
NARROW = 26


@click.command("stories")
@rounds.choice("--story", "names", NAMES, "Which.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="Of each story.  [default: 3, and 1 of share]",
)
@click.option("--quick", is_flag=True, help="Small data, one round: to see that it works, not for figures.")
@passes.idle_wait(DEFAULTS.idle_wait)
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Of the orders.")
@click.option(
    "--folder", type=click.Path(file_okay=False, exists=True, path_type=Path), help="For the files.  [default: here]"
)
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
@click.option(
    "-o",
    "--output",
    "written",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="The page as .md or .html, or its picture as .svg; more than once for several.",
)
@click.option("--resume", is_flag=True, help="Go on with a killed run: its stories are in OUT, its samples beside it.")
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="RECORD",
    help="Measure nothing: show a record that there is.",
)
def command(
    *,
    names: tuple[str, ...],
    folder: Path | None,
    json_path: str | None,
    written: tuple[Path, ...],
    resume: bool,
    source: Path | None,
    **chosen: object,
) -> None:
    """Measure five published stories again: mapped models, prefetched weights, decoded images, datasets, an index.

    Each is a scenario of `onecopy bench` with options that fit its share of 20 minutes: what was published, with its
    source, the same done here, and onecopy, in one run. All data is made up, 6 GB at most at a time. What is not
    installed is a row or a story that says so: pip install 'onecopy-bench[peers]' brings all but the C++ program of
    the last story, which a checkout builds. `make stories` sets up both.
    """
    check(json_path, written)
    stories = [story for story in STORIES if story.name in names]
    if source is not None:
        if resume or json_path is not None:
            raise click.UsageError("--from measures nothing: there is no --json and no --resume")
        found = read(source)
    else:
        before = begun(json_path, resume=resume)
        record_at = None if json_path == "-" else json_path
        found = measured(stories, folder, Scale(**chosen), record_at, before, resume=resume)  # type: ignore[arg-type]
    if json_path == "-":
        click.echo(records.to_json(found), nl=False)
    asked = [story for story in STORIES if found.of(story) is not None or story in stories]
    write(found, asked, written)
    if json_path != "-":
        show(found, asked)
    if source is None and not any(found.of(story) for story in stories):
        raise click.ClickException("no story could be measured")


def check(json_path: str | None, written: Sequence[Path]) -> None:
    """Raise a usage error where a file could not be written at the end of a long run."""
    passes.check_folders(json_path, *map(str, written))
    for path in written:
        if path.suffix not in SUFFIXES:
            raise click.BadParameter(f"{path.name!r} is none of {', '.join(SUFFIXES)}", param_hint="-o")


def begun(json_path: str | None, *, resume: bool) -> Stories | None:
    """Return the record of a run that was ended; None where nothing is there to go on with."""
    if not resume:
        return None
    if json_path in {None, "-"}:
        raise click.UsageError("--resume needs --json OUT: the record is there, and the samples beside it")
    path = Path(str(json_path))
    return read(path) if path.exists() else None


def read(path: Path) -> Stories:
    """Read a record; errors name the file."""
    try:
        return records.from_json(path.read_text(), STORIES)
    except (ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.ClickException(f"{path}: {reason}") from error


def measured(
    stories: Sequence[Story],
    folder: Path | None,
    scale: Scale,
    json_path: str | None,
    before: Stories | None,
    *,
    resume: bool,
) -> Stories:
    """Run the stories in a temporary folder with a bar; SIGTERM ends it like Ctrl-C, so that no disk is left."""
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=folder or ".") as place,
            screen.progress_bar(screen.err(), left=screen.SecondsLeftColumn()) as bar,
        ):
            task = bar.add_task("stories", total=None)

            def watch(step: Step) -> None:
                now = step.progress
                words = f"{step.number} of {step.of}, {step.story.name}: {now.next}"
                bar.update(task, completed=now.done, total=now.total or None, description=words, left=step.seconds_left)

            kept: dict[str, Any] = {"json_path": json_path, "before": before, "resume": resume}
            return running.run(stories, Path(place).absolute(), scale, **kept, watch=watch, told=tell)
    except KeyboardInterrupt:
        if json_path is not None:
            click.echo(f"\nonecopy: what was measured is in {json_path} and beside it: go on with --resume", err=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, handler)


def tell(story: Story, outcome: Kept | Absent) -> None:
    """Say on stderr what became of a story."""
    if isinstance(outcome, Absent):
        click.echo(f"{story.name}: not measured: {plain(outcome.reason)}", err=True)
    else:
        click.echo(f"{story.name}: measured in {reading.duration(outcome.seconds)}", err=True)


def write(found: Stories, stories: Sequence[Story], written: Sequence[Path]) -> None:
    """Write page and picture; a Markdown page shows the picture that is written with it."""
    drawn = [path for path in written if path.suffix == ".svg"]
    for path in written:
        if path.suffix == ".html":
            text = html_page.to_html(found, stories)
        elif path.suffix == ".md":
            text = page.to_markdown(found, stories, drawn[0].name if drawn else None)
        else:
            text = picture(found, stories)
        path.write_text(text)


def picture(found: Stories, stories: Sequence[Story]) -> str:
    """Return the picture; where nothing was measured, that is said."""
    try:
        return pictures.to_svg(found, stories)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def show(found: Stories, stories: Sequence[Story]) -> None:
    """Print what the stories come down to."""
    console = screen.out()
    if found.options.get("quick"):
        screen.show_line(console, reading.QUICK, "bold")
    columns = (
        screen.Column(""),
        screen.Column("published", right=True),
        screen.Column("the same here", right=True),
        screen.Column("onecopy here", right=True),
    )
    rows = [
        (textwrap.fill(told.words, NARROW), *map(plain, (told.published, told.here, told.ours)))
        for told in reading.overview(found, stories)
    ]
    screen.Grid(columns, rows).show(console)
    for story in stories:
        samples = found.of(story)
        for said in [] if samples is None else [*reading.headlines(story, samples), *reading.limits(samples)]:
            screen.show_line(console, f"{story.name}: {said}")
        if samples is None:
            screen.show_line(console, f"{story.name}: not measured: {found.missing(story)}")
