"""`onecopy hold` as a service has it: evicted behind its back, replaced, truncated, ended, killed."""

import contextlib
import json
import signal
import subprocess
import sys

import pytest
from tests.support.holders import COMMAND, holder
from tests.support.waiting import until

import onecopy as oc
from onecopy.files.mapping import Mapping
from onecopy.memory import proc

MIB = 1 << 20


def change_of(process: subprocess.Popen[str]) -> dict:
    return json.loads(process.stdout.readline())


def evict_from_elsewhere(*arguments: object) -> dict:
    command = [sys.executable, "-m", "onecopy", "evict", "--json", *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]


def test_what_another_process_evicts_comes_back(cold_file, cached_now):
    path = cold_file(8 * MIB)
    with contextlib.ExitStack() as stack:
        with Mapping(path) as mapping:
            if oc.files.pin(mapping).pinned < 8 * MIB:
                pytest.skip("this process may not lock so much")
            held = stack.enter_context(holder(path, "--pin", "0"))
            first = change_of(held)
        # The holder has filled nothing: what it fills is in its page tables, and other processes cannot evict that.
        assert (first["what"], first["filled"]) == ("held", 0)
        assert evict_from_elsewhere(path)["cached_after"] in {0, 8 * MIB}  # the next look may come first
        until(lambda: cached_now(path) == 8 * MIB, "the file in the page cache again")
        told = change_of(held)
        assert (told["what"], told["path"]) == ("warmed", str(path))
        assert 0 < told["filled"] <= 8 * MIB


def test_what_is_locked_cannot_be_evicted_and_a_kill_lets_go_of_it(cold_file, cached_now):
    path = cold_file(8 * MIB)
    with holder(path, "--pin", "64KiB") as held:
        if change_of(held)["locked"] != 65536:
            pytest.skip("this process may lock nothing")
        assert proc.status(held.pid).vm_lck == 65536
        assert evict_from_elsewhere(path)["cached_after"] >= 65536
        held.kill()
        held.wait()
        assert evict_from_elsewhere(path)["cached_after"] == 0  # no process holds it any more


def test_errors_are_lines_on_stderr(cold_file):
    path = cold_file(MIB)
    with holder(path, "--max-bytes", "1GB", command=COMMAND[:-1]) as process:
        assert process.stdout.readline().startswith(f"{path}: held: 1.05 MB of 1.05 MB in memory")
        path.unlink()
        said = f"onecopy: {path}: No such file or directory; released until it stops changing\n"
        assert process.stderr.readline() == said
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_ends_at_signals(cold_file, number, status):
    path = cold_file(MIB)
    path = path.rename(path.parent / "lr=1e-3")  # no NAME=FILE, because a slash is before the sign
    with holder(path) as held:
        change_of(held)
        held.send_signal(number)
        _, said = held.communicate(timeout=60)
        assert (held.returncode, said.strip()) == (status, "onecopy: interrupted" if status else "")


def test_it_ends_in_the_middle_of_its_first_look(slow_file):
    with holder(slow_file, "--pin", "0", "--threads", "1", "--no-huge", "--max-bytes", "4GiB") as held:
        until(lambda: any(region.path == str(slow_file) for region in proc.maps(held.pid)), "the mapping")
        held.terminate()
        assert held.wait(60) == 0
