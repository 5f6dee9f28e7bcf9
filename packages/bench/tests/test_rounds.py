"""Rounds: interleaved, seeded, within their budget, and never more than the machine has."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from packages.bench.tests.support import made

from onecopy_bench.engine import memory, rounds
from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.rounds import Patience, Settings, Taken, Turn
from onecopy_bench.scenarios import open as opening
from onecopy_bench.scenarios.open import Options

GOOD = "go(); resident(checksum=None); sys.stdin.readline()"
QUICK = Settings(rounds=3, idle_wait=0.0, timeout=20.0)


def turns(count: int, take=lambda _: Taken({}), **more) -> list[Turn]:
    return [Turn(f"t{i}", ("a",), 0.0, take, **more) for i in range(count)]


def run(every: list[Turn], settings: Settings = QUICK, **more):
    return rounds.run(made("x", ()), every, settings, **more)


def order(record) -> list[tuple[int, str]]:
    return [(sample.round, sample.row) for sample in record.samples]


def test_every_round_holds_every_turn_once_and_orders_differ():
    settings = replace(QUICK, rounds=9)
    found = order(run(turns(6), settings))
    each = [tuple(row for n, row in found if n == number) for number in range(9)]
    assert all(sorted(one) == [f"t{i}" for i in range(6)] for one in each)
    assert len(set(each)) > 1
    assert found == order(run(turns(6), settings)) != order(run(turns(6), replace(settings, seed=5)))


def test_a_run_goes_on_after_a_failure_and_tells_its_progress(tmp_path):
    def fail(attempt):
        raise SampleError("failed", f"no {attempt.folder()}/x")

    seen = []
    record = run([*turns(1), Turn("bad", ("a",), 0, fail)], replace(QUICK, rounds=2), place=tmp_path, watch=seen.append)
    assert sorted((s.row, s.round, s.state) for s in record.samples) == [
        ("bad", 0, "failed"), ("bad", 1, "failed"), ("t0", 0, "ok"), ("t0", 1, "ok"),
    ]  # fmt: skip
    assert str(tmp_path) not in "".join(s.reason for s in record.samples)
    assert list(tmp_path.iterdir()) == []
    assert [(progress.done, progress.total) for progress in seen] == [(n, 4) for n in range(5)]
    assert seen[-1].next == ""


def test_no_reason_names_the_folder_of_what_is_measured(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"x")

    def fail(_):
        raise SampleError("failed", f"cannot read {path}")

    record = run(turns(1, fail), files=[path])
    assert {sample.reason for sample in record.samples} == {"cannot read /model"}


def test_a_turn_that_does_not_end_is_taken_once_and_the_others_in_every_round():
    seen = []
    record = run([*turns(1, last=lambda _: True), Turn("more", (), 0, lambda _: Taken({}))], watch=seen.append)
    assert [row for _, row in order(record)].count("t0") == 1
    assert [row for _, row in order(record)].count("more") == 3
    assert (seen[-1].done, seen[-1].total) == (4, 4)


def test_a_file_that_changes_under_the_run_ends_it(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"x")

    def touch(_):
        os.utime(path, ns=(1, 1))
        return Taken({})

    with pytest.raises(RuntimeError, match="model changed while it was measured"):
        run(turns(1, touch), files=[path])


def test_a_sample_that_would_exhaust_the_machine_is_skipped(monkeypatch):
    monkeypatch.setattr(memory.page_cache, "available_memory", lambda: 7_000_000)
    one = Turn("list", ("fork", "8"), 6e6, lambda _: pytest.fail("taken all the same"))
    sample = rounds.take(one, 0, QUICK)
    assert sample.state == "skipped"
    assert sample.reason == "needs 6 MB of private memory, 7 MB are available"


def test_each_sample_waits_within_the_budget_of_the_run(monkeypatch):
    monkeypatch.setattr(Patience, "wait", lambda _: 0.5)

    def waiting(attempt):
        attempt.begin()
        return Taken({})

    (sample,) = run(turns(1, waiting), Settings(1)).samples
    assert sample.idle_share == 0.5
    assert sample.started


@pytest.mark.processes
@pytest.mark.parametrize("state", ["cold", "warm"])
def test_before_each_sample_the_cache_is_in_the_declared_state(take, stand_in, job, state):
    sample = take(stand_in(GOOD), state=state)
    assert sample.numbers["cached_before"] == (0 if state == "cold" else job.size)


@pytest.mark.processes
def test_memory_is_touched_and_freed_before_a_sample_of_a_backed_run(take, stand_in, job, monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "back", asked.append)
    take(stand_in(GOOD, private=1.0), backed=True)
    take(stand_in(GOOD))
    assert asked == [3 * job.size]
    monkeypatch.undo()
    others = Path("/proc/thread-self/children").read_text()  # such as a forkserver of earlier tests
    memory.back(1 << 20)  # in a child, which is gone when it returns
    assert Path("/proc/thread-self/children").read_text() == others


@pytest.mark.processes
def test_a_run_takes_every_case_and_ceilings_in_none(model, stand_in, job):
    options = Options(rounds=1, processes=(1, 2), caches=("cold", "warm"), idle_wait=0.0)
    ceiling = replace(stand_in(GOOD, role="ceiling", uses_cache=False), name="ceiling")
    record = opening.measure((stand_in(GOOD), ceiling), (), replace(options, file=str(model)))
    found = {(s.row, s.case, len(s.processes), s.numbers.get("cached_before")) for s in record.samples}
    assert found == {
        ("stand-in", ("cold", "1"), 1, 0),
        ("stand-in", ("cold", "2"), 2, 0),
        ("stand-in", ("warm", "1"), 1, job.size),
        ("stand-in", ("warm", "2"), 2, job.size),
        ("ceiling", (), 1, None),
    }


def test_idle_is_idle_and_waiting_for_a_disk_without_guests_counted_twice():
    assert rounds.parse_cpu_times("cpu  1 2 3 40 5 6 7 8 100 200\ncpu0 1\n") == (45, 72)


def test_an_idle_machine_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(rounds, "_idle_share", lambda _: 0.99)
    patience = rounds.Patience(10)
    assert [patience.wait() for _ in range(1000)] == [0.99] * 1000


def test_patience_is_for_the_whole_run_and_then_nothing_is_known(monkeypatch):
    looks = []
    monkeypatch.setattr(rounds, "_idle_share", lambda seconds: looks.append(seconds) or 0.5)
    patience = rounds.Patience(1.0)
    assert patience.wait() == 0.5
    assert len(looks) == 5
    assert patience.wait() is None
