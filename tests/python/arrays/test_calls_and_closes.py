"""Calls that last while another thread, a finalizer or a fork interferes: nothing that they use is freed."""

import itertools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.turns import turns_of_another_thread

import onecopy as oc
from onecopy import _core

CLOSED_BY_A_FINALIZER = """
    import gc, sys
    from pathlib import Path
    import numpy as np
    import onecopy as oc
    from onecopy import _core

    what, folder = sys.argv[1], Path(sys.argv[2])
    many = 20_000
    if what in ("names", "entries", "metadata"):
        path = folder / "arrays.safetensors"
        oc.save(path, {f"layer.{i}.weight": np.zeros(1, np.uint8) for i in range(many)},
                metadata={f"key {i}": "value" for i in range(many)})
        opened = _core.open_arrays(path)[0]
        call = getattr(opened, what)
        close = opened.close
    else:
        shared = oc.share({str(i): i for i in range(many)} if what == "keys" else [[i] * 3 for i in range(many)])
        call = {"keys": lambda: [shared[str(i)] for i in range(many)], "rows": lambda: shared[:]}[what]
        close = shared.close

    class Holder:  # an abandoned object in a cycle, whose finalizer closes what the call uses
        def __init__(self):
            self.me = self

        def __del__(self):
            close()
            done.append(True)

    done = []
    gc.collect()
    gc.disable()
    Holder()
    gc.set_threshold(9000, 10, 10)
    gc.enable()
    try:
        print(len(call()) >= many)
    except ValueError as error:
        print(error)
"""


@pytest.mark.parametrize("what", ["names", "entries", "metadata", "keys", "rows"])
def test_a_file_that_a_finalizer_closes_during_a_call_is_used_to_its_end(python, tmp_path, what):
    assert python(CLOSED_BY_A_FINALIZER, what, tmp_path) in ("True\n", "the file is closed\n")


MIB = 1 << 20


def copied_mapping(folder: Path) -> Callable[[], object]:
    path = folder / "big"
    path.write_bytes(bytes(256 * MIB))
    return _core.open_mapping(path, copy=True).close


def dropped_view(folder: Path) -> Callable[[], object]:
    path = folder / "big"
    path.write_bytes(bytes(256 * MIB))
    mapping = _core.open_mapping(path, copy=True)
    views = [mapping.view(0, 10)]
    mapping.close()
    return views.clear


def dropped_arrays(folder: Path) -> Callable[[], object]:
    oc.save(folder / "big.oc", {"a": np.zeros(256 * MIB, np.uint8)})
    files = [_core.open_arrays(folder / "big.oc", copy=True)[0]]
    return files.clear


def closed_scratch(folder: Path) -> Callable[[], object]:
    file = _core.create_scratch(
        256 * MIB, folder=folder, name="big", reserve=True, anywhere=True, head=0, max_resident=None
    )
    file.write(0, bytes(256 * MIB))
    return file.close


def dropped_view_of_scratch(folder: Path) -> Callable[[], object]:
    file = _core.create_scratch(
        256 * MIB, folder=folder, name="big", reserve=True, anywhere=True, head=0, max_resident=None
    )
    file.write(0, bytes(256 * MIB))
    views = [file.view()]
    file.close()
    return views.clear


def saved_dict(folder: Path) -> Callable[[], object]:
    builder = _core.RecordBuilder(folder, "dict", {})
    builder.extend(((f"key-{i}", i) for i in range(200_000)), lambda _: None)
    return lambda: builder.save_nameless(str(folder))


LONG_CALLS = [copied_mapping, dropped_view, dropped_arrays, closed_scratch, dropped_view_of_scratch, saved_dict]


@pytest.mark.parametrize("prepare", LONG_CALLS)
def test_other_threads_run_while_memory_is_freed_and_an_index_is_built(tmp_path, prepare):
    def turns() -> int:
        call, results = prepare(tmp_path), []
        count = turns_of_another_thread(lambda: results.append(call()))
        for descriptor in filter(None, results):
            os.close(descriptor)
        return count

    # On a busy machine the other thread may not get a CPU in time; a call that keeps the GIL never lets it run.
    assert any(turns() for _ in range(20))


def test_a_child_that_is_forked_during_an_export_to_arrow_exports_as_well():
    shared = oc.share({"text": "x" * 1000, "number": number} for number in range(50_000))
    threads = [threading.Thread(target=shared.__arrow_c_stream__)]
    for thread in threads:
        thread.start()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a lock that is never released blocks handlers of Python, too
        signal.alarm(20)
        shared.__arrow_c_stream__()
        os._exit(0)
    for thread in threads:
        thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    shared.close()


def test_a_builder_is_used_by_one_thread_at_a_time(tmp_path):
    builder = _core.RecordBuilder(tmp_path, "dict", {})
    builder.extend(((f"key-{i}", i) for i in range(300_000)), lambda _: None)
    errors: list[str] = []

    def append() -> None:
        for number in itertools.count():
            try:
                builder.append((f"another-{number}", 1), lambda _: None)
            except ValueError as error:
                errors.append(str(error))
                return

    thread = threading.Thread(target=append)
    thread.start()
    builder.save(tmp_path / "saved.oc")
    thread.join()
    assert errors in (["another call is using the builder"], ["the rows are saved; no more can be added"])
    with oc.open_records(tmp_path / "saved.oc") as opened:
        assert opened["key-299999"] == 299_999
