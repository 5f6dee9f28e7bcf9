"""What a record of `bench open` says: numbers in their place, only what was measured, and its limits aloud."""

import io
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from tests.support.screens import widest_of_tables

from onecopy.cli import screen
from onecopy_bench.engine.record import Absent
from onecopy_bench.engine.tables import number
from onecopy_bench.scenarios import open as summary
from onecopy_bench.scenarios.open import SCENARIO

COLD = ("cold", "4")


def said(record) -> str:
    return "\n".join(SCENARIO.sentences(record))


def shown(record, width: int, monkeypatch) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    monkeypatch.setattr(screen, "out", lambda: console)
    SCENARIO.show(record)
    return console.file.getvalue()


def cells_of(record, part: int) -> dict[str, tuple[str, ...]]:
    return {name.partition("\n")[0]: tuple(cells) for name, *cells in list(SCENARIO.tables(record))[part].rows}


def test_times_are_those_of_the_slowest_process_and_memory_that_of_all(record_of):
    record = record_of()
    assert summary.resident(record, "copy", COLD).median == pytest.approx(400)
    assert summary.opening(record, "copy", COLD).median == pytest.approx(40)
    assert summary.pss(record, "copy", COLD).median == summary.private(record, "copy", COLD).median == 4 * 91
    assert summary.peak(record, "copy", COLD).median == 4 * 91
    assert summary.gib_per_s(record, "copy", COLD).median == pytest.approx(90_990_000 / 2**30 / 0.4)
    assert summary.resident(record, "empty", COLD) is summary.gib_per_s(record, "empty", COLD) is None


def test_a_table_has_the_fastest_row_first_and_what_it_costs_beside_ours(record_of):
    times, memory = cells_of(record_of(), 0), cells_of(record_of(), 1)
    assert list(times) == ["map+warm", "map", "numpy.memmap", "copy", "empty"]
    assert [times[name][1] for name in ("map+warm", "numpy.memmap", "copy")] == ["1", "1.25", "10"]
    assert memory["map+warm"] == ("92", "0.5", "0.5", "0")
    assert cells_of(record_of(), 2)["map"] == ("-", "4", "40")


def test_no_ratio_of_a_copy_is_told_where_fresh_memory_is_slow(record_of, change):
    assert "to other machines" not in said(record_of())
    record = record_of(touch_ms=100.0)
    assert cells_of(record, 0)["copy"][1] == "-"
    assert cells_of(record, 0)["numpy.memmap"][1] == "1.25"
    assert "First touch of fresh anonymous memory: 1.0 (1.0-1.0) GB/s for first-touch-4k" in said(record)
    assert "do not transfer to other machines, and no ratio of them is claimed here" in said(record)
    quick = change(record, lambda s: s.row == "copy", processes={"resident_ns": 1_000_000})
    rival = [replace(sample, row="rival") for sample in quick.samples if sample.row == "copy"]
    slow = replace(
        record, rows=(*record.rows, replace(record.rows[0], name="rival")), samples=(*record.samples, *rival)
    )
    assert "rival (it copies, and no ratio is claimed here)" in said(slow)
    unknown = replace(record, samples=tuple(s for s in record.samples if not s.row.startswith("first-touch")))
    assert "Without a control" in said(unknown)


def test_a_file_held_once_is_said_in_one_plain_sentence(record_of, change):
    once = "4 processes hold 91 MB once instead of 4 times: 92 MB in total (PSS minus 4 empty interpreters)"
    assert f"{once} against 364 MB for copies." in said(record_of())
    twice = said(record_of(pss=182.0))
    assert "4 processes hold 91 MB 2.00 times, not once: 182 MB in total" in twice
    assert "instead of" not in twice
    alone = said(record_of(n=1))
    assert "1 process holds the 91 MB in the page cache, where others can share them, and 0.5 MB of its own" in alone
    failed = change(record_of(), lambda s: s.row == "copy", state="skipped", reason="x")
    assert f"{once}.\n" in said(failed)
    small = replace(record_of(pss=0.4), data={**record_of().data, "size": 350_000})
    assert "4 processes hold 0.35 MB 1.14 times, not once: 0.4 MB in total" in said(small)


def test_failed_samples_touch_no_number_and_are_told_with_their_reason(record_of, change, monkeypatch):
    failed = change(record_of(), lambda s: s.row == "map", state="crashed", reason="SIGBUS")
    assert "hold" not in said(failed)
    assert "map: crashed (cold, 4): SIGBUS." in said(failed)
    assert cells_of(failed, 0)["map"][0] == "crashed"
    nothing = change(record_of(), lambda _: True, state="crashed", reason="SIGBUS", processes={})
    assert "SIGBUS" in shown(nothing, 80, monkeypatch)


def test_who_is_ahead_of_ours_is_told_with_how_much(record_of, change):
    assert "no row is more than 5% ahead of map+warm." in said(record_of())
    close = change(record_of(), lambda s: s.row == "numpy.memmap", processes={"resident_ns": 39_000_000})
    assert "no row is more than" in said(close)  # 39 against 40 ms
    quick = change(record_of(), lambda s: s.row == "numpy.memmap", processes={"resident_ns": 20_000_000})
    assert "AHEAD of map+warm by more than 5%: numpy.memmap (0.50 of our time)." in said(quick)


def test_a_state_of_the_cache_that_was_not_reached_is_told(record_of, change):
    assert "Cold: the kernel counted 0 cached bytes of the file before each of 35 samples." in said(record_of())
    half = change(record_of(), lambda s: s.row == "map", numbers={"cached_before": 45_500_000})
    assert "NOT cold: up to 45.5 of 91.0 MB were still cached before 7 of 35 samples." in said(half)
    assert "NOT warm: as little as 0.0 of 91.0 MB was cached before 35 of 35" in said(record_of(cache="warm"))
    full = change(record_of(cache="warm"), lambda _: True, numbers={"cached_before": 91_000_000})
    assert "Warm: the whole file was cached" in said(full)
    bigger = tuple(replace(row, size=95_000_000) if row.name == "map" else row for row in full.rows)
    assert "NOT warm: as little as 91.0 of 95.0 MB was cached before 7 of" in said(replace(full, rows=bigger))
    unknown = change(record_of(), lambda s: s.round == 0, numbers={"cached_before": None})
    assert "It is unknown what was cached before 5 of 35 samples." in said(unknown)


def test_what_limits_a_run_is_told(record_of, change):
    noisy = change(record_of(rounds=2), lambda s: s.row == "copy", idle_share=0.5)
    assert "2 of 20 samples were not known to be taken on an idle machine" in said(noisy)
    assert "2 rounds: a published number needs 7." in said(noisy)
    assert "published" not in said(record_of())
    assert "agree with a plain read of the file: 6 rows" in said(record_of())
    wrong = change(record_of(), lambda s: s.row == "map", state="wrong data", reason="0x1, 0x2")
    assert "agree" not in said(wrong)
    lost = replace(record_of(), absent=(Absent("a", "not installed: x"),))
    assert "a: not installed: x." in said(lost)
    assert list(SCENARIO.tables(lost))[-1].rows[0][0] == "o_direct-fresh-1"


@pytest.mark.parametrize("width", [20, 80, 200])
def test_every_number_is_there_in_full_at_any_width(record_of, width, monkeypatch):
    record = record_of(touch_ms=100.0)
    text = shown(record, width, monkeypatch)
    numbers = set(re.findall(r"[\d.]+", text))
    for name in summary.names_of(record):
        for compute in (summary.resident, summary.opening, summary.pss, summary.private):
            spread = compute(record, name, COLD)
            assert spread is None or number(spread.median) in numbers
    assert "…" not in text
    assert widest_of_tables(text) <= max(width, 80)
    brief = replace(record, options=record.options | {"brief": True})
    assert "once instead of" in shown(brief, width, monkeypatch).replace("\n", " ")


def test_words_of_a_record_are_shown_and_not_obeyed(record_of, monkeypatch):
    record = record_of()
    rows = (replace(record.rows[0], detail="a|b<script>\n\x1b[2J`"), *record.rows[1:])
    odd = replace(record, rows=rows, data={**record.data, "file": "x](http://a)\n# y"})
    page = SCENARIO.page(replace(odd, machine={"read_ahead_bytes": 8 << 20}))
    assert "read-ahead 8192 KiB" in page
    assert "a\\|b\\<script>" in page
    assert "\x1b" not in page + shown(odd, 80, monkeypatch)
    assert "\n# y" not in page


def test_what_draws_and_writes_pages_is_imported_when_it_is_needed_and_not_before():
    code = "import sys, onecopy_bench.cli; print(*{'matplotlib', 'jinja2'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() == []
