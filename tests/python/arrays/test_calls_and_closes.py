"""Calls that last while another thread, a finalizer or a fork interferes: nothing that they use is freed."""

import contextlib
import itertools
import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.rounds import rounds
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
    assert python(CLOSED_BY_A_FINALIZER, what, tmp_path).startswith(("True\n", "the file is closed: "))


MIB = 1 << 20


def copied(folder: Path) -> _core.Mapping:
    (folder / "big").write_bytes(bytes(256 * MIB))
    return _core.open_mapping(folder / "big", copy=True)


def closed_copy(folder: Path) -> Callable[[], object]:
    return copied(folder).close


def dropped_view(folder: Path) -> Callable[[], object]:
    mapping = copied(folder)
    views = [mapping.view(0, 10)]
    mapping.close()
    return views.clear


def dropped_arrays(folder: Path) -> Callable[[], object]:
    oc.save(folder / "big.oc", {"a": np.zeros(256 * MIB, np.uint8)})
    files = [_core.open_arrays(folder / "big.oc", copy=True)[0]]
    return files.clear


def written(folder: Path) -> _core.ScratchFile:
    file = _core.create_scratch(
        256 * MIB, folder=folder, name="big", reserve=True, anywhere=True, head=0, max_resident=None
    )
    file.write(0, bytes(256 * MIB))
    return file


def closed_scratch(folder: Path) -> Callable[[], object]:
    return written(folder).close


def dropped_view_of_scratch(folder: Path) -> Callable[[], object]:
    file = written(folder)
    views = [file.view()]
    file.close()
    return views.clear


def saved_dict(folder: Path) -> Callable[[], object]:
    builder = _core.RecordBuilder(folder, "dict", {})
    builder.extend(((f"key-{i}", i) for i in range(200_000)), lambda _: None)
    return lambda: builder.save_nameless(str(folder))


LONG_CALLS = [closed_copy, dropped_view, dropped_arrays, closed_scratch, dropped_view_of_scratch, saved_dict]


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


ROWS = [{"text": "x" * 1000, "number": number} for number in range(5000)]


def own_path(folder: Path) -> Path:
    return folder / f"{os.getpid()}-{threading.get_ident()}"


def of_a_file(use: Callable[[Path], object]) -> Callable[[Path], Callable[[], object]]:
    def prepare(folder: Path) -> Callable[[], object]:
        oc.save(folder / "arrays.oc", {"a": np.ones(16 * MIB, np.uint8), "b": np.arange(1000)})
        return lambda: use(folder / "arrays.oc")

    return prepare


def verified(path: Path) -> None:
    with oc.open(path) as file:
        file.verify()
        file.warm(verify=True)


def mapped(path: Path) -> None:
    with oc.Mapping(path) as mapping:
        oc.files.pin(mapping)
        oc.files.unpin(mapping)
        oc.residency(mapping)
        oc.evict(mapping)


def copied_into_sealed_memory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):  # another process has made pages of the file dirty
        _core.take_snapshot(descriptor, "snapshot").close()
    os.close(descriptor)


def saved_and_removed(folder: Path) -> Callable[[], object]:
    def call() -> None:
        oc.save(own_path(folder), {"a": np.ones(4 * MIB, np.uint8)}, durable=False)
        own_path(folder).unlink()

    return call


def built_and_pruned(folder: Path) -> Callable[[], object]:
    store = oc.Store(folder / "store")

    def call() -> None:
        store.get_or_build(f"{own_path(folder)}", lambda path: oc.save(path, {"a": np.ones(MIB, np.uint8)}))
        store.ls()
        store.prune(max_bytes=0)

    return call


def written_scratch(folder: Path) -> Callable[[], object]:
    def call() -> None:
        with oc.scratch((4, MIB), np.uint8, dir=folder) as scratch:
            scratch.array[:] = 1
            scratch.flush()
            scratch.release()
            scratch.prefetch()
            scratch.save(own_path(folder))
        own_path(folder).unlink()

    return call


def read_rows(_folder: Path) -> Callable[[], object]:
    shared = oc.share(ROWS)

    def call() -> None:
        assert shared[10:4000] == ROWS[10:4000]
        shared.__arrow_c_stream__()

    return call


def built_rows(_folder: Path) -> Callable[[], object]:
    return lambda: oc.share({str(number): row for number, row in enumerate(ROWS)}).close()


def saved_object(folder: Path) -> Callable[[], object]:
    def call() -> None:
        oc.save_object(own_path(folder), [np.ones(MIB), ROWS])
        assert oc.load_object(own_path(folder), trusted=True)[0].sum() == MIB
        own_path(folder).unlink()

    return call


CALLS_DURING_FORKS = {
    "warm": of_a_file(oc.warm),
    "background": of_a_file(lambda path: oc.warm(path, wait=False).wait()),
    "copy": of_a_file(lambda path: oc.open(path, mode="copy").close()),
    "verify": of_a_file(verified),
    "mapping": of_a_file(mapped),
    "snapshot": of_a_file(copied_into_sealed_memory),
    "checksum": of_a_file(lambda path: _core.crc32c(path.read_bytes())),
    "save": saved_and_removed,
    "store": built_and_pruned,
    "scratch": written_scratch,
    "rows": read_rows,
    "share": built_rows,
    "object": saved_object,
}


@pytest.mark.unsanitized  # a fork may leave the locks of AddressSanitizer's allocator locked in the child
@pytest.mark.parametrize("name", CALLS_DURING_FORKS)
def test_a_child_that_is_forked_during_a_long_call_makes_the_same_call(tmp_path, name):
    call = CALLS_DURING_FORKS[name](tmp_path)
    call()  # imports what it needs: a child has no lock of an import that another thread has begun
    stop, errors = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not stop.is_set():
                call()
        except BaseException as error:  # raised in the main thread
            errors.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds(5, 60)):
            pid = os.fork()
            if pid == 0:
                try:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a lock that stays locked blocks handlers of Python
                    signal.alarm(60)
                    call()
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


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
    assert errors in (["another call is using the builder"], ["cannot add rows after the rows were saved"])
    with oc.open_records(tmp_path / "saved.oc") as opened:
        assert opened["key-299999"] == 299_999
