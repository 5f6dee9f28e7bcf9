"""What a record says: only what was measured, and its limits aloud."""

from dataclasses import replace

from onecopy_bench.engine.record import Absent
from onecopy_bench.scenarios.open.sentences import sentences_of_case, sentences_of_run
from onecopy_bench.scenarios.open.summary import cases_of


def sentences_of(record):
    return (*sentences_of_case(cases_of(record)[0]), *sentences_of_run(record))


def said(record) -> str:
    return "\n".join(f"{sentence.kind}: {sentence.text}" for sentence in sentences_of(record))


def test_a_file_held_once_is_said_in_one_plain_sentence(record_of):
    assert (
        "finding: 4 processes hold 91 MB once instead of 4 times: 92 MB in total"
        " (PSS minus 4 empty interpreters) against 364 MB for copies."
    ) in said(record_of())


def test_a_file_that_is_not_held_once_is_not_said_to_be(record_of):
    text = said(record_of(pss=182.0))
    assert "4 processes hold 91 MB 2.00 times, not once: 182 MB in total" in text
    assert "instead of" not in text


def test_one_process_shares_with_nobody_and_does_not_claim_to(record_of):
    text = said(record_of(n=1))
    assert "1 process holds the 91 MB in the page cache, where others can share them, and 0.5 MB of its own" in text


def test_without_copies_there_is_nothing_to_compare_with(record_of, change):
    failed = change(record_of(), lambda s: s.row == "copy", state="skipped", reason="x")
    assert "92 MB in total (PSS minus 4 empty interpreters).\n" in said(failed)


def test_without_a_mapped_row_nothing_is_claimed(record_of, change):
    failed = change(record_of(), lambda s: s.row == "map", state="crashed", reason="SIGBUS")
    text = said(failed)
    assert "hold" not in text.split("limit:")[0]
    assert "limit: map: 7 of 7 samples crashed (SIGBUS)." in text


def test_cold_runs_tell_the_share_of_both_ceilings(record_of):
    text = said(record_of())
    assert (
        "Cold, map+warm, the slowest of 4 processes, reaches 1.19 (1.19-1.19) of the rate of O_DIRECT x 4"
        " into fresh huge-page memory when warm() returns, 0.95 (0.95-0.95) when every page has been touched"
    ) in text
    assert "reaches 0.94 (0.94-0.94) of the rate of O_DIRECT x 4 into a reused 4 MiB buffer" in text
    assert "O_DIRECT" not in said(record_of(cache="warm"))


def test_small_files_keep_their_digits(record_of):
    record = record_of(pss=0.4)
    small = replace(record, data={**record.data, "size": 350_000})
    assert "4 processes hold 0.35 MB 1.14 times, not once: 0.4 MB in total" in said(small)


def test_the_comparison_with_numpy_tells_whose_time_it_is(record_of):
    assert (
        "Cold, map+warm, the slowest of 4 processes, takes 0.80 (0.80-0.80) of the time of a plain"
        " numpy.memmap until every page has been touched, 0.64 (0.64-0.64) until warm() returns"
        " (median of 7 paired rounds)."
    ) in said(record_of())
    assert "Cold, map+warm takes" in said(record_of(n=1))


def test_slow_fresh_memory_is_a_warning_and_fast_memory_is_not(record_of):
    text = said(record_of(touch_ms=100.0))
    assert "limit: Fresh anonymous memory is touched at 1.0 GB/s here, below 3 GB/s" in text
    assert "do not transfer to other machines; megabytes do" in text
    assert "Fresh anonymous" not in said(record_of(touch_ms=10.0))


def test_an_eviction_that_did_not_work_is_not_called_cold(record_of, change):
    half = change(record_of(), lambda s: s.row == "map", numbers={"cached_before": 45_500_000})
    text = said(half)
    assert "NOT cold: up to 45.5 of 91.0 MB were still cached before 7 of 35 samples." in text
    assert "Cold: the kernel counted" not in text
    assert "Cold: the kernel counted 0 cached bytes of the file before each of 35 samples." in said(record_of())


def test_a_cache_that_was_not_full_is_not_called_warm(record_of, change):
    assert "NOT warm: as little as 0.0 of 91.0 MB was cached before 35 of 35" in said(record_of(cache="warm"))
    full = change(record_of(cache="warm"), lambda _: True, numbers={"cached_before": 91_000_000})
    assert "Warm: the whole file was cached" in said(full)


def test_an_unknown_cache_is_unknown(record_of, change):
    unknown = change(record_of(), lambda s: s.round == 0, numbers={"cached_before": None})
    assert "It is unknown what was cached before 5 of 35 samples." in said(unknown)


def test_a_busy_machine_and_few_rounds_are_told(record_of, change):
    noisy = change(record_of(rounds=2), lambda s: s.row == "copy", idle_share=0.5)
    text = said(noisy)
    assert "2 of 20 samples were taken on a machine that was not known to be 93% idle" in text
    assert "2 rounds: a published number needs 7." in text
    quiet = said(record_of())
    assert "idle" not in quiet
    assert "published" not in quiet


def test_a_checksum_that_differs_takes_the_claim_of_agreement_away(record_of, change):
    assert "agree with a plain read of the file: 6 rows" in said(record_of())
    wrong = change(record_of(), lambda s: s.row == "map", state="wrong data", reason="0x1, 0x2")
    text = said(wrong)
    assert "agree" not in text
    assert "map: 7 of 7 samples wrong data (0x1, 0x2)." in text


def test_findings_come_before_limits(record_of):
    kinds = [sentence.kind for sentence in sentences_of(record_of(rounds=1, touch_ms=500.0))]
    assert kinds == sorted(kinds)
    assert {"finding", "limit"} == set(kinds)


def test_who_is_ahead_of_ours_is_told_with_how_much(record_of, change):
    assert "Cold, no row is more than 5% ahead of map+warm." in said(record_of())
    quick = change(record_of(), lambda s: s.row == "numpy.memmap", processes={"resident_ns": 39_000_000})
    assert "no row is more than" in said(quick)  # 39 against 40 ms
    quick = change(record_of(), lambda s: s.row == "numpy.memmap", processes={"resident_ns": 20_000_000})
    assert "Cold, AHEAD of map+warm by more than 5%: numpy.memmap (0.50 of our time)." in said(quick)


def test_no_ratio_of_a_copy_is_told_where_fresh_memory_is_slow(record_of, change):
    record = record_of(touch_ms=100.0)
    quick = change(record, lambda s: s.row == "copy", processes={"resident_ns": 1_000_000})
    peer = [replace(sample, row="peer") for sample in quick.samples if sample.row == "copy"]
    slow = replace(record, rows=(*record.rows, replace(record.rows[0], name="peer")), samples=(*record.samples, *peer))
    assert "peer (it copies, and no ratio is claimed here)" in said(slow)
    assert "fresh huge-page memory" not in said(slow)


def test_rows_that_this_machine_could_not_have_are_told_with_the_reason(record_of):
    absent = (Absent("a", "not installed: x"), Absent("b", "not installed: x"), Absent("c", "no space left"))
    text = said(replace(record_of(), absent=absent))
    assert "limit: Not compared: a, b (not installed: x); c (no space left)." in text


def test_a_row_with_a_file_of_its_own_is_warm_by_the_size_of_that(record_of, change):
    warm = change(record_of(cache="warm"), lambda s: s.case[:1] == ("warm",), numbers={"cached_before": 91_000_000})
    assert "Warm: the whole file was cached" in said(warm)
    bigger = tuple(replace(row, size=95_000_000) if row.name == "map" else row for row in warm.rows)
    text = said(replace(warm, rows=bigger))
    assert "NOT warm: as little as 91.0 of 95.0 MB was cached before 7 of" in text
