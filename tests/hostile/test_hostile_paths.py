"""What stands at a path instead of a good file, strange paths to good files, and files that change."""

import errno
import os
import random
import re
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.refusals import refusal

import onecopy as oc
import onecopy.records
from onecopy import cli
from onecopy_monitor import read_recording

pytestmark = pytest.mark.timeout(100)
NOT_REGULAR = "open: not a regular file (a FIFO, socket or device): it cannot be mapped"


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def make_terminal(path: Path) -> tuple[int, int]:
    """Link to a terminal; return what keeps it there until it is closed."""
    ends = os.openpty()
    path.symlink_to(os.ttyname(ends[1]))
    return ends


def make_loop(path: Path) -> None:
    path.symlink_to(path.with_name("other"))
    path.with_name("other").symlink_to(path)


PLACES: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "nothing": (Path.exists, errno.ENOENT, "open: No such file or directory"),
    "a folder": (Path.mkdir, errno.EISDIR, "Is a directory"),
    "a FIFO without a writer": (os.mkfifo, errno.ENODEV, NOT_REGULAR),
    "a socket": (make_socket, errno.ENXIO, "open: No such device or address"),
    "a device of zeros": (lambda path: path.symlink_to("/dev/zero"), errno.ENODEV, NOT_REGULAR),
    "a terminal": (make_terminal, errno.ENODEV, NOT_REGULAR),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), errno.ENOENT, "open: No such file or directory"),
    "a loop of links": (make_loop, errno.ELOOP, f"open: {os.strerror(errno.ELOOP)}"),
    "a file of /proc": (lambda path: path.symlink_to("/proc/self/status"), errno.ENODATA, "map: the file is empty"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_no_regular_file_is_reported_at_once(tmp_path, kind, capsys):
    make, number, text = PLACES[kind]
    path = tmp_path / "place"
    opened = make(path)
    with pytest.raises(OSError, match=re.escape(text)) as raised:
        oc.open(path)
    assert (raised.value.errno, raised.value.strerror, raised.value.filename) == (number, text, str(path))
    assert cli.main(["ls", str(path)]) == 1
    assert capsys.readouterr() == ("", f"onecopy: {path}: {text}\n")
    for fd in opened if isinstance(opened, tuple) else ():
        os.close(fd)


@pytest.mark.parametrize("read", [oc.images.open, oc.images.decode, onecopy.records.import_parquet, read_recording])
def test_a_fifo_keeps_no_other_reader_waiting(tmp_path, read):
    if read is onecopy.records.import_parquet:
        pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    os.mkfifo(path)
    with pytest.raises(OSError, match=re.escape(f"not a regular file (a FIFO, socket or device): '{path}'")) as refused:
        read(*([path, tmp_path / "out.oc"] if read is onecopy.records.import_parquet else [path]))
    assert refused.value.errno == errno.ENODEV


@pytest.mark.parametrize("name", [b"two\nlines", b"\xff\xfe", b"\x1b[2J", "\u202egpj".encode(), b"-n", b" ", b"a'\"\\"])
def test_strange_paths_work_and_errors_print_them_harmlessly(tmp_path, name, capsys, monkeypatch):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    oc.save(path, {"a": np.arange(3)})
    assert oc.open(path)["a"].tolist() == oc.open(os.fsencode(path))["a"].tolist() == [0, 1, 2]
    path.write_bytes(b"1234567")
    with pytest.raises(oc.FormatError) as raised:
        oc.open(path)
    assert (refusal(raised.value), raised.value.path) == ("truncated at 7", str(path))
    reason = str(raised.value).removeprefix(str(path))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["ls", "--", os.fsdecode(name)]) == 1
    told = capsys.readouterr().err
    assert told.endswith(reason + "\n")
    assert told[:-1].isprintable()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    oc.save(path, {"a": np.arange(100_000), "b": np.arange(5)})
    return path


def spoil_while_opening(path: Path, rounds: int, mode: str) -> dict[str, int]:
    """Open a file that is cut, grown and overwritten all the time; count what opening says."""
    good = path.read_bytes()
    stop = threading.Event()
    dice = random.Random(1)

    def spoil() -> None:
        with path.open("r+b") as file:
            while not stop.is_set():
                file.truncate(dice.choice([0, 7, 8, 100, 4096, len(good) - 1]))
                file.seek(0)
                file.write(good if dice.random() < 0.9 else bytes(4096))
                file.flush()

    thread = threading.Thread(target=spoil)
    thread.start()
    told: dict[str, int] = {}
    for _ in range(rounds):
        try:
            oc.open(path, mode).close()
            answer = "opened"
        except (oc.FormatError, OSError) as error:
            answer = type(error).__name__
        told[answer] = told.get(answer, 0) + 1
    stop.set()
    thread.join()
    return told


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.filterwarnings("ignore:.*checksum")
def test_a_file_that_changes_while_it_is_opened_opens_or_is_an_error_and_never_a_signal(model, in_child, mode):
    told = in_child(spoil_while_opening, model, 3000, mode)
    assert sum(told.values()) == 3000
    assert set(told) <= {"opened", "FormatError", "OSError", "DataLost"}
    assert told["FormatError"] > 0


def test_opening_is_stopped_by_no_signal(model, in_child):
    def open_under_fire() -> int:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(2000):
            oc.open(model, "copy").close()
        signal.setitimer(signal.ITIMER_REAL, 0)
        return 2000

    assert in_child(open_under_fire) == 2000
