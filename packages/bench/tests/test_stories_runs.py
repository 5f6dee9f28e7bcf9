"""`onecopy bench stories` as a command: killed and gone on with, disks that are full, wrong words, odd records."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packages.bench.tests.made_up_stories import made_up, text_of
from tests.support.waiting import until

from onecopy_bench.engine.record import parse
from onecopy_bench.stories import NAMES, STORIES, record

pytestmark = pytest.mark.processes

STORIES_COMMAND = [sys.executable, "-W", "error", "-m", "onecopy", "bench", "stories"]
SMALL = ["--quick", "--idle-wait", "0"]


def stories(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STORIES_COMMAND, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.fixture
def saved(tmp_path) -> Path:
    (tmp_path / "made.jsonl").write_text(text_of(made_up()))
    return tmp_path / "made.jsonl"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_run_goes_on_and_measures_nothing_twice(tmp_path):
    out = tmp_path / "out.jsonl"
    words = [*SMALL, "--story", "start", "--json", out.name]
    with subprocess.Popen([*STORIES_COMMAND, *words], cwd=tmp_path, stderr=subprocess.DEVNULL) as child:
        until(
            lambda: child.poll() is not None or (out.exists() and out.read_text().count("\n") >= 3),
            "a sample",
            seconds=100,
        )
        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
    text = out.read_text()
    kept = parse(text[: text.rindex("\n") + 1])[1].samples
    done = stories(*words, "--resume", "-o", "page.md", "-o", "page.html", "-o", "page.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = record.read(out, STORIES)
    assert found.records["start"].samples[: len(kept)] == kept
    assert len(found.records["start"].samples) == 5
    assert "![What each story costs, by how it is done](page.svg)" in (tmp_path / "page.md").read_text()
    assert "<!DOCTYPE html>" in (tmp_path / "page.html").read_text()
    before = out.read_text()
    again = stories(*words, "--resume", cwd=tmp_path)  # everything is there
    assert (again.returncode, out.read_text()) == (0, before)


def test_a_record_is_shown_without_measuring(saved, tmp_path):
    done = stories("--from", saved, "-o", "page.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "462.6 MB" in done.stdout
    assert "models: Four processes hold" in done.stdout
    assert all(f"--story {name}" in (tmp_path / "page.md").read_text() for name in NAMES)


@pytest.mark.parametrize("cut", [0, 1])
def test_a_cut_record_is_an_error_that_names_it(saved, tmp_path, cut):
    saved.write_text(saved.read_text()[:cut])
    for words in (["--from", saved], [*SMALL, "--json", saved, "--resume"]):
        done = stories(*words, cwd=tmp_path)
        assert done.returncode == 1
        assert str(saved) in done.stderr
        assert "record of the format" in " ".join(done.stderr.split())


def test_a_record_of_another_run_is_not_gone_on_with(saved, tmp_path):
    before = saved.read_text()
    done = stories(*SMALL, "--json", saved, "--resume", cwd=tmp_path)
    assert done.returncode != 0
    assert "is of another run: commit was" in " ".join(done.stderr.split())
    assert saved.read_text() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "page.pdf"], "'page.pdf' must end in .md, .html or .svg"),
        (["--json", "no/such/folder.json"], "no folder for 'no/such/folder.json'"),
        (["--resume"], "--resume needs --json OUT"),
        (["--story", "none"], "'none' is not one of"),
        (["--from", "made.jsonl", "--json", "x.jsonl"], "--from measures nothing"),
        (["--from", "none.jsonl"], "does not exist"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_runs(saved, tmp_path, words, message):
    done = stories(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_a_missing_program_says_how_it_is_built(tmp_path, in_child):
    def measure():
        from onecopy_bench.scenarios.structs import program
        from onecopy_bench.stories import running
        from onecopy_bench.stories.story import Scale

        program.find = lambda: (_ for _ in ()).throw(FileNotFoundError(f"no program: in a checkout, {program.BUILD}"))
        (story,) = [story for story in STORIES if story.name == "structs"]
        return running.run([story], tmp_path, Scale(quick=True)).missing(story)

    assert "cmake --build --preset release --target bench_structs" in in_child(measure)
