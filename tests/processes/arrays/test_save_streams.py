"""Saving more than memory should hold, and writers and readers of one file at the same time."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import onecopy as oc

PEAK = """
    import json, os, sys
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

    oc.save(sys.argv[1] + ".small", {"w": np.zeros(3)})  # what is loaded late is loaded now
    peak = lambda: proc.status(os.getpid()).vm_hwm
    before = peak()
    oc.save(sys.argv[1], Lazy(sys.argv[2]))
    print(json.dumps(peak() - before))
"""


@pytest.mark.parametrize("layout", ["as it is", "transposed"])
@pytest.mark.slow
def test_the_peak_of_memory_does_not_grow_with_the_data(tmp_path, python, layout):
    path = tmp_path / "large.safetensors"
    grown = json.loads(python(PEAK, path, layout))
    assert 16 << 20 <= grown < 80 << 20  # of 384 MiB; one array at least
    with oc.open(path) as file:
        assert [int(file[name][5, 7]) for name in file] == list(range(24))


def test_no_writer_removes_what_another_is_about_to_put_in_place(tmp_path, python):
    """Small files, so that writers often look for a dead one's file while another is between its name and the last."""
    path = tmp_path / "model.safetensors"
    code = """
        import os, sys
        from concurrent.futures import ThreadPoolExecutor
        import numpy as np
        import onecopy as oc

        def save(number):
            for _ in range(2000):
                oc.save(sys.argv[1], {"a": np.full(3, number)}, durable=False)

        def save_scratch(number):
            for _ in range(500):
                with oc.scratch(3, "i8", os.path.dirname(sys.argv[1]), reserve=False) as made:
                    made.write(None, number)
                    made.save(sys.argv[1], "a", durable=False)

        with ThreadPoolExecutor() as pool:
            saving = [pool.submit(save, os.getpid()), pool.submit(save_scratch, -os.getpid())]
            assert [one.result() for one in saving] == [None, None]
    """
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda _: python(code, path), range(6))) == [""] * 6
    assert list(tmp_path.iterdir()) == [path]
    array = oc.open(path)["a"]
    assert array.min() == array.max()
