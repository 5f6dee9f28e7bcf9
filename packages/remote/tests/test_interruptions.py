"""Neither an interrupt nor an exception of `progress` waits for a server that is slow or silent."""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from tests.support.object_server import Fault
from tests.support.waiting import PATIENCE, until

from onecopy_remote import fetch, origin, steps, transfer

obstore = pytest.importorskip("obstore", reason="obstore is not installed")
CONTENT = os.urandom(1 << 20)


def ended(work) -> bool:
    """Return whether a call ends by an InterruptedError while the server is silent."""
    raised = []

    def run() -> None:
        try:
            work()
        except InterruptedError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(raised)


def stop(done, total):
    raise InterruptedError


@pytest.mark.parametrize("begins", [False, True])
def test_an_exception_of_progress_does_not_wait_for_the_server(objects, store, monkeypatch, begins):
    monkeypatch.setitem(origin._CLIENT, "read_timeout", "1 day")
    url = objects.put("x", CONTENT)
    if begins:
        objects.faults.extend([Fault(cut=1000, stall=2 * PATIENCE)] * 100)
    else:
        objects.on_data = lambda _: objects.ended.wait(2 * PATIENCE)
    assert ended(lambda: fetch(url, store=store, progress=stop))


def test_what_an_interrupt_stops_has_ended_when_it_is_passed_on():
    waits, stopped, ended = threading.Event(), threading.Event(), threading.Event()

    def step() -> None:
        waits.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        stopped.wait(PATIENCE)
        time.sleep(0.1)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        steps.run([step], stopped.set, waits.set)
    assert ended.is_set()


def test_a_fetch_that_is_stopped_waits_for_the_threads_of_obstore(objects, store, monkeypatch):
    """A thread of obstore that calls Python when the process ends would panic."""
    used: list[Any] = []
    left = threading.Event()
    get = obstore.get_async

    def get_async(*arguments: Any, **options: Any) -> Any:
        used.append(get(*arguments, **options))
        return used[-1]

    def leave() -> None:  # after the cancellation, as a thread that has no CPU
        until(lambda: used and used[0].cancelled())
        time.sleep(0.1)
        left.set()
        used.clear()

    monkeypatch.setattr(obstore, "get_async", get_async)
    objects.on_data = lambda _: objects.ended.wait(2 * PATIENCE)
    thread = threading.Thread(target=leave)
    thread.start()
    with pytest.raises(InterruptedError):
        fetch(objects.put("x", CONTENT), store=store, progress=lambda *_: stop(*_) if used else None)
    assert left.is_set()
    thread.join()


@pytest.mark.parametrize("step", ["version", "data", "version of a shard"])
def test_a_process_ends_at_an_interrupt_whatever_it_waits_for(objects, tmp_path, step):
    asked = threading.Event()
    index = objects.put("m.safetensors.index.json", b'{"weight_map": {"a": "a.safetensors"}}')
    objects.put("a.safetensors", CONTENT)
    name = "a.safetensors" if step == "version of a shard" else "m.safetensors.index.json"

    def mute(request):
        if request.path == name and (step == "data") == (request.begin != request.end):
            asked.set()
            objects.ended.wait(2 * PATIENCE)

    objects.on_request = mute
    code = "import sys; from onecopy.remote import fetch; fetch(sys.argv[1])"
    environment = os.environ | {"ONECOPY_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen([sys.executable, "-c", code, index], env=environment, stderr=subprocess.PIPE) as process:
        assert asked.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == b"KeyboardInterrupt"


def test_a_server_that_sends_too_slowly_is_an_error(objects, store, monkeypatch):
    monkeypatch.setattr(origin, "_CHUNK_S", 0.1)
    monkeypatch.setattr(transfer, "_TRIES", 2)
    url = objects.put("x", CONTENT)
    objects.faults.extend([Fault(cut=1000, stall=2 * PATIENCE)] * 100)
    with pytest.raises(ConnectionError, match=r"the server sent fewer than 16384 bytes in 0\.1 s") as raised:
        fetch(url, store=store, connections=1)
    assert raised.value.filename == url


def test_a_request_that_became_slow_is_continued_where_it_stopped(objects, store, monkeypatch):
    monkeypatch.setattr(origin, "_CHUNK_S", 0.5)
    url = objects.put("x", CONTENT)
    objects.faults.append(Fault(cut=600_000, stall=2 * PATIENCE))
    assert fetch(url, store=store, connections=1).read_bytes() == CONTENT
    assert objects.asked < 2 * len(CONTENT)


@pytest.mark.parametrize("first", [1000, 600_000])
def test_a_server_that_sends_little_with_each_answer_is_an_error(objects, store, first):
    url = objects.put("x", CONTENT)
    objects.faults.extend([Fault(cut=first), *[Fault(cut=1000)] * 100])
    with pytest.raises(ConnectionError):
        fetch(url, store=store, connections=1)
    assert objects.served < first + len(CONTENT) // 4


def test_what_was_interrupted_is_continued(objects, store, small_pieces):
    url = objects.put("x", CONTENT)
    release = threading.Event()
    objects.on_data = lambda one: release.wait(PATIENCE) if one.begin > len(CONTENT) // 2 else None

    def stop_late(done, total):
        if done > total // 4:
            raise InterruptedError

    assert ended(lambda: fetch(url, store=store, connections=2, progress=stop_late))
    release.set()
    objects.on_data, objects.served = None, 0
    assert fetch(url, store=store).read_bytes() == CONTENT
    assert objects.served < len(CONTENT)
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith("onecopy-")])
