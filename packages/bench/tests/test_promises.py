"""What a run promises, with real processes: a proven cache, backed memory, and a record that can be resumed."""

import json
import mmap
import os
import signal
import subprocess
import sys

import pytest
from tests.support.children import is_alive
from tests.support.waiting import until

from onecopy_bench import system

QUICK = ("--idle-wait", "0", "--rounds")
START = ("bench", "start", "--size", "1MB", "--work-s", "0.01", "--place", "disk", *QUICK)
MB = 1_000_000


@pytest.mark.processes
@pytest.mark.slow
def test_a_file_that_stays_cached_is_reported_as_not_cold(tmp_path, onecopy_process):
    path = tmp_path / "big.bin"
    path.write_bytes(os.urandom(MB))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert sum(held[::4096]) > 0  # the kernel evicts no page that a process has mapped
        words = ("--cold", "-n", "1", "--only", "map", *QUICK, "1", "--json", "r.jsonl")
        done = onecopy_process("bench", "open", path, *words, cwd=tmp_path)
        assert system.set_cache_state(path, "cold") == MB
    assert done.returncode == 0, done.stderr
    assert "NOT cold: up to 1.0 of 1.0 MB were still cached before 1 of 1 samples." in " ".join(done.stdout.split())
    assert system.set_cache_state(path, "cold") == 0
    assert system.set_cache_state(path, "warm") == MB


@pytest.mark.processes
def test_a_full_disk_ends_the_run_with_the_name_of_the_record(tmp_path, onecopy_process):
    done = onecopy_process(*START, "1", "--json", "/dev/full", cwd=tmp_path)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "/dev/full" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_a_disk_too_small_for_the_data_is_an_error_and_stays_empty(tmp_path, in_child, small_disk, onecopy_process):
    def child() -> tuple[int, str, list[str]]:
        disk = small_disk("tmpfs")
        done = onecopy_process("bench", "start", "--size", "20MB", "--place", "disk", "--folder", disk, *QUICK, "1")
        return done.returncode, done.stderr, sorted(path.name for path in disk.iterdir())

    status, words, left = in_child(child)
    assert (status, left) == (1, [])
    assert "No space left on device" in words


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_ends_all_copies_and_says_how_to_go_on(tmp_path, number):
    code = "import os, time; open(str(os.getpid()), 'w').close(); time.sleep(1000)"
    program = [sys.executable, "-S", "-c", f"import os; os.fork(); {code}"]
    words = ["bench", "run", "-n", "2", "--ready", "never", "--json", "r.jsonl", *QUICK, "1", "--", *program]
    command = [sys.executable, "-m", "onecopy", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        pids = lambda: [int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal()]  # noqa: E731
        until(lambda: len(pids()) == 4, "two copies with a child each")
        parent.send_signal(number)
        _, said = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert b"the samples so far are in r.jsonl; use --resume to continue" in said
    until(lambda: not any(map(is_alive, pids())), "the end of the copies")


@pytest.mark.processes
@pytest.mark.slow
def test_a_run_is_resumed_on_the_command_line_with_what_is_missing(tmp_path, onecopy_process):
    words = (*START, "3", "--json", "r.jsonl")
    assert onecopy_process(*words, cwd=tmp_path).returncode == 0
    header, *samples, _ = (tmp_path / "r.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "r.jsonl").write_text(header + "".join(samples[:4]) + samples[4][:30])  # killed while it wrote
    done = onecopy_process(*words, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = (tmp_path / "r.jsonl").read_text().splitlines(keepends=True)
    assert again[:5] == [header, *samples[:4]]
    cells = [(each["row"], each["round"]) for each in map(json.loads, again[1:-1])]
    assert cells == [(each["row"], each["round"]) for each in map(json.loads, samples)]
    other = onecopy_process(*words[:-3], "2", "--json", "r.jsonl", "--resume", cwd=tmp_path)
    assert other.returncode == 1
    assert "belongs to another run: options was" in other.stderr


@pytest.mark.processes
def test_memory_is_touched_and_given_back_before_a_backed_sample(python):
    code = f"""
import resource
from onecopy.memory import proc
from onecopy_bench import system
from onecopy_bench.runs import Measured, Settings, Trial, take_sample
seen = []
def measure(attempt):
    attempt.begin()
    seen.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
    seen.append(proc.status(os.getpid()).rss_anon)
    return Measured({{}})
import os
for backed in (False, True):
    take_sample(Trial("row", (), {64 * MB}, measure), 0, Settings(backed=backed, idle_wait=0.0))
print(*seen)
"""
    plain, before, touched, after = map(int, python(code).split())
    assert plain == 0  # no process was started
    assert touched > 64 * MB + system.BACKED_MORE
    assert after - before < 16 * MB
