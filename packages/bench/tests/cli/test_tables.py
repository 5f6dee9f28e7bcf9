"""Tables never lose a digit, whatever the width."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from tests.support.screens import widest_of_tables

from onecopy.cli import ls, screen
from onecopy.cli.words import significant
from onecopy_bench.scenarios.open import summary
from onecopy_bench.scenarios.open import terminal as bench_tables


def console(width: int, **settings) -> Console:
    return Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False, **settings)


def text_of(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def shown(record, width: int) -> str:
    target = console(width)
    bench_tables.show(target, record)
    return text_of(target)


@pytest.mark.parametrize("width", [20, 40, 79, 80, 100, 140, 200, 300])
def test_every_number_of_a_benchmark_is_there_in_full_at_any_width(record, width):
    text = shown(record, width)
    numbers = set(re.findall(r"[\d.]+", text))
    for row in summary.lines_of(summary.cases_of(record)[0]):
        for column in bench_tables.COLUMNS:
            if column in row.values:
                assert significant(row.values[column].median) in numbers
        for column in bench_tables.WITH_EXTREMES:
            if column in row.values:
                spread = row.values[column]
                assert f"{significant(spread.low)}-{significant(spread.high)}" in text
    assert "…" not in text


def test_at_80_columns_no_line_of_a_table_is_longer(record):
    assert widest_of_tables(shown(record, 80)) <= 80


def test_where_there_is_room_each_row_is_one_line(record):
    lines = shown(record, 200).splitlines()
    copy, kernel = [line for line in lines if line.startswith("copy ")]
    assert "open(mode='copy')" in copy
    assert copy.count("1.00x") == 7  # all columns but the one of huge pages: there are none
    assert "x" not in kernel  # what the kernel counted is not compared


def test_all_rows_are_named_with_the_call_they_measure(record):
    text = shown(record, 80)
    for entry in record.rows:
        if entry.role == "row":
            assert f"\n{entry.name} " in text
            assert entry.detail in text


def test_ratios_of_times_carry_a_star_where_they_do_not_transfer(record):
    assert "1.00x*" in shown(record, 80)
    assert "do not transfer" in shown(record, 80)
    unknown = replace(record, samples=tuple(s for s in record.samples if s.row != "first-touch-4k"))
    assert "1.00x*" in shown(unknown, 80)
    assert "Without a control" in shown(unknown, 80)
    (slow,) = (s for s in record.samples if s.row == "first-touch-4k")
    quick = replace(slow, processes=({**slow.processes[0], "resident_ns": 1000},))
    assert "*" not in shown(replace(unknown, samples=(*unknown.samples, quick)), 80)


def test_a_row_that_failed_says_so_in_its_place_and_why_below(record):
    samples = tuple(
        replace(s, state="timeout", reason="2 of 4 processes", processes=()) if s.row == "map" else s
        for s in record.samples
    )
    text = shown(replace(record, samples=samples), 80)
    assert "timeout: 3 of 3" in text
    assert "map: 3 of 3 samples timeout (2 of 4 processes)." in text.replace("\n", " ").replace("  ", " ")


def test_a_run_without_any_good_sample_can_be_shown(record):
    samples = tuple(replace(s, state="crashed", reason="SIGBUS", processes=()) for s in record.samples)
    for width in (80, 200):
        assert "SIGBUS" in shown(replace(record, samples=samples), width)


def test_hostile_names_in_a_record_stay_on_their_line(record):
    entries = (replace(record.rows[0], detail="a\x1b[2J\nb[bold]c"), *record.rows[1:])
    text = shown(replace(record, rows=entries), 80)
    assert "\x1b" not in text
    assert r"a\x1b[2J\nb[bold]c" in text


def test_an_output_without_a_terminal_has_no_colour(record):
    assert "\x1b" not in shown(record, 80)


def test_ceilings_stand_by_their_threads(record):
    lines = shown(record, 80).splitlines()
    assert [line.split()[0] for line in lines if re.match(r" +[1248] ", line)] == ["1", "2", "4", "8"]


def line_of(name: str, **more) -> ls.Line:
    settings = {
        "dtype": "F32",
        "shape": (1024, 768),
        "file": "a",
        "offset": 4096,
        "nbytes": 3_145_728,
        "alignment": 4096,
    }
    return ls.Line(name=name, **(settings | {"cached": 3_145_728} | more))


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_long_name_folds_and_every_number_stays(width):
    grid = ls.grid_of([line_of("layer." * 60), line_of("b", nbytes=999, cached=None)])
    target = console(width)
    grid.show(target)
    text = text_of(target)
    for number in ("3.15 MB", "999 B", "4096", "100 %", "?"):
        assert number in text
    folded = text[text.index("layer") : text.index("\nb ")].splitlines()
    assert "".join(line.partition("  ")[0] for line in folded) == "layer." * 60
    assert target.width == width


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "[red]a[/red]", "a\nb", "\u202eevil", "", ":smile:", "\udcff"])
def test_a_hostile_name_is_shown_and_not_obeyed(name):
    grid = ls.grid_of([line_of(name)])
    target = console(80, force_terminal=True, color_system=None)
    grid.show(target)
    text = text_of(target)
    assert len(text.splitlines()) == 2
    assert ls.escape(name) in text
    assert "\x1b]" not in text
    assert "\u202e" not in text


def test_wide_characters_count_double():
    grid = screen.Grid((screen.Column("a"), screen.Column("b", right=True)), [("模型", "1")])
    assert grid.needed() == 4 + screen.GAP + 1


def test_alignment_is_the_largest_power_of_two_up_to_a_huge_page():
    assert [ls.alignment_of(n) for n in (8, 24, 64, 4096, 3 * 2**21, 2**30)] == [8, 8, 64, 4096, 2**21, 2**21]
