"""Rounds: interleaved, seeded, paired, and never more than the machine has."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onecopy_bench import runner
from onecopy_bench.ceilings import CEILINGS, CONTROLS
from onecopy_bench.child import configuration_named
from onecopy_bench.configurations import Configuration, Opened
from onecopy_bench.layout import read_layout, shuffled
from onecopy_bench.machine.quiet import Patience
from onecopy_bench.peers import ROWS
from onecopy_bench.record import Case, Options
from onecopy_bench.scenarios import open as opening

GOOD = "go(); resident(checksum=None); sys.stdin.readline()"


def entries(number: int) -> list[Configuration]:
    return [Configuration(f"c{i}", "", lambda _: Opened(None)) for i in range(number)]


def test_every_round_holds_every_configuration_once_and_orders_differ():
    orders = runner.rounds(entries(6), Options(iterations=9))
    assert len(orders) == 9
    assert all(sorted(turn.configuration.name for turn in order) == [f"c{i}" for i in range(6)] for order in orders)
    assert len({tuple(turn.configuration.name for turn in order) for order in orders}) > 1


def test_the_same_seed_gives_the_same_orders():
    first, again, other = (runner.rounds(entries(6), Options(seed=seed)) for seed in (4, 4, 5))
    assert [[t.configuration.name for t in order] for order in first] == [
        [t.configuration.name for t in order] for order in again
    ]
    assert [[t.configuration.name for t in order] for order in first] != [
        [t.configuration.name for t in order] for order in other
    ]


@pytest.mark.processes
def test_a_run_goes_on_after_a_failure_and_tells_its_progress(plan_of, stand_in):
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
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_before_each_sample_the_cache_is_in_the_declared_state(plan_of, stand_in, job, cache):
    sample = runner.take(plan_of(caches=(cache,)), stand_in(GOOD), 0, Patience(0))
    assert (sample.cache, sample.cached_before) == (cache, 0 if cache == "cold" else job.size)


@pytest.mark.processes
def test_what_does_not_use_the_cache_leaves_it_alone(plan_of, stand_in, job):
    Path(job.path).read_bytes()
    configuration = stand_in(GOOD, uses_cache=False)
    sample = runner.take(plan_of(caches=("cold",)), configuration, 0, Patience(0))
    assert (sample.cached_before, sample.cached_after) == (None, None)
    assert runner.cache.ask(job.path) == job.size


@pytest.mark.processes
def test_ceilings_and_controls_run_in_one_process(plan_of, stand_in):
    for role in ("ceiling", "control"):
        sample = runner.take(plan_of(processes=(3,)), stand_in(GOOD, role=role), 0, Patience(0))
        assert (sample.processes, len(sample.readings)) == (1, 1)


@pytest.mark.processes
def test_memory_is_touched_and_freed_before_a_sample_of_a_backed_run(plan_of, stand_in, job, monkeypatch):
    asked = []
    monkeypatch.setattr(runner, "back", asked.append)
    runner.take(plan_of(processes=(2,), backed=True), stand_in(GOOD, private_share=1.0), 0, Patience(0))
    runner.take(plan_of(processes=(2,)), stand_in(GOOD), 0, Patience(0))
    assert asked == [3 * job.size]
    monkeypatch.undo()
    others = Path("/proc/thread-self/children").read_text()  # such as a forkserver of earlier tests
    runner.back(1 << 20)  # in a child, which is gone when it returns
    assert Path("/proc/thread-self/children").read_text() == others


def test_a_sample_that_would_exhaust_the_machine_is_skipped(plan_of, stand_in, monkeypatch):
    monkeypatch.setattr(runner.page_cache, "available_memory", lambda: 7_000_000)
    sample = runner.take(plan_of(), stand_in("", private_share=1.0), 0, Patience(0))
    assert sample.state == "skipped"
    assert sample.reason == "2 processes need 6 MB of private memory, 7 MB are available"


def test_every_configuration_has_a_name_of_its_own_and_is_found_by_it():
    every = (*ROWS, *CEILINGS, *CONTROLS)
    assert len({entry.name for entry in every}) == len(every)
    assert all(configuration_named(entry.name) == entry for entry in every)
    with pytest.raises(ValueError, match="no configuration 'nothing'; there are copy, map"):
        configuration_named("nothing")


def test_the_table_of_a_job_survives_the_way_to_a_child(job):
    from onecopy_bench.children import table_of

    table = json.loads(table_of(job))
    assert table["pieces"] == [[p.name, p.offset, p.nbytes] for p in job.pieces]
    assert (table["kind"], table["size"]) == (job.kind, job.size)


def test_a_row_meets_every_case_once_a_round_and_a_ceiling_none():
    options = Options(processes=(1, 4), caches=("cold", "warm"), iterations=3)
    row, ceiling = entries(1)[0], Configuration("ceiling", "", lambda _: Opened(None), role="ceiling")
    cases = [Case(1, "cold"), Case(1, "warm"), Case(4, "cold"), Case(4, "warm")]
    for order in runner.rounds([row, ceiling], options):
        assert sorted(turn.case for turn in order if turn.configuration is row) == cases
        assert [turn.case for turn in order if turn.configuration is ceiling] == [None]


@pytest.mark.processes
def test_a_run_takes_every_case_and_tells_which(plan_of, stand_in, job):
    plan = plan_of(stand_in(GOOD), processes=(1, 2), caches=("cold", "warm"))
    samples = runner.run(plan)
    assert {(s.processes, s.cache, len(s.readings), s.cached_before) for s in samples} == {
        (1, "cold", 1, 0),
        (2, "cold", 2, 0),
        (1, "warm", 1, job.size),
        (2, "warm", 2, job.size),
    }


@pytest.mark.processes
def test_what_was_taken_already_is_not_taken_again(plan_of, stand_in):
    plan, kept = plan_of(stand_in(GOOD), iterations=3), []
    every = runner.run(plan, keep=kept.append)
    assert tuple(kept) == every
    again = []
    samples = runner.run(plan, keep=again.append, taken=every[:2])
    assert samples[:2] == every[:2]
    assert [sample.round for sample in again] == [2]


@pytest.mark.processes
def test_a_row_with_a_file_of_its_own_is_measured_on_that_file(plan_of, stand_in, job, tmp_path):
    own = tmp_path / "own"
    own.write_bytes(b"x" * 50_000)
    plan = replace(plan_of(caches=("warm",)), twins={"stand-in": replace(job, path=str(own), size=50_000)})
    runner.cache.evict(job.path)
    sample = runner.take(plan, stand_in("assert table['size'] == 50_000;" + GOOD), 0, Patience(0))
    assert (sample.state, sample.cached_before) == ("ok", 50_000)
    assert runner.cache.ask(job.path) == 0


def test_the_time_left_is_that_of_like_samples_and_the_mean_of_all_for_others(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    a, b = (runner.Turn(entry, Case(1, "cold")) for entry in entries(2))
    clock = runner.Clock([a, b, a, b])
    assert clock.seconds_left() is None
    with clock.timing(a):
        now[0] += 10
    assert clock.seconds_left() == 30
    with clock.timing(b):
        now[0] += 2
    assert clock.seconds_left() == 12


@pytest.mark.processes
def test_every_child_is_told_the_shuffled_order(stand_in, model):
    order = [piece.name for piece in shuffled(read_layout(model), 3).pieces]
    child = stand_in(f"assert [p[0] for p in table['pieces']] == {order!r};" + GOOD)
    options = Options(processes=(2,), iterations=1, idle_wait=0.0, order="shuffled", seed=3)
    record = opening.run(model, options, configurations=(child,))
    assert [(sample.state, sample.reason) for sample in record.samples] == [("ok", "")]
