"""Calls that last while another thread, a finalizer or a fork interferes: nothing that they use is freed."""

import contextlib
import functools
import itertools
import os
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import status_of
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


def written(folder: Path) -> _core.ScratchFile:
    options = {"folder": folder, "name": "big", "reserve": True, "anywhere": True, "head": 0, "max_resident": None}
    file = _core.create_scratch(256 * MIB, **options)
    file.write(0, bytes(256 * MIB))
    return file


def dropped_view(owner: _core.Mapping | _core.ScratchFile, *part: int) -> Callable[[], object]:
    views = [owner.view(*part)]
    owner.close()
    return views.clear


def dropped_arrays(folder: Path) -> Callable[[], object]:
    oc.save(folder / "big.oc", {"a": np.zeros(256 * MIB, np.uint8)})
    files = [_core.open_arrays(folder / "big.oc", copy=True)[0]]
    return files.clear


def saved_dict(folder: Path) -> Callable[[], object]:
    builder = _core.RecordBuilder(folder, "dict", {})
    builder.extend(((f"key-{i}", i) for i in range(200_000)), lambda _: None)
    return lambda: os.close(builder.save_nameless(str(folder)))


LONG_CALLS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "a copy is closed": lambda folder: copied(folder).close,
    "a view of a copy is dropped": lambda folder: dropped_view(copied(folder), 0, 10),
    "arrays are dropped": dropped_arrays,
    "a scratch file is closed": lambda folder: written(folder).close,
    "a view of a scratch file is dropped": lambda folder: dropped_view(written(folder)),
    "a dict is saved": saved_dict,
}


@pytest.mark.parametrize("name", LONG_CALLS)
def test_other_threads_run_while_memory_is_freed_and_an_index_is_built(tmp_path, name):
    # On a busy machine the other thread may not get a CPU in time; a call that keeps the GIL never lets it run.
    assert any(turns_of_another_thread(LONG_CALLS[name](tmp_path)) for _ in range(40))


ROWS = [{"text": "x" * 1000, "number": number} for number in range(5000)]


def own_path(folder: Path) -> Path:
    return folder / f"{os.getpid()}-{threading.get_ident()}"


def verified(path: Path) -> None:
    with oc.open(path) as file:
        file.verify()
        file.warm(verify=True)


def mapped(path: Path) -> None:
    with oc.Mapping(path) as mapping:
        for call in (oc.files.pin, oc.files.unpin, oc.residency, oc.evict):
            call(mapping)


def copied_into_sealed_memory(path: Path) -> None:
    with path.open("rb") as file, contextlib.suppress(OSError):  # another process has made pages of the file dirty
        _core.take_snapshot(file.fileno(), "snapshot").close()


def saved(path: Path) -> None:
    oc.save(own_path(path.parent), {"a": np.ones(4 * MIB, np.uint8)}, durable=False)
    own_path(path.parent).unlink()


def built_and_pruned(path: Path) -> None:
    store = oc.Store(path.parent / "store")
    store.get_or_build(f"{own_path(path)}", lambda target: oc.save(target, {"a": np.ones(MIB, np.uint8)}))
    store.ls()
    store.prune(max_bytes=0)


def written_scratch(path: Path) -> None:
    with oc.scratch((4, MIB), np.uint8, dir=path.parent) as scratch:
        scratch.array[:] = 1
        for call in (scratch.flush, scratch.release, scratch.prefetch):
            call()
        scratch.save(own_path(path.parent))
    own_path(path.parent).unlink()


@functools.cache
def shared_rows() -> oc.records.Table:
    return oc.share(ROWS)


def read_rows(_path: Path) -> None:
    assert shared_rows()[10:4000] == ROWS[10:4000]
    shared_rows().__arrow_c_stream__()


def saved_object(path: Path) -> None:
    oc.save_object(own_path(path.parent), [np.ones(MIB), ROWS])
    assert oc.load_object(own_path(path.parent), trusted=True)[0].sum() == MIB
    own_path(path.parent).unlink()


CALLS_DURING_FORKS: dict[str, Callable[[Path], object]] = {
    "warm": oc.warm,
    "background": lambda path: oc.warm(path, wait=False).wait(),
    "copy": lambda path: oc.open(path, mode="copy").close(),
    "verify": verified,
    "mapping": mapped,
    "snapshot": copied_into_sealed_memory,
    "checksum": lambda path: _core.crc32c(path.read_bytes()),
    "save": saved,
    "store": built_and_pruned,
    "scratch": written_scratch,
    "rows": read_rows,
    "share": lambda _: oc.share({str(number): row for number, row in enumerate(ROWS)}).close(),
    "object": saved_object,
}


@pytest.mark.unsanitized  # a fork may leave the locks of AddressSanitizer's allocator locked in the child
@pytest.mark.parametrize("name", CALLS_DURING_FORKS)
def test_a_child_that_is_forked_during_a_long_call_makes_the_same_call(tmp_path, name):
    path = tmp_path / "arrays.oc"
    oc.save(path, {"a": np.ones(16 * MIB, np.uint8), "b": np.arange(1000)})
    call = CALLS_DURING_FORKS[name]
    call(path)  # imports what it needs: a child has no lock of an import that another thread has begun
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            call(path)

    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(repeat) for _ in range(2)]
        try:
            for _ in range(rounds(5, 60)):
                pid = os.fork()
                if pid == 0:
                    try:
                        signal.signal(
                            signal.SIGALRM, signal.SIG_DFL
                        )  # a lock that stays locked blocks Python's handlers
                        signal.alarm(60)
                        call(path)
                        os._exit(0)
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(1)
                assert status_of(pid) == 0
        finally:
            stop.set()
    shared_rows.cache_clear()
    assert [thread.result() for thread in threads] == [None, None]


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
