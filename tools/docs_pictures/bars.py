"""Bars, read from a committed record of the benchmarks, as a small SVG that follows a light or dark screen."""

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from onecopy_bench.files import opening, passes
from onecopy_bench.record import read

ROOT = Path(__file__).parents[2]
LEFT, WIDE, STEP, TOP = 280, 230, 30, 62
STYLE = (
    ".paper{fill:#fff}.ink{fill:#222}.quiet{fill:#666}.other{fill:#9aa5b1}.ours{fill:#0072B2}"
    "@media (prefers-color-scheme: dark)"
    "{.paper{fill:#1e2129}.ink{fill:#eee}.quiet{fill:#aaa}.other{fill:#6b7480}.ours{fill:#56B4E9}}"
)


class Bar(NamedTuple):
    """One bar."""

    label: str
    number: float
    words: str
    """The text to the right of the bar."""
    ours: bool


def bars_of(title: str, below: str, *groups: tuple[str, list[Bar]]) -> bytes:
    """Draw groups of bars below one another; each group has a heading, which may be empty, and a scale of its own."""
    parts, y = [f'<text class="ink" x="10" y="28" font-size="16" font-weight="600">{escape(title)}</text>'], TOP
    for heading, bars in groups:
        if heading:
            y += STEP // 2 if y > TOP else 0
            parts.append(f'<text class="ink" x="10" y="{y + 5}" font-weight="600">{escape(heading)}</text>')
            y += STEP
        longest = max(bar.number for bar in bars)
        for bar in bars:
            parts += lines_of(bar, y, max(WIDE * bar.number / longest, 1))
            y += STEP
    height = y + 34
    parts.append(f'<text class="quiet" x="10" y="{height - 12}" font-size="12">{escape(below)}</text>')
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif" font-size="14">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="paper" width="760" height="{height}"/>',  # a page may be light on a dark screen
    ]
    return "\n".join([*head, *parts, "</svg>\n"]).encode()


def lines_of(bar: Bar, y: int, width: float) -> list[str]:
    """Return the elements of one bar: its label, the bar, and its value."""
    kind = "ours" if bar.ours else "other"
    return [
        f'<text class="ink" x="{LEFT - 10}" y="{y + 5}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect class="{kind}" x="{LEFT}" y="{y - 10}" width="{width:.1f}" height="20" rx="2"/>',
        f'<text class="ink" x="{LEFT + width + 8:.1f}" y="{y + 5}">{escape(bar.words)}</text>',
    ]


def table_of(record: Path, place: str) -> dict[str, dict[str, str]]:
    """Return {mechanism: {column: cell}} of one table of a record of `onecopy bench warm`."""
    for table in passes.warm_tables(read(record)[0]):
        if table.title.startswith(f"{place},"):
            header = [column.replace("\n", " ") for column in table.header]
            return {row[0]: dict(zip(header, (cell.split("\n")[0] for cell in row), strict=True)) for row in table.rows}
    raise ValueError(f"{record}: there is no table of {place!r}")


RECORD = ROOT / "packages/bench/results/vm-2core-epyc-linux-6.18/2026-11-20-07bf1de-warm.jsonl"
SOURCE = "403 MB, cold, ext4, Linux 6.18, medians of 7 rounds: packages/bench/results/.../2026-11-20-07bf1de-warm.jsonl"


def page_cache() -> bytes:
    """Draw how long it takes until a cold file is in memory."""
    bars = []
    for place, words in (("128K", "128 KiB"), ("disk", "8 MiB")):
        table = table_of(RECORD, place)
        for name, label in (("touch", "one thread touches"), ("pread-1", "one thread reads"), ("onecopy.warm", "warm")):
            milliseconds = float(table[name]["all resident ms"])
            bars.append(Bar(f"{words} ahead, {label}", milliseconds, f"{milliseconds:.0f} ms", label == "warm"))
    return bars_of("Until all of a cold file is in memory", SOURCE, ("", bars))


def huge_pages() -> bytes:
    """Draw how many faults a first pass over a file takes, by the pages that it lies in."""
    bars = []
    for label, place, name in (
        ("128 KiB at a time, touched", "128K", "touch"),
        ("8 MiB at a time, touched", "disk", "touch"),
        ("2 MiB pages asked for, touched", "disk", "huge+touch"),
        ("warm", "disk", "onecopy.warm"),
    ):
        cells = table_of(RECORD, place)[name]
        faults = int(cells["minor"]) + int(cells["major"])
        words = f"{faults:,} faults, {cells['huge %']} % in 2 MiB pages"
        bars.append(Bar(label, faults, words, name == "onecopy.warm"))
    return bars_of("Page faults of a first pass over 403 MB", SOURCE, ("", bars))


WORKERS = ROOT / "packages/bench/results/vm-2core-epyc-linux-6.18/2026-11-20-07bf1de-open-4-128k.jsonl"
LOADERS = {
    "safetensors.numpy": "safetensors.numpy.load_file",
    "numpy.memmap": "numpy.memmap",
    "safetensors.torch": "safetensors.torch.load_file",
    "map+warm": "oc.open(path), warm()",
}
"""Rows of the record that the picture of four workers shows, in this order, and their labels."""


def four_workers() -> bytes:
    """Draw the memory of four workers with the same weights, and their cold start, by loader."""
    (record,) = read(WORKERS)
    (case,) = opening.cases_of(record)
    memory, start = [], []
    for name, label in LOADERS.items():
        spreads = (compute(record, name, case) for compute in (opening.pss, opening.resident))
        megabytes, milliseconds = (spread.median for spread in spreads if spread is not None)
        memory.append(Bar(label, megabytes, f"{megabytes:,.0f} MB", name == "map+warm"))
        start.append(Bar(label, milliseconds, f"{milliseconds:,.0f} ms", name == "map+warm"))
    below = f"2 CPUs, 128 KiB read-ahead, Linux 6.18, medians of 7 rounds: {WORKERS.stem}"
    return bars_of(
        "Four workers with the same 403 MB of weights",
        below,
        ("Memory of all four", memory),
        ("Cold start, until the slowest has touched every page", start),
    )
