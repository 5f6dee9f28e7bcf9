"""Who wins where: verdicts, tables and Markdown from a record, and one real run."""

import dataclasses
import importlib.util
import json
import sys

import pytest
from tests.support.places import ROOT

from onecopy_bench.passes import picture, winners
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.passes.series import Entry, Options, Place, Series, Taken, from_json, notes_of, to_json
from onecopy_bench.scenarios import crossover

MB = 1_000_000


def taken(method: str, ms: tuple[float, ...], number: int = 0, share: float = 0.5, **more) -> Taken:
    settings = {"state": "ok", "started": "2026", "idle_share": 0.99, "cached_before": 0}
    settings |= {"pss": 50 * MB, "read_bytes": 12_345_678}
    ends = tuple(round(value * 1e6) for value in ms)
    return Taken("disk", method, "shuffled", share, number, passes_ns=ends, **(settings | more))


def record_of(*samples: Taken, passes: int = 2, **more) -> Series:
    entries = tuple(Entry(name, "as called", "row", uses_cache=True) for name in ("copy", "map", "warm", "small"))
    options = Options(passes=passes, shares=(0.5,), orders=("shuffled",))
    place = Place("disk", "where the file is", 100 * MB, 128 << 10)
    whole = {"places": (place,), "missing": {}, "entries": entries} | more
    return Series(
        "crossover", "2026-01-01T", {"cpu": "a", "cores": 2}, "f", 100 * MB, options, samples=samples, **whole
    )


def test_the_fastest_median_wins_and_its_margin_is_to_the_next():
    record = record_of(
        *(taken("map", (ms, 2 * ms), i) for i, ms in enumerate((10, 11, 90))),
        *(taken("copy", (ms, ms + 1), i) for i, ms in enumerate((22, 22, 22))),
    )
    first, second = winners.verdicts_of(record)
    assert (first.winners, first.margin, first.copy_ratio) == (("map",), 2.0, 2.0)
    assert (second.winners, second.copy_ratio) == (("map",), pytest.approx(23 / 22)) or second.winners == (
        "map",
        "copy",
    )
    assert winners.winner_text(first) == "map\n11 ms\ncopy +100 %"


def test_within_five_percent_is_a_tie_and_beyond_it_is_not():
    verdict = winners.verdicts_of(
        record_of(taken("map", (100.0,)), taken("warm", (105.0,)), taken("small", (105.1,)), taken("copy", (300.0,)))
    )[0]
    assert verdict.winners == ("map", "warm")
    assert verdict.margin == pytest.approx(1.051)
    assert winners.winner_text(verdict) == "map = warm\n100 ms\nsmall +5 %\ncopy +200 %"


def test_a_copy_that_wins_is_named_and_its_ratio_is_below_one():
    verdict = winners.verdicts_of(record_of(taken("map", (100.0,)), taken("copy", (50.0,))))[0]
    assert verdict.winners == ("copy",)
    assert verdict.copy_ratio == 0.5


def test_a_method_that_did_not_get_so_far_is_not_judged():
    one, two = winners.verdicts_of(record_of(taken("map", (10.0,), cut_short=True), taken("copy", (30.0, 31.0))))
    assert one.winners == ("map",)
    assert two.winners == ("copy",)
    assert winners.winner_text(winners.verdicts_of(record_of(taken("map", ())))[0]) == "none got so far"


def test_a_method_that_was_killed_does_not_win_and_the_notes_say_why():
    record = record_of(
        taken("map", (10.0, 20.0)),
        taken("copy", (), state="crashed", reason="killed by the kernel: out of memory at 1 MB"),
    )
    (verdict, _) = winners.verdicts_of(record)
    assert (verdict.winners, verdict.lost) == (("map",), {"copy": "killed"})
    assert winners.winner_text(verdict) == "map\n10 ms\ncopy killed"
    assert "disk, copy: crashed, 1 of 1 samples: killed by the kernel: out of memory at 1 MB." in notes_of(record)
    held, read = winners.cost_tables(record)
    assert {("copy", "killed"), ("map", "0 / 50"), ("warm", "-")} <= set(held.rows)
    assert {("copy", "killed"), ("map", "12.3"), ("warm", "-")} <= set(read.rows)


def test_passes_are_judged_at_one_two_eight_and_so_on_up_to_the_last():
    judged = [winners.passes_of(record_of(passes=number)) for number in (1, 2, 5, 32)]
    assert judged == [(1,), (1, 2), (1, 2, 5), (1, 2, 8, 32)]


def test_a_throttle_that_does_not_act_is_told():
    place = Place("disk", "slow", 100 * MB, None, device_bytes_per_s=100 * MB)
    device = Entry("o_direct-reused-4", "", "ceiling", uses_cache=False)
    sample = dataclasses.replace(taken("o_direct-reused-4", ()), open_ns=10**8)
    record = record_of(sample, places=(place,), entries=(device,), missing={"tight": "no controller"})
    assert (
        "disk: THE THROTTLE DOES NOT ACT: the limit is 100 MB/s, after the 0.1 s that the kernel lets through."
        in notes_of(record)
    )
    assert "tight: not measured: no controller." in notes_of(record)
    honest = dataclasses.replace(record, samples=(dataclasses.replace(sample, open_ns=10**9),))
    assert "THROTTLE" not in " ".join(notes_of(honest))


def test_the_block_of_a_page_is_replaced_and_only_that():
    record = record_of(taken("map", (10.0, 20.0)), taken("copy", (30.0, 31.0)))
    block = winners.to_markdown(record)
    page = f"before\n{winners.BEGIN}\nold\n{winners.END}\nafter\n"
    assert winners.filled(page, block) == f"before\n{block}\nafter\n"
    assert winners.filled(winners.filled(page, block), block) == winners.filled(page, block)
    assert "| 50 % | map<br>10 ms<br>copy +200 % | map<br>20 ms<br>copy +55 % |" in block


@pytest.mark.parametrize("page", ["", winners.BEGIN, winners.END + winners.BEGIN, 2 * (winners.BEGIN + winners.END)])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(ValueError, match="the page needs one"):
        winners.filled(page, "block")


def test_the_tool_fills_the_page_from_a_record(tmp_path, python):
    record, page = tmp_path / "r.json", tmp_path / "page.md"
    record.write_text(to_json(record_of(taken("map", (10.0, 20.0)))))
    page.write_text(f"# Title\n{winners.BEGIN}\n{winners.END}\n")
    tool = ROOT / "tools/fill_tables.py"
    run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    python(run, tool, record, page)
    assert "map<br>10 ms" in page.read_text()
    assert page.read_text().startswith("# Title\n")


def test_the_picture_names_the_winners(tmp_path):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed: pip install 'onecopy-bench[plots]'")
    record = record_of(taken("map", (10.0, 20.0)), taken("copy", (30.0, 31.0)))
    picture.draw(record, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    picture.draw(record, tmp_path / "out.svg")
    drawn = (tmp_path / "out.svg").read_text()
    for words in (">map<", "10 ms, copy x3", "20 ms, copy x1.6", "disk: in random order", "Fresh memory is slow here"):
        assert words in drawn


@pytest.mark.processes
@pytest.mark.slow
def test_every_place_that_the_machine_has_is_measured_and_a_killed_copy_is_a_row(cold_file):
    path = cold_file(24_000_000)
    options = Options(rounds=1, passes=2, shares=(0.02, 1.0), orders=("shuffled",), idle_wait=0)
    found = crossover.run(path, options, methods=("copy", "map", "part"), throttle=crossover.Throttle(size=4_000_000))
    assert {p.name for p in found.places} | found.missing.keys() == set(crossover.PLACES)
    good = [s for s in found.samples if s.place != "tight"]
    assert {s.reason for s in good if s.state != "ok"} == set()
    assert {s.place for s in found.samples if s.method == "first-touch-4k"} == {"disk"}
    assert {s.share for s in found.samples if s.method == "part"} == {0.02}
    if "slow" not in found.missing:
        assert {s.method for s in found.samples if s.place == "slow"} >= {"copy", "map", "o_direct-reused-4"}
    if "tight" not in found.missing:
        (copied, again), mapped = found.of("copy", "tight"), found.of("map", "tight")
        assert copied.state == again.state == "crashed"
        assert "out of memory at the limit of 12.0 MB" in copied.reason
        assert {s.state for s in mapped} == {"ok"}
    assert from_json(to_json(found, **winners.computed(found))) == found
    json.dumps(winners.computed(found))


def test_without_any_place_there_is_a_reason(cold_file, monkeypatch):
    def refuse(*_):
        raise Unavailable("a loop device needs root")

    monkeypatch.setattr(crossover.disks, "loop_disk", refuse)
    with pytest.raises(Unavailable, match="slow: a loop device needs root"):
        crossover.run(cold_file(1_000_000), places=("slow",))


def test_matplotlib_is_loaded_by_the_picture_alone(python):
    python("import sys, onecopy_bench.cli.group; assert 'matplotlib' not in sys.modules")
    assert "onecopy_bench" in sys.modules
