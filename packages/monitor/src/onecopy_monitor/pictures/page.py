"""A picture as an HTML page in one file: the SVG, and a script that shows the numbers under the pointer."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

from onecopy.text import escape
from onecopy_monitor.pictures.panels import BANDS
from onecopy_monitor.pictures.svg import COLOURS, DARK, LIGHT, frames_of, svg_of
from onecopy_monitor.table import series_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_monitor.pictures.panels import Picture
    from onecopy_monitor.series import Series

__all__ = ["page_of"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_NAMES = {
    **BANDS,
    "real": "deduplicated total",
    "sum_of_rss": "sum of RSS",
    "page_tables": "page tables",
    "swap": "swap",
}
_STYLE = """
body { margin: 0 auto; padding: 12px; max-width: 1240px; background: var(--paper); color: var(--ink);
  font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
figure { margin: 0; position: relative; overflow-x: auto; }
svg { display: block; }
svg:focus-visible { outline: 2px solid #0072B2; }
pre { font-size: 12px; overflow-x: auto; }
#box { position: absolute; display: none; pointer-events: none; background: var(--paper); color: var(--ink);
  border: 1px solid var(--quiet); border-radius: 4px; padding: 6px 9px; font-size: 12px; white-space: nowrap; }
#box td { padding: 1px 0 1px 8px; text-align: right; font-variant-numeric: tabular-nums; }
#box td:first-child { padding: 0; text-align: left; }
#box i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
#rule { position: absolute; display: none; width: 1px; pointer-events: none; background: var(--ink); }
"""
_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const figure = document.querySelector("figure"), svg = figure.querySelector("svg");
const box = document.getElementById("box"), rule = document.getElementById("rule");
let shown = null;
function size(n) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (n >= 999.5 && at < units.length - 1) { n /= 1000; at += 1; }
  return (at === 0 ? n : n.toPrecision(3)) + " " + units[at];
}
function nearest(times, t) {
  let best = 0;
  for (let i = 1; i < times.length; i++) if (Math.abs(times[i] - t) < Math.abs(times[best] - t)) best = i;
  return best;
}
function show(panel, at) {
  shown = [panel, at];
  const x = panel.left + panel.width * panel.times[at] / data.seconds;
  rule.style.cssText = `display:block;left:${x}px;top:${panel.top}px;height:${panel.height}px`;
  const table = document.createElement("table"), head = document.createElement("b");
  head.textContent = panel.times[at].toFixed(2) + " s";
  for (const [name, values] of Object.entries(panel.columns)) {
    const row = table.insertRow(), label = row.insertCell(), mark = document.createElement("i");
    mark.style.background = data.colours[name] || "transparent";
    label.append(mark, data.names[name]);
    row.insertCell().textContent = size(values[at]);
  }
  box.replaceChildren(head, table);
  box.style.display = "block";
  const right = x + 14 + box.offsetWidth > data.width;
  box.style.left = (right ? Math.max(x - 14 - box.offsetWidth, 0) : x + 14) + "px";
  box.style.top = Math.min(panel.top + 8, Math.max(data.height - box.offsetHeight, 0)) + "px";
}
function hide() { shown = null; box.style.display = rule.style.display = "none"; }
svg.addEventListener("pointermove", event => {
  const edge = svg.getBoundingClientRect(), x = event.clientX - edge.left, y = event.clientY - edge.top;
  const inside = (at, begin, length) => at >= begin - 5 && at <= begin + length + 5;
  const panel = data.panels.find(p => inside(x, p.left, p.width) && inside(y, p.top, p.height));
  if (!panel) return hide();
  show(panel, nearest(panel.times, (x - panel.left) / panel.width * data.seconds));
});
svg.addEventListener("pointerleave", hide);
svg.setAttribute("tabindex", "0");
svg.addEventListener("keydown", event => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "Escape") hide();
  if (!step) return;
  event.preventDefault();
  const [panel, at] = shown || [data.panels[0], 0];
  show(panel, Math.min(Math.max(at + step, 0), panel.times.length - 1));
});
"""


def page_of(picture: Picture, runs: Sequence[tuple[str, Series]], theme: str = "auto") -> str:
    """Return a picture as HTML, with the tables of its runs below; `theme` is that of `draw`."""
    title = html.escape(picture.title or "memory over time")
    tables = "".join(
        (f"<h2>{html.escape(escape(name))}</h2>" if len(runs) > 1 else "")
        + f"<pre>{html.escape(series_table(series))}</pre>"
        for name, series in runs
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{_colours(theme)}{_STYLE}</style>
</head>
<body>
<figure>
{svg_of(picture, theme)}<div id="rule"></div><div id="box" role="status"></div>
</figure>
{tables}
<script type="application/json" id="data">{_data(picture)}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _colours(theme: str) -> str:
    def rule(colours: dict[str, str]) -> str:
        return ":root{" + "".join(f"--{name}:{colour};" for name, colour in colours.items()) + "}"

    if theme != "auto":
        scheme = f":root{{color-scheme:{theme}}}"
        return scheme + rule(DARK if theme == "dark" else LIGHT)
    return f":root{{color-scheme:light dark}}{rule(LIGHT)}@media (prefers-color-scheme: dark){{{rule(DARK)}}}"


def _data(picture: Picture) -> str:
    """Return the numbers as JSON in which characters of HTML are escaped."""
    frames, width, height = frames_of(picture)
    panels = [
        {
            "left": frame.left,
            "top": frame.top,
            "width": frame.width,
            "height": frame.height,
            "times": [round(at, 4) for at in frame.panel.times],
            "columns": frame.panel.columns,
        }
        for frame in frames
    ]
    across = frames[0].across.top
    facts = {"panels": panels, "seconds": across, "width": width, "height": height, "names": _NAMES, "colours": COLOURS}
    text = json.dumps(facts, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
