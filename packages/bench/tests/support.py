"""Records made by hand, and read back; the newest committed record of a scenario."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.places import ROOT

from onecopy_bench.record import Absent, Record, Row, Sample, as_json, lines, parse


def widest_of_tables(text: str) -> int:
    """Return the characters of the longest line of a table; sentences are folded by the terminal."""
    return max(len(line.rstrip()) for line in text.splitlines() if "  " in line.strip())


WHEN = "2026-01-01T00:00:00+00:00"


def made(
    scenario: str,
    samples: Iterable[Sample],
    rows: Iterable[Row] = (),
    *,
    options: Any = None,
    data: dict[str, Any] | None = None,
    absent: Iterable[Absent] = (),
    machine: dict[str, Any] | None = None,
) -> Record:
    """Make a record."""
    chosen = as_json(dataclasses.asdict(options)) if dataclasses.is_dataclass(options) else options
    return Record(
        scenario, WHEN, "1234567", machine or {}, chosen or {"rounds": 7}, data or {}, tuple(rows), tuple(absent),
        tuple(samples),
    )  # fmt: skip


def taken(row: str, case: tuple[str, ...], number: int = 0, **numbers: float) -> Sample:
    """Make a good sample, taken on an idle machine."""
    return Sample(row, case, number, started=WHEN, idle_share=1.0, numbers=numbers)


def text_of(record: Record) -> str:
    """Return the text of a record's file."""
    return "".join(lines(record))


def read_back(record: Record) -> Record:
    """Write a record and read it."""
    (found,) = parse(text_of(record))
    return found


RECORDS = ROOT / "packages/bench/results"


def committed(pattern: str) -> list[Path]:
    """Return the files of committed records; a source package has none."""
    found = sorted(RECORDS.glob(f"*/*-{pattern}.jsonl"))
    return found or pytest.skip("the records are not in source packages")
