"""Looks over time: nothing that was highest is lost, and memory stays bounded."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from packages.monitor.tests.samples import MB, ROWS, file_sample, process, row

from onecopy_monitor import COLUMNS, Curve, FilePeak, Sample, Series, series as module
from onecopy_monitor.text_tables import series_table


@given(st.lists(ROWS, min_size=1, max_size=60), st.integers(4, 9))
def test_peaks_are_those_of_all_samples_however_many_points_are_kept(found, most):
    series = Series(max_points=most)
    for at, one in enumerate(found):
        series.add(Sample(float(at), one, (process(7, one),), ()))
    for at, name in enumerate(COLUMNS):
        height = getattr(series.peak, name)
        assert height.bytes == max(one[at] for one in found)
        assert found[int(height.at)][at] == height.bytes
        assert height.grown == height.bytes - found[0][at]
    assert len(series.total) <= most
    assert len(series.processes[0].curve) <= most


@given(st.lists(ROWS, min_size=2, max_size=60))
def test_a_thinned_curve_keeps_both_ends_and_its_highest_point(found):
    curve = Curve()
    for at, one in enumerate(found):
        curve.add(float(at), one)
    highest = max(curve.numbers("real"))
    curve.thin()
    assert curve.numbers("times")[0] == 0.0
    assert curve.numbers("times")[-1] == len(found) - 1
    assert curve.numbers("times") == sorted(curve.numbers("times"))
    assert max(curve.numbers("real")) == highest
    assert len(curve) <= len(found) // 2 + 2


def test_columns_are_numpy_arrays_of_bytes_and_copies():
    curve = Curve()
    curve.add(0.5, row(3, 4))
    column = curve["real"]
    assert column.dtype == np.int64
    column[0] = 9
    assert curve["real"].tolist() == [7]
    assert curve.times.tolist() == [0.5]
    with pytest.raises(KeyError, match="'rss' is not one of anonymous"):
        curve["rss"]


def test_processes_that_come_and_go_do_not_fill_memory(monkeypatch):
    monkeypatch.setattr(module, "MAX_PROCESSES", 10)
    series = Series()
    for at in range(200):
        big = 500 if at == 20 else 5
        high = 900 if at == 2 else big  # it held little whenever it was sampled
        series.add(Sample(float(at), row(big), (process(1, row(1)), process(at + 2, row(big), high)), ()))
    pids = [one.pid for one in series.processes]
    assert len(pids) <= 11
    assert {1, 22, 201} <= set(pids)  # who lives, who held most, who came last
    assert len(pids) + series.dropped == 201
    assert 4 not in pids
    assert (series.peak.anonymous.bytes, series.peak.high_water) == (500, 900)


def test_points_of_many_processes_are_bounded_together():
    series = Series(max_points=20)
    for at in range(100):
        series.add(Sample(float(at), row(at), tuple(process(pid, row(at)) for pid in range(1, 31)), ()))
    assert sum(len(one.curve) for one in series.processes) <= 10 * 20


def test_a_peak_names_who_held_it():
    series = Series()
    series.add(Sample(0.0, row(10), (process(1, row(10), name="a"),), ()))
    many = tuple(process(pid, row(pid), name=f"n{pid}") for pid in range(1, 7))
    series.add(Sample(1.0, row(21, 80), many, (file_sample("/big", 80, 30, 80),)))
    peak = series.peak
    assert [one.pid for one in peak.anonymous.processes] == [6, 5, 4]
    assert peak.anonymous.files == ()
    assert [(one.name, one.bytes) for one in peak.file_clean.files] == [("/big", 50)]
    assert [(one.name, one.bytes) for one in peak.sum_of_rss.files] == [("/big", 160)]


def test_a_file_has_its_highest_numbers_and_the_path_and_size_that_were_seen_last():
    series = Series()
    for at, (once, dirty, saves, sharers) in enumerate([(10, None, 3, 1), (30, 20, 9, 4), (20, 5, 1, 2)]):
        file = file_sample(f"/{at}", once, dirty, saves)._replace(size=at, sharers=sharers)
        series.add(Sample(float(at), row(), (), (file,)))
    assert series.files == (FilePeak("/2", "file", 2, 30, 20, 9, 4),)


def test_what_polling_missed_is_reported_when_the_high_water_mark_grew():
    series = Series()
    series.add(Sample(0.0, row(10), (process(1, row(10), 90),), ()))
    assert series.peak.unseen == 0  # it was before
    series.add(Sample(1.0, row(20), (process(1, row(20), 95 * MB),), ()))
    assert series.peak.unseen == 95 * MB - 20
    assert series.peak.high_water == 95 * MB
    assert "than in any sample" in series_table(series)


def test_faults_count_from_the_first_look_and_of_later_processes_from_their_beginning():
    series = Series()
    first = process(1, row())._replace(minor_faults=100, major_faults=10, cpu_s=50.0)
    series.add(Sample(0.0, row(), (first,), ()))
    later = first._replace(minor_faults=107, major_faults=12, cpu_s=50.5)
    series.add(Sample(1.0, row(), (later, process(2, row())), ()))
    old, new = series.processes
    assert (old.minor_faults, old.major_faults, old.cpu_s) == (7, 2, 0.5)
    assert (new.minor_faults, new.major_faults, new.cpu_s) == (5, 0, 0.1)


def test_nothing_seen_is_an_error_and_no_zero():
    with pytest.raises(ValueError, match="no sample has been taken"):
        _ = Series().peak
    assert Series().seconds == 0.0


def test_names_cannot_break_a_table():
    series, evil = Series(), "\x1b[2J\nname" + "x" * 100
    series.add(Sample(0.0, row(1), (process(1, row(1), name=evil),), (file_sample("/a\nb\x1b", 1),)))
    text = series_table(series)
    assert "\x1b" not in text
    assert r"\x1b[2J\nname" in text
    assert r"/a\nb\x1b" in text
    assert len(text.splitlines()) == 9 + 1 + 2 + 1 + 2


def test_many_samples_of_the_same_many_files_are_not_processed_again(monkeypatch):
    """A recording of 150 kB with thousands of files and of looks that see nothing new took 18 seconds to read."""
    looked = []
    files = tuple(file_sample(f"/{number}", 1, inode=number) for number in range(500))
    monkeypatch.setattr(Series, "_add_file", lambda _, file: looked.append(file))
    monkeypatch.setattr("onecopy_monitor.series._height", lambda *arguments: looked.append(arguments))
    series = Series()
    for at in range(1000):
        series.add(Sample(float(at), row(0), (), files))
    assert len(looked) == len(files)
