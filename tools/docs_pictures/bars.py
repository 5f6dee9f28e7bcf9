"""Bars of committed records of the benchmarks, drawn as the benchmarks draw theirs."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onecopy_bench import pictures
from onecopy_bench.files import opening
from onecopy_bench.pictures import Panel
from onecopy_bench.record import read

RESULTS = Path(__file__).parents[2] / "packages/bench/results/vm-2core-epyc-linux-6.18"
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
        labels = {label: f"{value:,.0f} {unit}" for label, value in values.items()}
        panels.append(Panel(title, values, labels, {LOADERS["map+warm"]}))
    return svg_of("Four workers with the same 403 MB of weights, from a cold disk", panels, WORKERS)
