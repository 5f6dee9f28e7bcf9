"""The page of the stories, as Markdown and as HTML that loads nothing, and the table of the README; by templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onecopy.text import escape
from onecopy_bench.engine.tables import text
from onecopy_bench.stories import pictures, reading
from onecopy_bench.stories.record import Stories
from onecopy_bench.stories.story import Story

BEGIN, END = "<!-- stories -->", "<!-- /stories -->"
"""What the generated table of a page stands between."""

TITLES = {5: "Five stories"}
HOW = (
    "Each story is a published figure, the same measured again on this machine with what it was published"
    " of, and onecopy beside it, in one run for each story: fresh processes, rounds in random order, outputs compared."
    " Medians, with extremes where there are several rounds."
)


def _rendered(template: str, record: Stories, stories: Sequence[Story], **more: Any) -> str:
    import jinja2  # here, because measuring does not need it

    html = template.endswith(".html")
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    settings: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=loader, autoescape=html, **settings)  # noqa: S701 - Markdown is not HTML
    environment.filters |= {"text": text, "plain": escape, "bold": bold}
    names = {"record": record, "stories": stories, "reading": reading, "how": HOW, "nothing": reading.NOTHING}
    title = f"{TITLES.get(len(stories), 'Stories')}, measured here"
    return environment.get_template(template).render(names, title=title, **more)


def bold(figure: str, best: bool) -> str:
    """Return the best figure of a row in bold, and another one as it is."""
    return f"**{figure}**" if figure and best else figure


def to_markdown(record: Stories, stories: Sequence[Story], picture: str | None = None) -> str:
    """Return the page; `picture` is the name of an image file to be shown on top."""
    return _rendered("page.md", record, stories, picture=picture).rstrip() + "\n"


def to_html(record: Stories, stories: Sequence[Story]) -> str:
    """Return the page as one file, light or dark as the screen is."""
    return _rendered("page.html", record, stories, inline=pictures.inline)


def block(record: Stories, stories: Sequence[Story]) -> str:
    """Return the table with its marks, as a README has it."""
    facts = record.heading.machine
    memory = f"{facts.get('memory_bytes', 0) / 2**30:.0f} GiB"
    words = f"{facts.get('cores_usable')} CPUs, {memory}, {facts.get('kernel')}, {record.heading.created[:10]}"
    table = _rendered("table.md", record, stories).rstrip()
    return "\n".join([BEGIN, "", table, "", f"Here: {text(words)}.", "", END])
