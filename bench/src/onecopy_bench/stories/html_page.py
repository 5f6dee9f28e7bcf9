"""The page of the stories as HTML: one file that loads nothing, light or dark as the screen is."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from onecopy.memory.pictures.svg import DARK, LIGHT
from onecopy.text import plain
from onecopy_bench.stories import pictures, reading
from onecopy_bench.stories.page import HOW, TITLES
from onecopy_bench.stories.reading import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onecopy_bench.stories.record import Stories
    from onecopy_bench.stories.story import Samples, Source, Story

_NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 16px 60px; max-width: 960px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 26px; line-height: 1.25; margin: 8px 0 12px; }
h2 { font-size: 20px; line-height: 1.3; margin: 52px 0 10px; padding-top: 18px; border-top: 1px solid var(--faint); }
h3 { font-size: 15px; margin: 20px 0 4px; }
p { margin: 8px 0; }
a { color: var(--link); overflow-wrap: anywhere; }
.quiet { color: var(--quiet); font-size: 13px; }
.headline { font-size: 17px; font-weight: 600; border-left: 4px solid #D55E00; padding-left: 12px; margin: 16px 0; }
.warning { border: 1px solid #D55E00; border-radius: 4px; padding: 8px 12px; }
blockquote { margin: 12px 0; padding: 0 0 0 12px; border-left: 3px solid var(--faint); }
.scroll { overflow-x: auto; margin: 14px 0; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; text-align: right; border-bottom: 1px solid var(--faint); vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; min-width: 140px; }
th { font-weight: 600; }
thead th { vertical-align: bottom; }
th.sub { font-weight: 400; color: var(--quiet); font-size: 12px; }
td { white-space: nowrap; }
td:first-child { white-space: normal; }
td.published { color: var(--quiet); }
td small { color: var(--quiet); white-space: nowrap; }
tr.ours td { font-weight: 600; }
tr.ours td:first-child { color: var(--ours); }
td.result { font-weight: 600; color: var(--ours); white-space: nowrap; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 22px 36px;
  margin: 22px 0; align-items: start; }
svg { display: block; max-width: 100%; height: auto; }
pre { background: color-mix(in srgb, var(--faint) 45%, transparent); border-radius: 4px; padding: 10px 12px;
  overflow-x: auto; font-size: 13px; }
ul { padding-left: 20px; margin: 4px 0; }
"""


def to_html(record: Stories, stories: Sequence[Story]) -> str:
    """Return the page as one file."""
    title = f"{TITLES.get(len(stories), 'Stories')}, measured here"
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(HOW)}</p>"]
    took = f"{len(record.kept)} stories took {reading.duration(record.seconds)}."
    body.append(f'<p class="quiet">{_text(reading.where(record))} {escape(took)}</p>')
    if record.options.get("quick"):
        body.append(f'<p class="warning">{escape(reading.QUICK)}</p>')
    body += _overview(record, stories)
    for number, story in enumerate(stories, start=1):
        body += _section(record, story, number)
    text = "\n".join(body)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_NOTHING_ELSE}">
<title>{escape(title)}</title>
<style>{_colours()}{pictures.style()}{_STYLE}</style>
</head>
<body>
{text}
</body>
</html>
"""


def _colours() -> str:
    def rule(colours: dict[str, str]) -> str:
        return ":root{" + "".join(f"--{name}:{colour};" for name, colour in colours.items()) + "}"

    light = {**LIGHT, "link": "#0063A6", "ours": "#B34700"}
    dark = {**DARK, "link": "#7CC4F5", "ours": "#FF9A52"}
    return f":root{{color-scheme:light dark}}{rule(light)}@media (prefers-color-scheme: dark){{{rule(dark)}}}"


def _text(words: str) -> str:
    """Return text that may come out of a record: nothing of it is markup, and nothing is invisible."""
    return escape(plain(words))


def _overview(record: Stories, stories: Sequence[Story]) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr><th></th><th>published</th><th>the same here</th><th>onecopy here</th>'
    yield "</tr></thead><tbody>"
    for told in reading.overview(record, stories):
        cells = f'<td class="published">{_text(told.published) or NOTHING}</td><td>{_text(told.here) or NOTHING}</td>'
        yield f'<tr><td>{_text(told.words)}</td>{cells}<td class="result">{_text(told.ours) or NOTHING}</td></tr>'
    yield "</tbody></table></div>"


def _section(record: Stories, story: Story, number: int) -> Iterator[str]:
    yield f'<h2 id="{story.name}">{number}. {escape(story.title)}</h2>'
    yield f"<p>{escape(story.problem)}</p>"
    yield from map(_cited, story.sources)
    samples = record.of(story)
    if samples is None:
        yield f'<p class="warning"><b>Not measured:</b> {_text(record.missing(story))}</p>'
    else:
        said = list(reading.headlines(story, samples))
        yield f'<p class="headline">{_text(" ".join(said))}</p>' if said else ""
        yield f'<p class="quiet">Here: {_text(story.heading(samples))}.</p>'
        yield from _grid(story, samples)
        drawn = "".join(f"<div>{pictures.inline(panel)}</div>" for panel in pictures.panels_of(story, samples))
        yield f'<div class="panels">{drawn}</div>'
    limits = [] if samples is None else list(reading.limits(samples))
    yield f"<h3>What carries over</h3>{_list(story.carries)}"
    yield f"<h3>What does not</h3>{_list([*story.changes, *limits])}"
    yield "<h3>Alone</h3>"
    commands = f"onecopy bench stories --story {story.name} -o {story.name}.html\n{story.command}"
    yield f"<pre>{escape(commands)}</pre>"


def _cited(source: Source) -> str:
    words = f"“{escape(source.words)}”" if source.quoted else escape(source.words)
    facts = f"Machine: {escape(source.machine)}. Size: {escape(source.size)}."
    link = f'<a href="{escape(source.url)}">{escape(source.title)}</a>'
    return f'<blockquote>{words}<br><span class="quiet">{link}. {facts}</span></blockquote>'


def _list(items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"


def _grid(story: Story, samples: Samples) -> Iterator[str]:
    metrics = [(metric, reading.is_published(story, metric)) for metric in reading.shown(story, samples)]
    top = "".join(f'<th colspan="{1 + both}">{escape(metric.words)}</th>' for metric, both in metrics)
    below = "".join(
        ('<th class="sub">published</th>' if both else "") + '<th class="sub">here</th>' for _, both in metrics
    )
    head = f'<tr><th></th>{top}</tr><tr><th class="sub"></th>{below}</tr>'
    yield f'<div class="scroll"><table><thead>{head}</thead><tbody>'
    for line in reading.measured(story, samples):
        cells = []
        for metric, both in metrics:
            one = reading.cell(metric, line, samples)
            extremes = f"<br><small>{_text(one.extremes)}</small>" if one.extremes else ""
            cells += [f'<td class="published">{escape(one.published)}</td>'] if both else []
            cells.append(f"<td>{_text(one.here)}{extremes}</td>")
        kind = ' class="ours"' if line.ours else ""
        yield f"<tr{kind}><td>{escape(line.words)}</td>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
