"""Bars, read from committed records of the benchmarks and drawn as the benchmarks draw theirs."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onecopy_bench import pictures
from onecopy_bench.files import opening, passes
from onecopy_bench.pictures import Panel
from onecopy_bench.record import read

RESULTS = Path(__file__).parents[2] / "packages/bench/results/vm-2core-epyc-linux-6.18"
RECORD = RESULTS / "2026-11-20-07bf1de-warm.jsonl"
WORKERS = RESULTS / "2026-11-20-07bf1de-open-4-128k.jsonl"
LOADERS = {
    "safetensors.numpy": "safetensors.numpy.load_file",
    "numpy.memmap": "numpy.memmap",
    "safetensors.torch": "safetensors.torch.load_file",
    "map+warm": "oc.open(path), warm()",
}
"""Rows of the record that the picture of four workers shows, in this order, and their labels."""


def svg_of(title: str, panels: Sequence[Panel], record: Path) -> bytes:
    """Draw panels beside each other, and name the record below them."""
    source = f"2 CPUs, ext4, Linux 6.18, medians of 7 rounds: {record.stem}"

    def draw(figure: Any) -> None:
        pictures.draw_stacked(figure, {f"{title}\n{source}": panels})

    file = io.BytesIO()
    pictures.save(file, draw, format="svg")
    return file.getvalue()


def table_of(record: Path, place: str) -> dict[str, dict[str, str]]:
    """Return {mechanism: {column: cell}} of one table of a record of `onecopy bench warm`."""
    for table in passes.warm_tables(read(record)[0]):
        if table.title.startswith(f"{place},"):
            header = [column.replace("\n", " ") for column in table.header]
            return {row[0]: dict(zip(header, (cell.split("\n")[0] for cell in row), strict=True)) for row in table.rows}
    raise ValueError(f"{record}: there is no table of {place!r}")


def page_cache() -> bytes:
    """Draw how long it takes until a cold file is in memory."""
    values = {}
    for place, words in (("128K", "128 KiB"), ("disk", "8 MiB")):
        table = table_of(RECORD, place)
        for name, label in (("touch", "one thread touches"), ("pread-1", "one thread reads"), ("onecopy.warm", "warm")):
            values[f"{words} ahead, {label}"] = float(table[name]["all resident ms"])
    ours = {label for label in values if label.endswith("warm")}
    panel = Panel("ms until all of 403 MB is in memory", values, lambda label: f"{values[label]:.0f} ms", ours)
    return svg_of("A cold file is brought into memory", [panel], RECORD)


def huge_pages() -> bytes:
    """Draw how many faults a first pass over a file takes, by the pages that it lies in."""
    cells = {
        label: table_of(RECORD, place)[name]
        for label, place, name in (
            ("128 KiB at a time, touched", "128K", "touch"),
            ("8 MiB at a time, touched", "disk", "touch"),
            ("2 MiB pages asked for, touched", "disk", "huge+touch"),
            ("warm", "disk", "onecopy.warm"),
        )
    }
    faults = {label: float(row["minor"]) + float(row["major"]) for label, row in cells.items()}
    words = {label: f"{faults[label]:,.0f} faults, {row['huge %']} % in 2 MiB pages" for label, row in cells.items()}
    return svg_of("A first pass over 403 MB", [Panel("page faults", faults, words.__getitem__, {"warm"})], RECORD)


def four_workers() -> bytes:
    """Draw the memory of four workers with the same weights, and their cold start, by loader."""
    (record,) = read(WORKERS)
    (case,) = opening.cases_of(record)
    panels = []
    for title, unit, compute in (
        ("memory of all four", "MB", opening.pss),
        ("until the slowest has touched every page", "ms", opening.resident),
    ):
        spreads = {label: compute(record, name, case) for name, label in LOADERS.items()}
        values = {label: spread.median for label, spread in spreads.items() if spread is not None}
        words = {label: f"{value:,.0f} {unit}" for label, value in values.items()}
        panels.append(Panel(title, values, words.__getitem__, {LOADERS["map+warm"]}))
    return svg_of("Four workers with the same 403 MB of weights, from a cold disk", panels, WORKERS)
