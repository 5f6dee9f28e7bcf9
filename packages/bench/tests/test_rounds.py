"""Rounds: interleaved, seeded, within their budget, and never more than the machine has."""

import os
from dataclasses import replace

import pytest
from packages.bench.tests.support import made

from onecopy_bench import runs
from onecopy_bench.runs import Measured, Settings, Trial
from onecopy_bench.worker import SampleError

GOOD = "go(); resident(checksum=None); sys.stdin.readline()"
QUICK = Settings(rounds=3, idle_wait=0.0, timeout=20.0)


def turns(count: int, take=lambda _: Measured({})) -> list[Trial]:
    return [Trial(f"t{i}", ("a",), 0.0, take) for i in range(count)]


def run(every: list[Trial], settings: Settings = QUICK, **more):
    return runs.run(made("x", ()), every, settings, **more)


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
    record = run(
        [*turns(1), Trial("bad", ("a",), 0, fail)], replace(QUICK, rounds=2), place=tmp_path, watch=seen.append
    )
    assert sorted((s.row, s.round, s.state) for s in record.samples) == [
        ("bad", 0, "failed"), ("bad", 1, "failed"), ("t0", 0, "ok"), ("t0", 1, "ok"),
    ]  # fmt: skip
    assert str(tmp_path) not in "".join(s.reason for s in record.samples)
    assert list(tmp_path.iterdir()) == []
    assert [(progress.done, progress.total) for progress in seen] == [(n, 4) for n in range(5)]
    assert seen[-1].next == ""


def test_a_file_that_changes_under_the_run_ends_it(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"x")

    def touch(_):
        os.utime(path, ns=(1, 1))
        return Measured({})

    with pytest.raises(RuntimeError, match="model changed while it was measured"):
        run(turns(1, touch), files=[path])


def test_a_sample_that_would_exhaust_the_machine_is_skipped(monkeypatch):
    monkeypatch.setattr(runs.page_cache, "available_memory", lambda: 7_000_000)
    one = Trial("list", ("fork", "8"), 6e6, lambda _: pytest.fail("taken all the same"))
    sample = runs.take_sample(one, 0, QUICK)
    assert sample.state == "skipped"
    assert sample.reason == "needs 6 MB of private memory, more than 80% of the available 7 MB"


@pytest.mark.processes
@pytest.mark.parametrize("state", ["cold", "warm"])
def test_before_each_sample_the_cache_is_in_the_declared_state(take, stand_in, job, state):
    sample = take(stand_in(GOOD), state=state)
    assert sample.numbers["cached_before"] == (0 if state == "cold" else job.size)


def test_idle_is_for_the_whole_run_and_then_nothing_is_known(monkeypatch):
    looks = []
    monkeypatch.setattr(runs, "_idle_share", lambda seconds: looks.append(seconds) or 0.5)
    idle = runs.IdleWait(1.0)
    assert idle.wait() == 0.5
    assert len(looks) == 5
    assert idle.wait() is None
