"""What stands at a path instead of a good file, strange paths to good files, and files that change."""

import errno
import os
import random
import re
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.refusals import os_error, refusal

import onecopy as oc
import onecopy.records
from onecopy import cli
from onecopy_monitor import read_recording

pytestmark = pytest.mark.timeout(100)


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


PLACES: dict[str, tuple[Callable[[Path], object], int]] = {
    "nothing": (Path.exists, errno.ENOENT),
    "a folder": (Path.mkdir, errno.EISDIR),
    "a FIFO without a writer": (os.mkfifo, errno.ENODEV),
    "a socket": (make_socket, errno.ENXIO),
    "a device of zeros": (lambda path: path.symlink_to("/dev/zero"), errno.ENODEV),
    "a terminal": (make_terminal, errno.ENODEV),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), errno.ENOENT),
    "a loop of links": (make_loop, errno.ELOOP),
    "a file of /proc": (lambda path: path.symlink_to("/proc/self/status"), errno.ENODATA),
}


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_no_regular_file_is_reported_at_once(tmp_path, kind, capsys):
    make, number = PLACES[kind]
    path = tmp_path / "place"
    opened = make(path)
    with pytest.raises(OSError, match=str(path)) as raised:
        oc.open(path)
    assert (raised.value.errno, raised.value.filename) == (number, str(path))
    assert number != errno.ENODEV or "not a regular file (a FIFO, socket or device)" in str(raised.value)
    assert cli.main(["ls", str(path)]) == 1
    assert capsys.readouterr() == ("", f"onecopy: {path}: {raised.value.strerror}\n")
    for fd in opened if isinstance(opened, tuple) else ():
        os.close(fd)


@pytest.mark.parametrize("read", [oc.images.open, oc.images.decode, onecopy.records.import_parquet, read_recording])
def test_a_fifo_keeps_no_other_reader_waiting(tmp_path, read):
    if read is onecopy.records.import_parquet:
        pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    os.mkfifo(path)
    with os_error(errno.ENODEV, match=re.escape(f"not a regular file (a FIFO, socket or device): '{path}'")):
        read(*([path, tmp_path / "out.oc"] if read is onecopy.records.import_parquet else [path]))


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


def spoil_while_opening(path: Path, rounds: int, mode: str) -> Counter[str]:
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
    told = Counter[str]()
    for _ in range(rounds):
        try:
            oc.open(path, mode).close()
            told["opened"] += 1
        except (oc.FormatError, OSError) as error:
            told[type(error).__name__] += 1
    stop.set()
    thread.join()
    return told


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.filterwarnings("ignore:.*checksum")
def test_a_file_that_changes_while_it_is_opened_opens_or_is_an_error_and_never_a_signal(model, in_child, mode):
    told = in_child(spoil_while_opening, model, 3000, mode)
    assert told.total() == 3000
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
