"""Whom a process waits for while it constructs a model, on a clock that passes while it waits."""

import json
import mmap
import os

import pytest

from onecopy.run import call_log, load_gate

ME, PAGES, LEFT = os.getpid(), 100, 1000
LOADED = {"function": call_log.LOAD_STATE_DICT, "shared": 600, "pid": 5}


def begins(pid, left=LEFT):
    return {"building": True, "left": left, "pages": PAGES, "pid": pid}


def copies(pid):
    return {"copying": True, "pid": pid}


@pytest.fixture
def waited(monkeypatch):
    """Give a function: (reported, pages of a process at a time, bytes left) -> seconds that this process waits.

    `reported` has lists of a time and the line that the file of the run gets then.
    """
    clock = 0.0

    def sleep(seconds):
        nonlocal clock
        clock += seconds

    def wait(reported, pages=lambda _: (PAGES, 0), left=1):
        builder, reported = load_gate._Builder(), list(reported)

        def read():
            while reported and reported[0][0] <= clock:
                builder._follow(json.dumps(reported.pop(0)[1]).encode())

        monkeypatch.setattr(builder, "_read", read)
        monkeypatch.setattr(load_gate, "_left", lambda: left)
        monkeypatch.setattr(load_gate, "_pages", lambda _: pages(clock))
        builder._wait_while_scarce()
        first = builder.waited
        if first >= load_gate.MAX_SECONDS:
            builder._wait_while_scarce()
        assert builder.waited == first
        return round(first)

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.monotonic", lambda: clock)
    return wait


BOTH = [(0, begins(5)), (0, begins(ME))]
IDLE = round(load_gate.IDLE_SECONDS)


def at_work(now):
    return PAGES - 1 / (1 + now), 0


@pytest.mark.parametrize(
    ("reported", "pages", "seconds"),
    [
        ([(0, begins(ME)), (0, begins(5))], at_work, 0),
        (BOTH, at_work, load_gate.MAX_SECONDS),
        (BOTH, lambda now: (PAGES, now), load_gate.MAX_SECONDS),
        ([*BOTH, (20, {"built": True, "pid": 5})], at_work, 20),
        ([*BOTH, (20, {"built": True, "pid": ME})], at_work, load_gate.MAX_SECONDS),
        (BOTH, lambda _: (PAGES, 7), IDLE),
        (BOTH, lambda now: (PAGES + now, 7), IDLE),
        ([(0, begins(6)), *BOTH], lambda _: (PAGES, 7), 2 * IDLE),
        ([*BOTH, (0, copies(5)), (20, copies(5))], lambda _: (PAGES, 7), 20),
        (BOTH, lambda _: (0, 0), 0),
    ],
    ids=[
        *("it began first", "another one writes", "another one maps", "another one has loaded", "it has loaded itself"),
        *("another one is idle", "another one trains", "two are idle", "another one copies", "another one has ended"),
    ],
)
def test_a_process_waits_while_one_that_began_before_it_is_at_work(waited, reported, pages, seconds):
    assert waited(reported, pages) == seconds


@pytest.mark.parametrize(
    ("more", "enough"),
    [
        ([], 750),
        ([(0, begins(7, LEFT // 2))], 750),
        ([(0, begins(7, 2 * LEFT))], 1500),
        ([(0, LOADED)], 900),
        ([(0, copies("x"))], 750),
    ],
    ids=["the size is unknown", "less is left now", "more is left now", "the size is known", "a line is damaged"],
)
def test_nobody_waits_where_enough_memory_is_left(waited, more, enough):
    assert waited([*BOTH, *more], left=enough) == 0
    assert waited([*BOTH, *more], left=enough - 1) > 0


def test_a_process_reports_each_step_of_its_parameters_until_it_has_loaded(monkeypatch):
    builder, lines, waits, answers = load_gate._Builder(), [], [], [ME, ME, ME + 1, ME]
    monkeypatch.setattr(call_log, "append", lambda fields: lines.append(fields) or answers.pop(0))
    monkeypatch.setattr(load_gate, "_left", lambda: LEFT)
    monkeypatch.setattr(load_gate, "_pages", lambda _: (PAGES, 0))
    monkeypatch.setattr(builder, "_wait_while_scarce", lambda: waits.append(len(lines)))
    step = load_gate._STEP
    for nbytes in (step - 1, 1, step, step):
        builder.registered(nbytes)
    pages = [PAGES + number * step // mmap.PAGESIZE for number in (1, 2, 3)]
    assert lines == [{"building": True, "left": LEFT, "pages": each} for each in pages]
    assert waits == [1, 2]  # not where another PID namespace has the others
    builder.registered(step - 1)
    for _ in range(2):
        builder.finished()
    builder.registered(1)
    builder.waited = load_gate.MAX_SECONDS
    builder.registered(step)
    assert lines[3:] == [{"built": True}]


def test_a_process_announces_the_end_of_a_copy_that_failed(monkeypatch):
    lines = []
    monkeypatch.setattr(call_log, "append", lines.append)
    monkeypatch.setattr(load_gate._of_process(), "private_pages", 1)
    with pytest.raises(OSError, match="disk"), load_gate.copying():
        raise OSError("disk")
    assert lines == [{"copying": True}] * 2
