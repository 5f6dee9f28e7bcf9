"""Draws bars as an SVG for pages: legible at a width of 400 pixels, in the colours of a light or dark scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

STYLE = """
text { font: 22px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.title, .value { font-weight: 600 }
.command { font-family: ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; font-size: 20px }
.source { font-size: 18px; fill: #59636e }
.page { fill: #ffffff }
.first { fill: #7a8794 }
.other { fill: #d55e00 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .source { fill: #9198a1 }
  .page { fill: #0d1117 }
  .first { fill: #8b98a5 }
  .other { fill: #ff8a3d }
}
"""
"""The picture has its own background, because its scheme can differ from that of the page around it."""
WIDTH, LONGEST, EDGE = 720, 540, 24


def draw(title: str, bars: Mapping[str, float], unit: str, source: str) -> str:
    """Draw a labelled bar for each value. The first bar has a different colour from the others.

    Examples
    --------
    >>> "2.0 GB</text>" in draw("Memory", {"before": 2.0, "after": 0.5}, "GB", "2 CPUs")
    True
    """
    parts = [f'<text class="title" x="{EDGE}" y="40">{escape(title)}</text>']
    top = 88
    for name, value in bars.items():
        kind, length = "first" if len(parts) == 1 else "other", LONGEST * value / max(bars.values())
        parts += [
            f'<text class="command" x="{EDGE}" y="{top}">{escape(name)}</text>',
            f'<rect class="{kind}" x="{EDGE}" y="{top + 14}" width="{length:.0f}" height="44" rx="4"/>',
            f'<text class="value" x="{EDGE + length + 14:.0f}" y="{top + 44}">{value:.1f} {unit}</text>',
        ]
        top += 104
    parts.append(f'<text class="source" x="{EDGE}" y="{top - 6}">{escape(source)}</text>')
    size = f'viewBox="0 0 {WIDTH} {top + 16}" width="{WIDTH}" height="{top + 16}"'
    page = '<rect class="page" width="100%" height="100%" rx="8"/>'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', f"<style>{STYLE}</style>", page, *parts]
    return "\n".join([*lines, "</svg>\n"])


def workers(record: Mapping[str, Any]) -> str:
    """Draw a record of `examples/eight_workers.py`."""
    memory = {how: row["bytes"] / 1e9 for how, row in record["medians"].items()}
    title = f"Memory of {record['workers']} workers with the same {record['gigabytes']:g} GB checkpoint"
    shown = {"python eight_workers.py": memory["plain"], "onecopy run -- python eight_workers.py": memory["run"]}
    return draw(title, shown, "GB", f"Medians of {len(record['rounds'])} rounds. {record['machine']}")
