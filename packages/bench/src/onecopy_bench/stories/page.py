"""The output of stories: cells and sentences, the page as Markdown, its picture, and the table for a README."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onecopy.cli.screen import duration
from onecopy_bench import pictures
from onecopy_bench.pictures import Panel
from onecopy_bench.record import Record, Spread
from onecopy_bench.stories.reading import Stories
from onecopy_bench.stories.story import Metric, Story, Summary
from onecopy_bench.tables import MISSING, Bold, Table, number, text

TITLE = "Published figures, measured here"
HOW = (
    "Each story shows a published figure, the same measurement repeated on this machine, and onecopy beside it, all in"
    " one run. Samples are fresh processes in rounds of random order, and their outputs are compared."
    " Figures are medians, with extremes where there are several rounds."
)
QUICK = "This is a quick run with small data and one round, which only tests the stories. Its figures mean nothing."
ARROW, TIE = "→", 1.05
MOST_DRAWN = 4
"""Maximum number of metrics per story that are drawn."""


class Figures(NamedTuple):
    """A summary's figures as text: published, reproduced on this machine, and onecopy's; missing ones are "".

    `sentence` is the summary in words, if all of it was measured. `ahead` states whether the published method is best
    on this machine, and whether onecopy is; if they differ by at most 5 %, both are.
    """

    words: str
    published: str
    here: str = ""
    ours: str = ""
    sentence: str = ""
    ahead: tuple[bool, bool] = (False, False)


def amount(spread: Spread | None, unit: str) -> str:
    """Return a median with its unit; times below a second are in ms.

    Examples
    --------
    >>> amount(Spread(0.0012, 0, 1), "s"), amount(Spread(12.34, 12, 13), "MB"), amount(None, "s")
    ('1.2 ms', '12.3 MB', '-')
    >>> amount(Spread(1.001, 1, 1.01), "copies")
    '1 copy'
    """
    if spread is None:
        return MISSING
    value, words = spread.median, unit
    if unit == "s" and value < 0.1:
        value, words = value * 1e3, "ms"
    elif unit == "ms" and value >= 10_000:
        value, words = value / 1e3, "s"
    elif unit == "GiB" and value < 0.1:
        value, words = value * 1024, "MiB"
    elif unit == "copies" and number(value) == "1":
        words = "copy"
    return f"{number(value)} {words}"


def measured(spread: Spread | None, unit: str) -> str:
    """Return an amount and, if its extremes differ, a separate line with them."""
    if spread is None or number(spread.low) == number(spread.high):
        return amount(spread, unit)
    return f"{amount(spread, unit)}\n({number(spread.low)}-{number(spread.high)})"


def figures_of(story: Story, summary: Summary, samples: Record | None) -> Figures:
    """Return the figures of a summary."""
    metric, lines = story.metric(summary.metric), [story.line(row) for row in summary.rows]
    published = f" {ARROW} ".join(filter(None, (line.published.get(metric.name) for line in lines[:2])))
    if samples is None:
        return Figures(summary.words, published)
    before, after, ours = spreads = [story.spread(metric, samples, line.row) for line in lines]
    first, second, last = (amount(spread, metric.unit) for spread in spreads)
    here = f"{first} {ARROW} {second}" if before or after else ""
    words = {"before": first, "after": second, "ours": last, "size": story.size(samples)}
    theirs = min((spread.median for spread in (before, after) if spread), default=math.inf)
    mine = ours.median if ours else math.inf
    ahead = bool(before or after) and theirs <= TIE * mine, ours is not None and mine <= TIE * theirs
    sentence = summary.sentence.format(**words) if all(spreads) else ""
    return Figures(summary.words, published, here, last if ours else "", sentence, ahead)


def headlines(story: Story, samples: Record) -> list[str]:
    """Return a story's summary sentences, except those whose numbers were not measured."""
    found = (figures_of(story, summary, samples) for summary in story.summaries)
    return [figures.sentence for figures in found if figures.sentence]


def heading(stories: Stories) -> str:
    """Return a line that describes the measurement."""
    took = f"{len(stories.measured)} stories took {duration(stories.seconds)}."
    return f"{took} {QUICK}" if stories.heading.options.get("quick") else took


def sentences(stories: Stories, shown: Sequence[Story]) -> Iterator[str]:
    """Yield the sentences of all stories, and their limits, each with the name of its story."""
    for story in shown:
        said = [f"not measured: {stories.missing(story)}"]
        if (samples := stories.of(story)) is not None:
            said = [*headlines(story, samples), *story.scenario.limits(samples)]
        yield from (f"{story.name}: {sentence}" for sentence in said)


def overview(stories: Stories, shown: Sequence[Story]) -> Table:
    """Return an overview of all summaries, in which the best figure in each row is bold."""
    rows = []
    for story in shown:
        for summary in story.summaries:
            found = figures_of(story, summary, stories.of(story))
            cells = (found.published, _bold(found.here, found.ahead[0]), _bold(found.ours, found.ahead[1]))
            rows.append((found.words, *(cell or MISSING for cell in cells)))
    return Table("", ("", "published", "the same here", "onecopy here"), tuple(rows))


def _bold(words: str, is_bold: bool) -> str:
    return Bold(words) if is_bold else words


def table_of(story: Story, samples: Record | None) -> Table:
    """Return a story's table, with the published and the measured figure of each metric for each method."""
    rows_of = {m.name: [x.row for x in story.lines if story.spread(m, samples, x.row)] for m in story.metrics}
    columns: list[tuple[str, Metric, bool]] = []
    for metric in story.metrics:
        published = any(metric.name in line.published for line in story.lines)
        columns += [(f"{metric.words}: published", metric, True)] if published else []
        if samples is not None and (published or rows_of[metric.name]):
            columns.append((f"{metric.words}: here" if published else metric.words, metric, False))
    rows = []
    for line in story.lines:
        if line.published or any(line.row in rows for rows in rows_of.values()):
            cells = [
                line.published.get(metric.name, "")
                if published
                else _bold(measured(story.spread(metric, samples, line.row), metric.unit), line.ours)
                for _, metric, published in columns
            ]
            rows.append((_bold(line.words, line.ours), *cells))
    return Table("", ("", *(title for title, _, _ in columns)), tuple(rows))


def to_markdown(stories: Stories, shown: Sequence[Story], picture: str | None = None) -> str:
    """Return the page as Markdown. `picture` is the name of an image file to show at the top."""
    parts = [f"# {TITLE}", HOW, f"{text(stories.heading.where)} {heading(stories)}"]
    parts += [overview(stories, shown).markdown()]
    parts += [f"![Results of each story, by method]({picture})"] if picture else []
    for at, story in enumerate(shown, 1):
        parts += [f"## {at}. {story.title}", *_section(stories, story)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _section(stories: Stories, story: Story) -> Iterator[str]:
    samples = stories.of(story)
    yield story.problem
    sources = []
    for source in story.sources:
        words = f'"{source.words.strip()}"' if source.quoted else source.words.strip()
        sources.append(f"* [{source.title}]({source.url}): {words}. Machine: {source.machine}. Size: {source.size}.")
    yield "\n".join(sources)
    limits = list(story.changes)
    if samples is None:
        yield f"**Not measured**: {text(stories.missing(story))}"
    else:
        if said := list(map(text, headlines(story, samples))):
            yield " ".join([f"**{said[0]}**", *said[1:]])
        yield f"Here: {text(story.scenario.heading(samples))}."
        limits += map(text, story.scenario.limits(samples))
    yield table_of(story, samples).markdown()
    yield "**What carries over**"
    yield "\n".join(f"* {words}" for words in story.carries)
    yield "**What does not**"
    yield "\n".join(f"* {words}" for words in limits)
    alone = f"onecopy bench stories --story {story.name} -o {story.name}.md"
    yield f"To run only this story: `{alone}`. To choose all options: `{story.command}`."


def block(stories: Stories, shown: Sequence[Story]) -> str:
    """Return the table and a description of the machine, for a README."""
    facts = stories.heading.machine
    memory = f"{facts.get('memory_bytes', 0) / 2**30:.0f} GiB"
    words = f"{facts.get('cores_usable')} CPUs, {memory}, {facts.get('kernel')}, {stories.heading.created[:10]}"
    return f"{overview(stories, shown).markdown()}\n\nHere: {text(words)}."


def _panels_of(story: Story, record: Record) -> list[Panel]:
    """Return a panel of bars for each metric that was measured for at least two methods."""
    ours = {line.words for line in story.lines if line.ours}
    panels = []
    for metric in story.metrics:
        spreads = {line.words: story.spread(metric, record, line.row) for line in story.lines}
        known = {words: spread for words, spread in spreads.items() if spread is not None}
        if len(known) > 1:
            values = {words: max(spread.median, 0.0) for words, spread in known.items()}
            labels = {words: amount(spread, metric.unit) for words, spread in known.items()}
            panels.append(Panel(f"{metric.words}, {metric.unit}", values, labels, ours))
    return panels[:MOST_DRAWN]


def save(stories: Stories, shown: Sequence[Story], path: str | os.PathLike[str]) -> None:
    """Draw all stories in one file. Raise ValueError if nothing was measured."""
    parts = {
        f"{at}. {story.title}": _panels_of(story, record)
        for at, story in enumerate(shown, 1)
        if (record := stories.of(story)) is not None
    }
    if not parts:
        raise ValueError("cannot draw a picture: no published measurement was repeated")
    pictures.save(path, pictures.draw_stacked, parts)
