"""Saving more than memory should hold, and writers and readers of one file at the same time."""

import json
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
    import json, sys
    from collections.abc import Mapping
    import numpy as np
    import onecopy as oc
    from onecopy.memory import proc

    class Lazy(Mapping):
        def __init__(self, layout):
            self.layout = layout
        def __iter__(self):
            return (f"w{number}" for number in range(24))
        def __len__(self):
            return 24
        def __getitem__(self, name):
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


@pytest.mark.parametrize("layout", ["as it is", "transposed"])
@pytest.mark.slow
def test_the_peak_of_memory_does_not_grow_with_the_data(tmp_path, python, layout):
    path = tmp_path / "large.safetensors"
    grown = json.loads(python(textwrap.dedent(LAZY) + textwrap.dedent(PEAK), path, layout))
    assert 16 << 20 <= grown < 80 << 20  # of 384 MiB; one array at least
    with oc.open(path) as file:
        assert [int(file[name][5, 7]) for name in file] == list(range(24))


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
