"""Who wins where: verdicts, tables and Markdown from a record, and one real run."""

import pytest
from packages.bench.tests.support import WHEN, made, read_back, text_of
from tests.support.places import ROOT

from onecopy_bench.engine import pages
from onecopy_bench.engine.machine import disks
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.record import Absent, Record, Row, Sample
from onecopy_bench.scenarios.passes import crossover, winners
from onecopy_bench.scenarios.passes.cells import Options
from onecopy_bench.scenarios.passes.notes import notes_of, of

MB = 1_000_000


def taken(method: str, ms: tuple[float, ...], number: int = 0, *, cut_short=False, open_ns=0, **more) -> Sample:
    notes = {"passes_ns": [round(value * 1e6) for value in ms], "cut_short": cut_short}
    memory = {"pss": 50 * MB, "anonymous": 0, "empty_pss": 0, "empty_anonymous": 0}
    process = {"open_ns": open_ns, "resident_ns": 1, "read_bytes": 12_345_678, "notes": notes, **memory}
    good = {"started": WHEN, "idle_share": 0.99, "numbers": {"cached_before": 0}, "processes": (process,)}
    return Sample(method, ("disk", "shuffled", "0.5"), number, **(good | more))


def lost(method: str, reason: str) -> Sample:
    return taken(method, (), state="crashed", reason=reason, processes=(), started="")


PLACE = {"name": "disk", "detail": "where the file is", "size": 100 * MB, "read_ahead_bytes": 128 << 10}
PLACE |= {"device_bytes_per_s": None, "memory_bytes": None}


def record_of(
    *samples: Sample, passes: int = 2, place=PLACE, absent=(), rows=("copy", "map", "warm", "small")
) -> Record:
    every = [row if isinstance(row, Row) else Row(row, "as called") for row in rows]
    options = Options(passes=passes, shares=(0.5,), orders=("shuffled",))
    data = {"file": "f", "size": 100 * MB, "places": [place]}
    return made(
        "crossover", samples, every, options=options, data=data, absent=absent, machine={"cpu": "a", "cores": 2}
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


def test_a_method_that_did_not_get_so_far_is_not_judged():
    one, two = winners.verdicts_of(record_of(taken("map", (10.0,), cut_short=True), taken("copy", (30.0, 31.0))))
    assert one.winners == ("map",)
    assert two.winners == ("copy",)
    assert winners.winner_text(winners.verdicts_of(record_of(taken("map", ())))[0]) == "none got so far"


def test_a_method_that_was_killed_does_not_win_and_the_notes_say_why():
    record = record_of(
        taken("map", (10.0, 20.0)),
        lost("copy", "killed by the kernel: out of memory at 1 MB"),
    )
    (verdict, _) = winners.verdicts_of(record)
    assert (verdict.winners, verdict.lost) == (("map",), {"copy": "killed"})
    assert winners.winner_text(verdict) == "map\n10 ms\ncopy killed"
    assert "copy: crashed (disk, shuffled, 0.5): killed by the kernel: out of memory at 1 MB." in notes_of(record)
    held, read = winners.cost_tables(record)
    assert {("copy", "killed"), ("map", "0 / 50"), ("warm", "-")} <= set(held.rows)
    assert {("copy", "killed"), ("map", "12.3"), ("warm", "-")} <= set(read.rows)


def test_passes_are_judged_at_one_two_eight_and_so_on_up_to_the_last():
    judged = [winners.passes_of(record_of(passes=number)) for number in (1, 2, 5, 32)]
    assert judged == [(1,), (1, 2), (1, 2, 5), (1, 2, 8, 32)]


def test_a_throttle_that_does_not_act_is_told():
    slow = PLACE | {"detail": "slow", "device_bytes_per_s": 100 * MB}
    device = Row("o_direct-reused-4", role="ceiling", uses_cache=False)

    def notes(nanoseconds: int) -> tuple[str, ...]:
        sample = taken("o_direct-reused-4", (), open_ns=nanoseconds)
        return notes_of(record_of(sample, place=slow, rows=[device], absent=[Absent("tight", "no controller")]))

    words = "disk: THE THROTTLE DOES NOT ACT: the limit is 100 MB/s, after the 0.1 s that the kernel lets through."
    assert words in notes(10**8)
    assert "tight: no controller." in notes(10**8)
    assert "THROTTLE" not in " ".join(notes(10**9))


def filled(page: str, block: str) -> str:
    return pages.filled(page, block, winners.BEGIN, winners.END)


def test_the_block_of_a_page_is_replaced_and_only_that():
    record = record_of(taken("map", (10.0, 20.0)), taken("copy", (30.0, 31.0)))
    block = winners.to_markdown(record)
    page = f"before\n{winners.BEGIN}\nold\n{winners.END}\nafter\n"
    assert filled(page, block) == f"before\n{block}\nafter\n"
    assert filled(filled(page, block), block) == filled(page, block)
    assert "| 50 % | map<br>10 ms<br>copy +200 % | map<br>20 ms<br>copy +55 % |" in block


@pytest.mark.parametrize("page", ["", winners.BEGIN, winners.END + winners.BEGIN, 2 * (winners.BEGIN + winners.END)])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(ValueError, match="the page needs one"):
        filled(page, "block")


def test_the_tool_fills_the_page_from_a_record(tmp_path, python):
    record, page = tmp_path / "r.jsonl", tmp_path / "page.md"
    record.write_text(text_of(record_of(taken("map", (10.0, 20.0)))))
    page.write_text(f"# Title\n{winners.BEGIN}\n{winners.END}\n")
    tool = ROOT / "tools/fill_tables.py"
    run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    python(run, tool, record, page)
    assert "map<br>10 ms" in page.read_text()
    assert page.read_text().startswith("# Title\n")


@pytest.mark.processes
@pytest.mark.slow
def test_every_place_that_the_machine_has_is_measured_and_a_killed_copy_is_a_row(cold_file):
    path = cold_file(24_000_000)
    options = Options(rounds=1, passes=2, shares=(0.02, 1.0), orders=("shuffled",), idle_wait=0)
    found = crossover.run(path, options, methods=("copy", "map", "part"), throttle=crossover.Throttle(size=4_000_000))
    places, missing = {place["name"] for place in found.data["places"]}, {absent.name for absent in found.absent}
    assert places | missing == set(crossover.PLACES)
    assert {s.reason for s in found.samples if s.case[0] != "tight" and s.state != "ok"} == set()
    assert {s.case[0] for s in found.samples if s.row == "first-touch-4k"} == {"disk"}
    assert {s.case[2] for s in found.samples if s.row == "part"} == {"0.02"}
    if "slow" not in missing:
        assert {s.row for s in found.samples if s.case[0] == "slow"} >= {"copy", "map", "o_direct-reused-4"}
    if "tight" not in missing:
        copied, mapped = of(found, "copy", "tight"), of(found, "map", "tight")
        assert {s.state for s in copied} == {"crashed"}
        assert "out of memory at the limit of 12.0 MB" in copied[0].reason
        assert {s.state for s in mapped} == {"ok"}
    assert read_back(found) == found
    assert winners.verdicts_of(found)


def test_without_any_place_there_is_a_reason(cold_file, monkeypatch):
    def refuse(*_):
        raise Unavailable("a loop device needs root")

    monkeypatch.setattr(disks, "loop_disk", refuse)
    with pytest.raises(Unavailable, match="slow: a loop device needs root"):
        crossover.run(cold_file(1_000_000), places=("slow",))
