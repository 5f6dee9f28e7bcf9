"""What a record of `bench open` says: numbers in their place, only what was measured, and its limits aloud."""

import io
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from packages.bench.tests.support import made, taken, widest_of_tables
from rich.console import Console

from onecopy.cli import screen
from onecopy_bench import cli
from onecopy_bench.files import opening as summary
from onecopy_bench.files.opening import SCENARIO
from onecopy_bench.record import Absent, Row, Sample

COLD = ("cold", "4")
ROWS = ("copy", "map", "map+warm", "numpy.memmap", "empty")
TIMES = {"copy": 400.0, "map": 41.0, "map+warm": 40.0, "numpy.memmap": 50.0, "empty": 0.001, "first-touch-4k": 10.0}


def sample_of(row: str, number: int, n: int, ms: float, pss: float, own: float, cached: int) -> Sample:
    """Make a good sample; the last of its processes is the slowest, and memory is of all together, in MB."""
    memory = {"empty_pss": 5_000_000, "empty_anonymous": 4_000_000, "file_pmd_mapped": 0, "anon_huge": 0}
    memory |= {"pss": round((5 + pss / n) * 1e6), "anonymous": round((4 + own / n) * 1e6)}
    counts = {"minor_faults": 10, "major_faults": 1, "notes": {"bytes": 91_000_000}}
    processes = tuple(
        {"open_ns": ms * (i + 1) / n * 1e5, "resident_ns": ms * (i + 1) / n * 1e6, **counts, **memory} for i in range(n)
    )
    numbers = {"cached_before": cached, "peak_anonymous": (own + 4 * n) * 1e6}
    case = () if row.startswith("first") else ("cold", str(n))
    return replace(taken(row, case, number, **numbers), processes=processes)


def record_of(n=4, rounds=7, touch_ms=10.0, pss=92.0, cached=0):
    """Make a record of 91 MB and n processes in which everything goes as hoped, or as given."""
    held = {"copy": 91.0 * n, "map": pss, "map+warm": pss, "numpy.memmap": 91.0}
    samples = [
        sample_of(
            row, number, 1 if row.startswith("first") else n, touch_ms if row.startswith("first") else ms,
            held.get(row, 0.0), 91.0 * n if row == "copy" else 0.5, cached,
        )
        for number in range(rounds)
        for row, ms in TIMES.items()
    ]  # fmt: skip
    rows = [Row(row, "as called") for row in ROWS] + [Row("first-touch-4k", "", role="control", uses_cache=False)]
    data = {"file": "model.safetensors", "kind": "safetensors", "size": 91_000_000, "data_bytes": 90_990_000}
    options = summary.Options(processes=(n,), rounds=rounds, caches=("cold",))
    return made("open", samples, rows, options=options, data={**data, "pieces": 103, "checksum": 77})


def said(record) -> str:
    return "\n".join(SCENARIO.sentences(record))


def shown(record, width: int, monkeypatch) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    monkeypatch.setattr(screen, "out", lambda: console)
    cli.show(SCENARIO.heading(record), SCENARIO.tables(record), SCENARIO.sentences(record))
    return console.file.getvalue()


def cells_of(record, part: int) -> dict[str, tuple[str, ...]]:
    return {name.partition("\n")[0]: tuple(cells) for name, *cells in list(SCENARIO.tables(record))[part].rows}


def test_times_are_those_of_the_slowest_process_and_memory_that_of_all():
    record = record_of()
    assert summary.resident(record, "copy", COLD).median == pytest.approx(400)
    assert summary.opening(record, "copy", COLD).median == pytest.approx(40)
    assert summary.pss(record, "copy", COLD).median == summary.private(record, "copy", COLD).median == 4 * 91
    assert summary.peak(record, "copy", COLD).median == 4 * 91
    assert summary.gib_per_s(record, "copy", COLD).median == pytest.approx(90_990_000 / 2**30 / 0.4)
    assert summary.resident(record, "empty", COLD) is summary.gib_per_s(record, "empty", COLD) is None


def test_a_table_has_the_fastest_row_first_and_what_it_costs_beside_ours():
    times, memory = cells_of(record_of(), 0), cells_of(record_of(), 1)
    assert list(times) == ["map+warm", "map", "numpy.memmap", "copy", "empty"]
    assert [times[name][1] for name in ("map+warm", "numpy.memmap", "copy")] == ["1", "1.25", "10"]
    assert memory["map+warm"] == ("92", "0.5", "0.5", "0")
    assert cells_of(record_of(), 2)["map"] == ("-", "4", "40")


def test_no_ratio_of_a_copy_is_told_where_fresh_memory_is_slow():
    assert "to other machines" not in said(record_of())
    record = record_of(touch_ms=100.0)
    assert (cells_of(record, 0)["copy"][1], cells_of(record, 0)["numpy.memmap"][1]) == ("-", "1.25")
    assert "First touch of fresh anonymous memory: 1.0 (1.0-1.0) GB/s for first-touch-4k" in said(record)
    assert "do not carry over to other machines and are not shown here" in said(record)
    unknown = replace(record, samples=tuple(s for s in record.samples if not s.row.startswith("first-touch")))
    assert "Without a control" in said(unknown)


def test_a_file_held_once_is_said_in_one_plain_sentence():
    once = "4 processes hold 91 MB once instead of 4 times: 92 MB in total (PSS minus 4 empty interpreters)"
    assert f"{once} against 364 MB for copies." in said(record_of())
    assert "4 processes hold 91 MB 2.00 times, not once: 182 MB in total" in said(record_of(pss=182.0))
    alone = "1 process holds the 91 MB in the page cache, where others can share it, and 0.5 MB of private memory"
    assert alone in said(record_of(n=1))


def test_a_state_of_the_cache_that_was_not_reached_is_told():
    assert "Cold: the kernel counted 0 cached bytes of the file before each of 35 samples." in said(record_of())
    assert "NOT cold: up to 45.5 of 91.0 MB were still cached before 35 of 35 samples." in said(
        record_of(cached=45_500_000)
    )


def test_what_limits_a_run_is_told():
    record = record_of(rounds=2)
    failed = [replace(s, state="crashed", reason="SIGBUS") if s.row == "map" else s for s in record.samples]
    record = replace(
        record, samples=tuple(replace(s, idle_share=0.5) for s in failed), absent=(Absent("a", "not here"),)
    )
    for sentence in ("12 of 12 samples may have been", "2 rounds; a published number needs 7.", "a: not here."):
        assert sentence in said(record)
    assert "map: crashed (cold, 4): SIGBUS." in said(record)
    assert cells_of(record, 0)["map"][0] == "crashed"


@pytest.mark.parametrize("width", [20, 80, 200])
def test_every_number_is_there_in_full_at_any_width(width, monkeypatch):
    text = shown(record_of(), width, monkeypatch)
    assert {"400", "40", "364", "92"} <= set(re.findall(r"[\d.]+", text))
    assert "…" not in text
    assert widest_of_tables(text) <= max(width, 80)


def test_words_of_a_record_are_shown_and_not_obeyed(monkeypatch):
    record = record_of()
    rows = (replace(record.rows[0], detail="a|b<script>\n\x1b[2J`"), *record.rows[1:])
    odd = replace(record, rows=rows, data={**record.data, "file": "x](http://a)\n# y"})
    page = SCENARIO.page(replace(odd, machine={"read_ahead_bytes": 8 << 20}))
    assert "read-ahead 8192 KiB" in page
    assert "a\\|b\\<script>" in page
    assert "\x1b" not in page + shown(odd, 80, monkeypatch)
    assert "\n# y" not in page


def test_what_draws_pictures_is_imported_when_it_is_needed_and_not_before():
    code = "import sys, onecopy_bench.cli; print(*{'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() == []
