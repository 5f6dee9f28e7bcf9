"""`onecopy bench stories` as a command: killed and gone on with, disks that are full, wrong words, odd records."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.tests.journals import has_sample
from bench.tests.made_up_stories import made_up
from tests.support.waiting import until

from onecopy_bench.stories import record
from onecopy_bench.stories.every import NAMES, STORIES

pytestmark = pytest.mark.processes

STORIES_COMMAND = [sys.executable, "-W", "error", "-m", "onecopy", "bench", "stories"]
SMALL = ["--quick", "--idle-wait", "0"]


def stories(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STORIES_COMMAND, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.fixture
def saved(tmp_path) -> Path:
    record.write(tmp_path / "made.json", made_up())
    return tmp_path / "made.json"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_run_goes_on_and_measures_nothing_twice(tmp_path):
    out, samples = tmp_path / "out.json", tmp_path / "out.json.start.samples"
    words = [*SMALL, "--story", "start", "--json", out.name]
    with subprocess.Popen([*STORIES_COMMAND, *words], cwd=tmp_path, stderr=subprocess.DEVNULL) as child:
        until(lambda: child.poll() is not None or has_sample(samples), "the first sample", seconds=100)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
    kept = json.loads(samples.read_text().splitlines()[1])
    done = stories(*words, "--resume", "-o", "page.md", "-o", "page.html", "-o", "page.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = record.from_json(out.read_text(), STORIES)
    taken = {(s.row, s.round): s.started for s in found.kept[0].samples.samples}
    assert taken[kept["row"], kept["round"]] == kept["started"]
    assert len(taken) == 5
    assert not samples.exists()
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


@pytest.mark.parametrize("cut", [0, 1, 1000, -3])
@pytest.mark.slow
def test_a_cut_record_is_an_error_that_names_it(saved, tmp_path, cut):
    saved.write_text(saved.read_text()[:cut])
    for words in (["--from", saved], [*SMALL, "--json", saved, "--resume"]):
        done = stories(*words, cwd=tmp_path)
        assert done.returncode == 1
        assert f"{saved}: no JSON, or only a part of it" in " ".join(done.stderr.split())


def test_a_record_of_another_run_is_not_gone_on_with(saved, tmp_path):
    before = saved.read_text()
    done = stories(*SMALL, "--json", saved, "--resume", cwd=tmp_path)
    assert done.returncode != 0
    assert "another run: quick was False, is True" in done.stderr
    assert saved.read_text() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "page.pdf"], "'page.pdf' is none of .md, .html, .svg"),
        (["--json", "no/such/folder.json"], "no folder for 'no/such/folder.json'"),
        (["--resume"], "--resume needs --json OUT"),
        (["--story", "none"], "'none' is not one of"),
        (["--from", "made.json", "--json", "x.json"], "--from measures nothing"),
        (["--from", "none.json"], "does not exist"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_runs(saved, tmp_path, words, message):
    done = stories(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_a_missing_program_says_how_it_is_built(tmp_path, in_child):
    def measure():
        from onecopy_bench.stories import running
        from onecopy_bench.stories.story import Scale
        from onecopy_bench.structs import program

        program.find = lambda: (_ for _ in ()).throw(FileNotFoundError(f"no program: in a checkout, {program.BUILD}"))
        (story,) = [story for story in STORIES if story.name == "structs"]
        return running.run([story], tmp_path, Scale(quick=True)).absent[0].reason

    assert "cmake --build --preset release --target bench_structs" in in_child(measure)


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk_is_told_and_leaves_the_record_that_was_there(kind, small_disk, tmp_path, in_child):
    def measure():
        small_disk(kind)
        path = tmp_path / "disk" / "out.json"
        path.write_text("before")
        with (tmp_path / "disk" / "ballast").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        try:
            record.write(path, made_up())
        except OSError as error:
            return error.errno, error.filename, path.read_text(), sorted(p.name for p in path.parent.glob("out*"))
        return None

    told = in_child(measure)
    assert told == (28, str(tmp_path / "disk" / "out.json"), "before", ["out.json"])
