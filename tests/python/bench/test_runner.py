"""Rounds: interleaved, seeded, paired, and never more than the machine has."""

import json
import os
from pathlib import Path

import pytest

from onecopy import cgroup
from onecopy.bench import runner
from onecopy.bench.ceilings import CEILINGS, CONTROLS
from onecopy.bench.child import configuration_named
from onecopy.bench.configurations import ROWS, Configuration, Opened
from onecopy.bench.quiet import Patience
from onecopy.bench.record import Options

GOOD = "go(); resident(checksum=None); sys.stdin.readline()"


def entries(number: int) -> list[Configuration]:
    return [Configuration(f"c{i}", "", lambda _: Opened(None)) for i in range(number)]


def test_every_round_holds_every_configuration_once_and_orders_differ():
    orders = runner.rounds(entries(6), Options(iterations=9))
    assert len(orders) == 9
    assert all(sorted(entry.name for entry in order) == [f"c{i}" for i in range(6)] for order in orders)
    assert len({tuple(entry.name for entry in order) for order in orders}) > 1


def test_the_same_seed_gives_the_same_orders():
    first, again, other = (runner.rounds(entries(6), Options(seed=seed)) for seed in (4, 4, 5))
    assert [[e.name for e in order] for order in first] == [[e.name for e in order] for order in again]
    assert [[e.name for e in order] for order in first] != [[e.name for e in order] for order in other]


@pytest.mark.processes
def test_a_run_goes_on_after_a_failure_and_tells_its_progress(plan_of, stand_in):
    from dataclasses import replace

    bad = replace(stand_in("sys.exit(3)"), name="bad")
    seen = []
    samples = runner.run(plan_of(stand_in(GOOD), bad, iterations=2), seen.append)
    assert sorted((s.configuration, s.round, s.state) for s in samples) == [
        ("bad", 0, "failed"),
        ("bad", 1, "failed"),
        ("stand-in", 0, "ok"),
        ("stand-in", 1, "ok"),
    ]
    assert [progress.done for progress in seen] == [0, 1, 2, 3, 4]
    assert {progress.total for progress in seen} == {4}
    assert seen[-1].next == ""


@pytest.mark.processes
def test_a_file_that_changes_under_the_run_ends_it(plan_of, stand_in, model):
    body = f"go(); os.utime({str(model)!r}, ns=(1, 1)); resident(); sys.stdin.readline()"
    with pytest.raises(RuntimeError, match=r"model\.safetensors changed"):
        runner.run(plan_of(stand_in(body)))


@pytest.mark.processes
@pytest.mark.parametrize("cold", [True, False])
def test_before_each_sample_the_cache_is_in_the_declared_state(plan_of, stand_in, job, cold):
    sample = runner.take(plan_of(cold=cold), stand_in(GOOD), 0, Patience(0))
    assert sample.cached_before == (0 if cold else job.size)


@pytest.mark.processes
def test_what_does_not_use_the_cache_leaves_it_alone(plan_of, stand_in, job):
    Path(job.path).read_bytes()
    configuration = stand_in(GOOD, uses_cache=False)
    sample = runner.take(plan_of(cold=True), configuration, 0, Patience(0))
    assert (sample.cached_before, sample.cached_after) == (None, None)
    assert runner.cache.ask(job.path) == job.size


@pytest.mark.processes
def test_ceilings_and_controls_run_in_one_process(plan_of, stand_in):
    for role in ("ceiling", "control"):
        sample = runner.take(plan_of(processes=3), stand_in(GOOD, role=role), 0, Patience(0))
        assert (sample.processes, len(sample.readings)) == (1, 1)


def test_a_sample_that_would_exhaust_the_machine_is_skipped(plan_of, stand_in, monkeypatch):
    monkeypatch.setattr(runner, "available_memory", lambda: 7_000_000)
    sample = runner.take(plan_of(), stand_in("", private_share=1.0), 0, Patience(0))
    assert sample.state == "skipped"
    assert sample.reason == "2 processes need 6 MB of private memory, 7 MB are available"


def test_a_container_has_what_its_limit_leaves(monkeypatch):
    group = cgroup.memory_group(os.getpid())
    stat = cgroup.MemoryStat(anon=300, file=900, kernel=100)
    if group is None:
        pytest.skip("no memory group here")
    from dataclasses import replace

    monkeypatch.setattr(runner.cgroup, "memory_group", lambda _: replace(group, limit=1000, stat=stat))
    assert runner.available_memory() == 600


def test_every_configuration_has_a_name_of_its_own_and_is_found_by_it():
    every = (*ROWS, *CEILINGS, *CONTROLS)
    assert len({entry.name for entry in every}) == len(every)
    assert all(configuration_named(entry.name) == entry for entry in every)
    with pytest.raises(ValueError, match="no configuration 'nothing'; there are copy, map"):
        configuration_named("nothing")


def test_the_table_of_a_job_survives_the_way_to_a_child(job):
    from onecopy.bench.children import table_of

    table = json.loads(table_of(job))
    assert table["pieces"] == [[p.name, p.offset, p.nbytes] for p in job.pieces]
    assert (table["kind"], table["size"]) == (job.kind, job.size)
