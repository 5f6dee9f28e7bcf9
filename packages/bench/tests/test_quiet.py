"""Waiting for an idle machine."""

from onecopy_bench.engine import rounds


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
