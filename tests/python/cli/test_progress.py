"""Progress without a terminal: lines in a log, and none for short tasks."""

import io

from rich.console import Console

from onecopy.cli import screen


def lines_of(monkeypatch, seconds: float) -> list[str]:
    monkeypatch.setattr(screen, "SECONDS_BETWEEN_LINES", seconds)
    log = Console(file=io.StringIO())
    with screen.progress_bar(log) as bar:
        task = bar.add_task("warm", total=None)
        bar.update(task, completed=0, total=8)
        bar.update(task, completed=2, total=8)
        bar.update(task, description="verify [b]", completed=6)
    return log.file.getvalue().splitlines()


def test_long_work_prints_its_progress_without_a_terminal(monkeypatch):
    assert lines_of(monkeypatch, 0.0) == ["onecopy: warm: 25 %", "onecopy: verify [b]: 75 %"]


def test_short_work_prints_nothing(monkeypatch):
    assert lines_of(monkeypatch, 30.0) == []
