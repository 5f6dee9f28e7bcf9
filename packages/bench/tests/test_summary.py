"""Rows: medians, extremes, the slowest of N, sums, and ratios to the first row."""

from dataclasses import replace

import pytest

from onecopy_bench.engine.tables import Spread
from onecopy_bench.scenarios.open import summary
from onecopy_bench.scenarios.open.summary import cases_of


def rows(record, role="row"):
    return {line.name: line for line in summary.lines_of(cases_of(record)[0], role)}


def case_of(record):
    return cases_of(record)[0]


def with_samples(record, change):
    return replace(record, samples=tuple(filter(None, map(change, record.samples))))


def test_a_spread_is_median_smallest_and_largest_and_of_nothing_there_is_none():
    assert Spread.of([3, 1, 2, 10]) == Spread(2.5, 1, 10)
    assert Spread.of([]) is None


def test_times_are_those_of_the_slowest_process_and_memory_that_of_all(record_of):
    row = rows(record_of())["copy"]
    assert row.median("resident_ms") == pytest.approx(400)
    assert row.median("open_ms") == pytest.approx(40)
    assert row.median("pss_mb") == pytest.approx(4 * (91 + 5))
    assert row.median("anonymous_mb") == pytest.approx(4 * (91 + 4))
    assert row.median("peak_anonymous_mb") == pytest.approx(4 * (91 + 4))
    assert row.median("pss_above_empty_mb") == pytest.approx(4 * 91)
    assert row.median("gib_per_s") == pytest.approx(90_990_000 / 2**30 / 0.4)


def test_everything_is_relative_to_the_first_row(record_of):
    table = rows(record_of())
    assert set(table["copy"].relative.values()) == {1.0}
    assert table["map+warm"].relative["resident_ms"] == pytest.approx(0.1)
    assert table["map+warm"].relative["gib_per_s"] == pytest.approx(10)
    assert table["map"].relative["pss_mb"] == pytest.approx((92 + 20) / (364 + 20))


def test_what_loads_nothing_has_memory_and_no_time(record_of):
    row = rows(record_of())["empty"]
    assert row.median("open_ms") is row.median("gib_per_s") is None
    assert row.median("pss_mb") == pytest.approx(20)


def test_failed_samples_are_counted_by_state_and_do_not_touch_the_numbers(record_of):
    def spoil(sample):
        if sample.row != "map" or sample.round > 2:
            return sample
        state, reason = ("timeout", "slow") if sample.round < 2 else ("crashed", "SIGBUS")
        return replace(sample, state=state, reason=reason, processes=())

    row = rows(with_samples(record_of(), spoil))["map"]
    assert row.good == 4
    assert [(f.state, f.reason, f.times) for f in row.failures] == [
        ("timeout", "slow", 2),
        ("crashed", "SIGBUS", 1),
    ]
    assert row.median("resident_ms") == pytest.approx(41)


def test_without_a_good_first_row_nothing_is_relative(record_of):
    def spoil(sample):
        broken = sample.row == "copy"
        return replace(sample, state="skipped", reason="too big", processes=()) if broken else sample

    table = rows(with_samples(record_of(), spoil))
    assert table["copy"].values == {}
    assert table["map"].relative == {}
    assert table["map"].median("resident_ms") == pytest.approx(41)


def test_ratios_pair_the_samples_of_one_round(record_of):
    def slow_down_round_3(sample):
        if sample.round != 3:
            return sample
        slower = tuple({**each, "resident_ns": each["resident_ns"] * 10} for each in sample.processes)
        return replace(sample, processes=slower)

    ratio = summary.paired_ratio(case_of(with_samples(record_of(), slow_down_round_3)), "map+warm", "numpy.memmap")
    assert ratio is not None
    spread, pairs = ratio
    assert pairs == 7
    assert (spread.low, spread.median, spread.high) == pytest.approx((0.8, 0.8, 0.8))


def test_a_round_with_one_failure_is_no_pair(record_of):
    def spoil(sample):
        lost = (sample.row, sample.round) in {("map+warm", 1), ("numpy.memmap", 2)}
        return replace(sample, state="timeout", processes=()) if lost else sample

    ratio = summary.paired_ratio(case_of(with_samples(record_of(), spoil)), "map+warm", "numpy.memmap")
    assert ratio is not None
    assert ratio[1] == 5
    assert summary.paired_ratio(case_of(record_of()), "map+warm", "nothing") is None


def test_the_best_ceiling_is_the_one_with_the_shortest_median(record_of):
    assert summary.best_ceiling(case_of(record_of()), "fresh") == "o_direct-fresh-4"
    assert summary.best_ceiling(case_of(record_of()), "reused") == "o_direct-reused-4"
    assert summary.best_ceiling(case_of(with_samples(record_of(), lambda _: None)), "fresh") is None


def test_the_control_is_the_rate_of_touching_alone(record_of):
    rates = summary.touch_rates(record_of(touch_ms=100.0))
    assert rates["first-touch-4k"].median == pytest.approx(91e6 / 0.09 / 1e9)  # a tenth of it was opening
