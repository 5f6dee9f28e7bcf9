"""`onecopy bench stories`: published figures of big read-only data, measured again.

A story is a published measurement, with its source; a scenario of `onecopy_bench` with options that fit its share of
twenty minutes; and a reading of the samples in the words of the source. Nothing is measured here: the scenarios do
that. `figures/` has a file for each story; `story` (what one is), `reading` (a run of them, and what is said of it) and
`page` (what is shown).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from onecopy.base.text import escape
from onecopy.cli import screen
from onecopy_bench.engine import scenario as cli
from onecopy_bench.engine.record import Sample, lines
from onecopy_bench.engine.rounds import Settings
from onecopy_bench.stories import page, reading
from onecopy_bench.stories.reading import Stories
from onecopy_bench.stories.story import STORIES, Scale, Story

NAMES = tuple(story.name for story in STORIES)
SUFFIXES = (".md", ".html", ".svg")
DEFAULTS = Scale()
HEADS = cli.heads(Settings(idle_wait=DEFAULTS.idle_wait))
NARROW = 26


@click.command("stories")
@click.option(
    "--story", "names", type=click.Choice(NAMES), multiple=True, default=NAMES, show_default="all",
    help="Which. Repeatable.",
)  # fmt: skip
@click.option("--rounds", type=cli.POSITIVE, help="Number of rounds of each story.  [default: 3, and 1 of share]")
@click.option("--quick", is_flag=True, help="Small data, one round: to see that it works, not for figures.")
@HEADS["idle_wait"]
@HEADS["seed"]
@HEADS["folder"]
@HEADS["json_path"]
@click.option(
    "-o", "--output", "written", multiple=True, type=cli.FILE, metavar="OUT",
    help="The page as .md or .html, or its picture as .svg; more than once for several.",
)  # fmt: skip
@HEADS["resume"]
@click.option("--from", "source", type=cli.EXISTING, metavar="RECORD", help="Measure nothing: show a record.")
def command(
    *, names: tuple[str, ...], written: tuple[Path, ...], source: str | None,
    folder: str | None, json_path: str | None, resume: bool, **chosen: Any,
) -> None:  # fmt: skip
    """Measure published figures again: mapped models, a checkpoint in 8 workers, prefetch, images, datasets, nodes.

    Each is a scenario of `onecopy bench` with options that fit its share of 20 minutes: what was published, with its
    source, the same done here, and onecopy, in one run. All data is made up, 6 GB at most at a time. What is not
    installed is a row or a story that says so: pip install 'onecopy-bench[rivals]' brings all but the C++ programs of
    the index and of the slow file system, which a checkout builds, and nginx. `make stories` sets all up.
    """
    out = cli.Out(folder, json_path=json_path, resume=resume)
    cli.check_folders(*map(str, written))
    out.check()
    for path in written:
        if path.suffix not in SUFFIXES:
            raise click.BadParameter(f"{path.name!r} must end in .md, .html or .svg", param_hint="-o")
    stories = [story for story in STORIES if story.name in names]
    if source is not None and json_path is not None:
        raise click.UsageError("--from measures nothing: there is no --json and no --resume")
    if source is None:
        with cli.interruptible(json_path), cli.place(out) as place, cli.bar("stories") as watch:
            found = reading.run(stories, place, Scale(**chosen), out.log(), watch=watch, ended=tell)
    else:
        found = reading.read(source, STORIES)
    if json_path == "-":
        click.echo("".join(line for each in (found.heading, *found.records.values()) for line in lines(each)), nl=False)
    asked = [story for story in STORIES if found.of(story) is not None or story in stories]
    write(found, asked, written)
    if json_path != "-":
        show(found, asked)
    if source is None and not any(found.of(story) for story in stories):
        raise click.ClickException("no story could be measured")


def tell(story: Story, outcome: Sample) -> None:
    """Report on stderr what became of a story."""
    took = f"measured in {screen.duration(outcome.numbers.get('seconds', 0.0))}"
    words = took if outcome.state == "ok" else f"not measured: {escape(outcome.reason)}"
    click.echo(f"{story.name}: {words}", err=True)


def write(found: Stories, stories: Sequence[Story], written: Sequence[Path]) -> None:
    """Write page and picture; a Markdown page shows the picture that is written with it."""
    drawn = [path for path in written if path.suffix == ".svg"]
    for path in written:
        if path.suffix == ".html":
            path.write_text(page.to_html(found, stories))
        elif path.suffix == ".md":
            path.write_text(page.to_markdown(found, stories, drawn[0].name if drawn else None))
        else:
            page.save(path, found, stories)


def show(found: Stories, stories: Sequence[Story]) -> None:
    """Print what the stories come down to."""
    console = screen.out()
    if found.heading.options.get("quick"):
        screen.show_line(console, reading.QUICK, "bold")
    rows = [
        (textwrap.fill(told.words, NARROW), *map(escape, (told.published, told.here, told.ours)))
        for told in reading.overview(found, stories)
    ]
    screen.Grid(["", ">published", ">the same here", ">onecopy here"], rows).show(console)
    for story in stories:
        samples = found.of(story)
        for said in [] if samples is None else [*reading.headlines(story, samples), *story.scenario.limits(samples)]:
            screen.show_line(console, f"{story.name}: {said}")
        if samples is None:
            screen.show_line(console, f"{story.name}: not measured: {found.missing(story)}")
