"""Tables of the command line never lose a digit, whatever the width; and progress without a terminal."""

import io

import pytest
from rich.console import Console

from onecopy.cli import ls, screen


def console(width: int, **settings) -> Console:
    return Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False, **settings)


def text_of(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def line_of(name: str, nbytes: int = 3_145_728, cached: int | None = 3_145_728) -> ls.Line:
    return ls.Line(name, "F32", (1024, 768), "a", offset=4096, nbytes=nbytes, alignment=4096, cached=cached)


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
    grid = screen.Grid("a >b", [("模型", "1")])
    assert grid.needed() == 4 + screen.GAP + 1


def test_alignment_is_the_largest_power_of_two_up_to_a_huge_page():
    assert [ls.alignment_of(n) for n in (8, 24, 64, 4096, 3 * 2**21, 2**30)] == [8, 8, 64, 4096, 2**21, 2**21]


@pytest.mark.parametrize(
    ("seconds", "lines"), [(0.0, ["onecopy: warm: 25 %", "onecopy: verify [b]: 75 %"]), (30.0, [])]
)
def test_long_work_alone_prints_its_progress_without_a_terminal(monkeypatch, seconds, lines):
    monkeypatch.setattr(screen, "SECONDS_BETWEEN_LINES", seconds)
    log = console(80)
    with screen.progress_bar(log) as bar:
        task = bar.add_task("warm", total=None)
        for completed in (0, 2):
            bar.update(task, completed=completed, total=8)
        bar.update(task, description="verify [b]", completed=6)
    assert text_of(log).splitlines() == lines
