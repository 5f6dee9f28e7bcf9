"""The page of the stories as Markdown, and the table of the README."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench.report.markdown import text
from onecopy_bench.stories import reading
from onecopy_bench.stories.reading import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onecopy_bench.stories.record import Stories
    from onecopy_bench.stories.story import Samples, Source, Story

BEGIN, END = "<!-- stories -->", "<!-- /stories -->"
"""What the generated table of a page stands between."""

HOW = (
    "Each story is a figure that somebody published, the same measured again on this machine with what it was published"
    " of, and onecopy beside it, in one run for each story: fresh processes, rounds in random order, outputs compared."
    " Medians, with extremes where there are several rounds."
)


def to_markdown(record: Stories, stories: Sequence[Story], picture: str | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    record, stories
        What was measured, and what there is.
    picture
        The name of an image file to be shown on top.
    """
    names = [kept.name for kept in record.kept]
    lines = [f"# {TITLES.get(len(stories), 'Stories')}, measured here", "", HOW, ""]
    lines += [f"{text(reading.where(record))} {len(names)} stories took {reading.duration(record.seconds)}.", ""]
    if record.options.get("quick"):
        lines += [f"**{reading.QUICK}**", ""]
    lines += [*table(record, stories), ""]
    if picture is not None:
        lines += [f"![What each story costs, by how it is done]({picture})", ""]
    for number, story in enumerate(stories, start=1):
        lines += [*section(record, story, number), ""]
    return "\n".join(lines).rstrip() + "\n"


TITLES = {5: "Five stories"}


def table(record: Stories, stories: Sequence[Story]) -> Iterator[str]:
    """Yield the overview as the lines of a Markdown table."""
    yield "| | published | the same here | onecopy here |"
    yield "|---|---|---|---|"
    for told in reading.overview(record, stories):
        ours = f"**{text(told.ours)}**" if told.ours else NOTHING
        yield f"| {text(told.words)} | {text(told.published) or NOTHING} | {text(told.here) or NOTHING} | {ours} |"


def block(record: Stories, stories: Sequence[Story]) -> str:
    """Return the table with its marks, as a README has it."""
    facts = record.machine
    memory = f"{facts.get('memory_bytes', 0) / 2**30:.0f} GiB"
    words = f"{facts.get('cores_usable')} processors, {memory}, {facts.get('kernel')}, {record.created[:10]}"
    return "\n".join([BEGIN, "", *table(record, stories), "", f"Here: {text(words)}.", "", END])


def section(record: Stories, story: Story, number: int) -> Iterator[str]:
    """Yield the lines of one story."""
    yield f"## {number}. {story.title}"
    yield ""
    yield story.problem
    yield ""
    for source in story.sources:
        yield f"* {_cited(source)}"
    yield ""
    samples = record.of(story)
    if samples is None:
        yield f"**Not measured**: {text(record.missing(story))}"
        yield ""
    else:
        yield from _found(story, samples)
    yield from grid(story, samples)
    yield ""
    yield "**What carries over**"
    yield ""
    yield from (f"* {words}" for words in story.carries)
    yield ""
    yield "**What does not**"
    yield ""
    yield from (f"* {words}" for words in story.changes)
    if samples is not None:
        yield from (f"* {text(words)}" for words in reading.limits(samples))
    yield ""
    alone = f"onecopy bench stories --story {story.name} -o {story.name}.html"
    yield f"Alone: `{alone}`; with every option: `{story.command}`."


def _cited(source: Source) -> str:
    words = f'"{source.words}"' if source.quoted else source.words
    return f"[{source.title}]({source.url}): {words}. Machine: {source.machine}. Size: {source.size}."


def _found(story: Story, samples: Samples) -> Iterator[str]:
    said = list(reading.headlines(story, samples))
    if said:
        yield f"**{text(said[0])}** {text(' '.join(said[1:]))}".rstrip()
        yield ""
    yield f"Here: {text(story.heading(samples))}."
    yield ""


def grid(story: Story, samples: Samples | None) -> Iterator[str]:
    """Yield the table of a story: a row for each way, a column for what was published and for what was found."""
    if samples is None:
        metrics, lines = (
            [m for m in story.metrics if reading.is_published(story, m)],
            [x for x in story.lines if x.published],
        )
    else:
        metrics, lines = reading.shown(story, samples), reading.measured(story, samples)
    titles = []
    for metric in metrics:
        titles += [f"{metric.words}: published"] if reading.is_published(story, metric) else []
        titles += [f"{metric.words}{': here' if reading.is_published(story, metric) else ''}"] if samples else []
    yield "| " + " | ".join(["", *titles]) + " |"
    yield "|" + "---|" * (len(titles) + 1)
    for line in lines:
        cells = []
        for metric in metrics:
            if samples is None:
                cells.append(line.published.get(metric.name, ""))
                continue
            one = reading.cell(metric, line, samples)
            cells += [one.published] if reading.is_published(story, metric) else []
            extremes = f"<br>({one.extremes})" if one.extremes else ""
            cells.append(f"**{one.here}**{extremes}" if line.ours and one.here != NOTHING else f"{one.here}{extremes}")
        name = f"**{text(line.words)}**" if line.ours else text(line.words)
        yield f"| {name} | " + " | ".join(cells) + " |"
