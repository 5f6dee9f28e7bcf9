"""Saving more than memory should hold, and being killed in the middle."""

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import onecopy as oc

pytestmark = pytest.mark.processes

LAZY = """
    import json, sys, time
    from collections.abc import Mapping
    import numpy as np
    import onecopy as oc
    from onecopy.memory import proc

    class Lazy(Mapping):
        def __init__(self, layout, sleep_at=None):
            self.layout, self.sleep_at, self.calls = layout, sleep_at, 0
        def __iter__(self):
            return (f"w{number}" for number in range(24))
        def __len__(self):
            return 24
        def __getitem__(self, name):
            self.calls += 1
            if self.calls == self.sleep_at:
                print("half", flush=True)
                time.sleep(100)
            array = np.full((2048, 2048), int(name[1:]), np.float32)  # 16 MiB
            return array.T if self.layout == "transposed" else array
"""
PEAK = """
    oc.save(sys.argv[1] + ".small", {"w": np.zeros(3)})  # what is loaded late is loaded now
    peak = lambda: proc.status(int(open("/proc/self/stat").read().split()[0])).vm_hwm
    before = peak()
    oc.save(sys.argv[1], Lazy(sys.argv[2]))
    print(json.dumps(peak() - before))
"""
SLEEP = """
    oc.save(sys.argv[1], Lazy("", sleep_at=24 + 12))
"""


@pytest.mark.parametrize("layout", ["as it is", "transposed"])
@pytest.mark.slow
def test_the_peak_of_memory_does_not_grow_with_the_data(tmp_path, python, layout):
    path = tmp_path / "large.safetensors"
    grown = json.loads(python(textwrap.dedent(LAZY) + textwrap.dedent(PEAK), path, layout))
    assert 16 << 20 <= grown < 80 << 20  # of 384 MiB; one array at least
    with oc.open(path) as file:
        assert [int(file[name][5, 7]) for name in file] == list(range(24))


def test_a_process_killed_in_the_middle_of_a_save_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"old": np.arange(3)})
    code = textwrap.dedent(LAZY) + textwrap.dedent(SLEEP)
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half\n"
        assert list(oc.open(path)) == ["old"]
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert list(oc.open(path)) == ["old"]
    oc.save(path, {"new": np.arange(3)})  # also sweeps, where the file system has no unnamed files
    assert list(oc.open(path)) == ["new"]
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_readers_see_the_old_or_the_new_file_while_one_is_written_again_and_again(tmp_path):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"a": np.zeros(100_000)})
    code = """
        import sys
        import numpy as np
        import onecopy as oc
        for number in range(1, 31):
            oc.save(sys.argv[1], {"a": np.full(100_000, float(number))})
    """
    seen = []
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), path]) as writer:
        while writer.poll() is None:
            with oc.open(path) as file:
                array = file["a"]
                assert array.min() == array.max()
                seen.append(array[0])
            time.sleep(0.001)
    assert writer.returncode == 0
    assert seen == sorted(seen)
    assert oc.open(path)["a"][0] == 30


def test_many_writers_of_one_file_leave_one_of_theirs_whole(tmp_path):
    path = tmp_path / "model.safetensors"
    wrong: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(10):
                oc.save(path, {"a": np.full(50_000, number)})
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    array = oc.open(path)["a"]
    assert array.min() == array.max()
    assert list(tmp_path.iterdir()) == [path]


def test_no_writer_removes_what_another_is_about_to_put_in_place(tmp_path, python):
    """Small files, so that writers often look for a dead one's file while another is between its name and the last."""
    path = tmp_path / "model.safetensors"
    code = """
        import os, sys
        import numpy as np
        import onecopy as oc

        arrays = {"a": np.full(3, os.getpid())}
        for _ in range(4000):
            oc.save(sys.argv[1], arrays, durable=False)
    """
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda _: python(code, path), range(6))) == [""] * 6
    assert list(tmp_path.iterdir()) == [path]
