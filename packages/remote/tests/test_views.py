"""Links to artefacts, made while other processes prune."""

import fcntl
import os
import signal
import threading

from onecopy.store.store import locked_folder, sweep_views
from onecopy_remote import views


def test_a_link_is_made_while_empty_views_are_swept(store):
    artefact = store.folder / "artefact"
    artefact.write_text("content")
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            sweep_views(store.folder)

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
    with locked_folder(folder, fcntl.LOCK_EX):
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
