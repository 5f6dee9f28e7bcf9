"""Links to artefacts, made while other processes prune; and temporary paths of files that are being written."""

import fcntl
import os
import signal
import threading
from pathlib import Path

from onecopy.atomic_files import path_beside
from onecopy.store import views


def test_a_link_is_made_while_empty_views_are_swept(store):
    artefact = store.folder / "artefact"
    artefact.write_text("content")
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            views.sweep(store.folder)

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        for number in range(200):
            assert views.link(views.view(store.folder, str(number)), "model.bin", artefact).read_text() == "content"
    finally:
        stop.set()
        thread.join()


def test_a_child_that_is_forked_during_a_sweep_does_not_keep_its_lock(store):
    folder = views.view(store.folder, "1").parent
    with views._locked(folder, fcntl.LOCK_EX):
        child = os.fork()
        if child == 0:
            signal.pause()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_two_threads_of_a_process_write_one_target_under_different_names(tmp_path):
    target = tmp_path / "target"
    first = path_beside(target)
    first.write_text("being written")
    assert path_beside(target) != first
    assert first.exists()


def test_what_a_killed_process_left_is_removed_and_what_another_namespace_writes_is_not(tmp_path):
    target = tmp_path / "target"
    child = os.fork()
    if child == 0:
        path_beside(target).write_text("left")
        os._exit(0)
    os.waitpid(child, 0)
    [left] = tmp_path.iterdir()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    assert f"{namespace:x}-{child}" in left.name
    foreign = left.with_name(left.name.replace(f"{namespace:x}", f"{namespace + 1:x}"))
    foreign.write_text("a process that has this PID in another namespace writes it")
    path_beside(target)
    assert list(tmp_path.iterdir()) == [foreign]
