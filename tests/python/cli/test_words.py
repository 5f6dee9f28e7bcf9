"""Sizes, shares and names in words."""

import unicodedata

import pytest
from hypothesis import example, given, strategies as st

from onecopy.base import text as words
from onecopy.cli.hold import sentence
from onecopy.cli.options import parse_duration
from onecopy.cli.screen import duration, share
from onecopy.run.holder import Change


@given(st.text())
def test_plain_text_moves_no_cursor_and_hides_nothing(text):
    shown = words.escape(text)
    assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in shown)
    assert shown.encode().decode() == shown
    if text.isascii() and text.isprintable():
        assert shown == text


def test_escape_sequences_direction_marks_and_lone_surrogates_become_visible():
    for text in ("a\x1b[2Jb", "a\u202eb\u200b", "\udcff\r\n\t"):
        assert words.escape(text) == repr(text)[1:-1]
    assert words.escape("größe [bold] 模型") == "größe [bold] 模型"


@given(st.floats(1e-3, 1e12))
def test_a_number_keeps_three_digits_and_all_before_the_point(value):
    shown = words.significant(value)
    assert float(shown) == pytest.approx(value, rel=6e-3, abs=6e-4)
    assert "e" not in shown


@given(st.integers(0, 10**17))
def test_a_size_is_near_the_bytes_it_stands_for(nbytes):
    number, unit = words.size(nbytes).split()
    factor = 1000 ** ["B", "kB", "MB", "GB", "TB", "PB"].index(unit)
    assert float(number) * factor == pytest.approx(nbytes, rel=6e-3)
    assert nbytes < 1000 or float(number) < 1000 or unit == "PB"


@given(st.integers(0, 10**6), st.integers(1, 10**6))
@example(999, 1000)
@example(1, 1000)
def test_a_share_is_0_or_100_percent_only_when_it_is_so(part, whole):
    shown = share(part, whole)
    assert (shown == "0 %") == (part == 0)
    assert (shown == "100 %") == (part >= whole)
    assert share(None, whole) == "?"


def test_a_duration_has_at_least_two_of_its_unit():
    assert [duration(s) for s in (0.4, 90, 150, 40 * 3600, 30 * 86400)] == ["0 s", "90 s", "2 min", "40 h", "4 w"]


SIZES = {"2GiB": 2**31, "2gib": 2**31, "1.5 MB": 1_500_000, "7": 7, "7b": 7, "1TiB": 2**40}


def test_a_size_is_read_as_it_is_written_and_anything_else_is_refused():
    assert {text: words.parse_size(text) for text in SIZES} == SIZES
    for text in ("", "GiB", "-1", "1 2", "1e9", "2 GiBs", "0x10", "nan", "1k"):
        with pytest.raises(ValueError, match="is not a size such as"):
            words.parse_size(text)
    for text in ("d", "1 y", "-1d", ""):
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(text)


CHANGES = {
    "a.bin: warmed: 4.00 MB of 4.00 MB in memory, 1.00 MB read": Change(
        "a.bin", "warmed", "read back", 4_000_000, 4_000_000, 4_000_000, 0, 1_000_000
    ),
    "a.bin: truncated from 9 to 5 bytes; released until it stops changing": Change(
        "a.bin", "lost", "truncated from 9 to 5 bytes", 0, 0, 0, 0
    ),
    "model=a.bin: Permission denied; generation 2 is kept": Change(
        "a.bin", "kept", "Permission denied", 9, 9, 9, 0, name="model", generation=2
    ),
}


def test_a_change_of_a_held_file_is_one_line():
    assert {sentence(change): change for change in CHANGES.values()} == CHANGES
