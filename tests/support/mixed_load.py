"""What a worker of `tests/support/long_run.py` does: at random it opens, saves, shares, builds, fetches and prunes.

What a file contains follows from a number, which is in the file; the name says which numbers it may have. All bytes
that are read are compared. An error that the documentation does not announce, or that names no path, is a failure.
"""

import contextlib
import errno
import functools
import json
import os
import pickle
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.support import children

import onecopy as oc

MIB = 1 << 20
FILES, KEYS, SIZE = 4, 6, MIB
"""Files of each kind that are replaced, keys of each kind in the store, and bytes of the array in each."""
LIMIT = 24 * MIB
"""Bytes that the store may have after a prune."""


class BrokenPromiseError(Exception):
    """A promise does not hold; the message says what was found."""


class BuildError(Exception):
    """Raised by a build function on purpose."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise BrokenPromiseError(what)


def content(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def save(path: Path, seed: int, size: int = SIZE) -> None:
    oc.save(path, {"head": np.arange(seed % 97), "content": content(seed, size)}, metadata={"seed": str(seed)})


def check(file: oc.ArrayFile, number: int | None = None) -> int:
    """Compare all bytes of an open file; return its seed. `number`: which of the `FILES` it must be."""
    seed = int(file.metadata["seed"])
    expect(number is None or seed % FILES == number, f"{file.path}: the file of seed {seed} in the place of {number}")
    if "content" in file:
        found = file["content"]
        expect(np.array_equal(found, content(seed, len(found))), f"{file.path}: wrong bytes of seed {seed}")
    expect(np.array_equal(file["head"], np.arange(seed % 97)), f"{file.path}: wrong bytes in the head of seed {seed}")
    return seed


def rows_of(seed: int) -> list[dict[str, Any]]:
    return [{"id": i, "seed": seed, "name": f"row {i} of {seed}", "box": [i / 3, None, seed]} for i in range(300)]


def of_input(path: str) -> list[dict[str, Any]]:
    return rows_of(seed_in(path))


def object_of_input(path: str) -> dict[str, Any]:
    seed = seed_in(path)
    return {"seed": seed, "array": content(seed), "parts": [np.arange(10), "text"]}


def seed_in(path: str | Path) -> int:
    return int(json.loads(Path(path).read_text())["seed"])


# --- the actions of a worker ---


@dataclass
class Ground:
    """What all workers use: folders and the origin of remote files."""

    folder: str
    url: str
    """Empty where there is no obstore."""
    disk: str
    """The kind of the small disk in the folder "disk"; empty where none can be mounted."""
    group: str
    """The folder of the control group that limits the page cache; empty where none can be made."""

    def place(self, kind: str, number: int) -> Path:
        return Path(self.folder, kind, f"{number}.oc")


@dataclass
class Worker:
    """The random choices of a worker in a round, and what it has done."""

    ground: Ground
    dice: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def choose(self) -> Callable[["Worker"], None]:
        return self.dice.choices(list(ACTIONS), list(ACTIONS.values()))[0]

    def coin(self) -> bool:
        return self.dice.random() < 0.5

    def seed(self, number: int) -> int:
        return self.dice.randrange(10**6) * FILES + number

    def one(self, kind: str = "files") -> tuple[int, Path]:
        number = self.dice.randrange(FILES)
        return number, self.ground.place(kind, number)

    def store(self, name: str = "store") -> oc.Store:
        return oc.Store(Path(self.ground.folder, name), where=self.dice.choice(("here", "fork")), timeout=90)


def in_child(function: Callable[..., object], *arguments: object) -> None:
    """Call a function, which raises or not, in a forked child. The driver may kill the child."""
    try:
        children.call_in_child(lambda: (function(*arguments), None)[1], seconds=60)
    except children.ChildKilledError as error:
        expect("SIGKILL" in str(error), f"a child died of {error}")


def opened(path: Path, number: int) -> None:
    with oc.open(path) as file:
        check(file, number)


def read(work: Worker) -> None:
    """Read a file, which may be replaced meanwhile; what is open stays what it is."""
    number, path = work.one()
    with oc.open(path, work.dice.choice(("map", "map", "copy", "snapshot", "auto")), warm=work.coin()) as file:
        seed = check(file, number)
        if work.coin():
            save(path, work.seed(number))
            opened(path, number)
        if work.coin():
            in_child(check, file, number)
        if work.coin():
            oc.evict(path)
            file.verify()
            oc.residency(file)
        expect(check(file, number) == seed, f"{path}: another file than before")


def replace(work: Worker) -> None:
    """Replace a file, and an input of cached functions."""
    number, path = work.one()
    save(path, work.seed(number))
    text = work.ground.place("inputs", number)
    new = text.with_name(f".{os.getpid()}")
    new.write_text(json.dumps({"seed": work.seed(number)}))
    new.replace(text)


def fork_during_opens(work: Worker) -> None:
    """Fork while a thread opens and closes files; the children open them too."""
    number, path = work.one()
    ended = threading.Event()

    def open_and_close() -> None:
        while not ended.is_set():
            opened(path, number)

    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_and_close)
        try:
            for _ in range(3):
                in_child(opened, path, number)
        finally:
            ended.set()
        opening.result()


def build(work: Worker) -> None:
    """Get an artefact that another worker may be building; the build may fail, and the artefact may be removed."""
    store, seed = work.store(), work.dice.randrange(KEYS)
    fails = work.dice.random() < 0.1

    def write(path: Path) -> None:
        time.sleep(0.02)
        if fails:
            raise BuildError
        save(path, seed)

    with contextlib.suppress(BuildError):
        artefact = store.get_or_build(f"array {seed}", write)
        if work.coin():
            store.prune(keys=[f"array {seed}"])
        with oc.open(artefact) as file:
            expect(check(file) == seed, f"{artefact.path}: another artefact")


def share_rows(work: Worker) -> None:
    """Share rows by a key, in the store or in memory, or without a key; others attach to them."""
    seed = work.dice.randrange(KEYS)
    rows: Any
    if named := work.coin():
        store = work.store() if work.coin() else oc.Store(place="memory", timeout=90)
        rows = oc.share(functools.partial(rows_of, seed), f"rows {seed}", store=store)
    else:
        rows = oc.share(rows_of(seed))
    with contextlib.closing(rows):
        expect(rows[:] == rows_of(seed), f"wrong rows of seed {seed}, named: {named}")
        if work.coin():
            text = pickle.dumps(rows)
            in_child(lambda: expect(pickle.loads(text)[:] == rows_of(seed), f"wrong attached rows of seed {seed}"))
        in_child(lambda: expect(rows[7] == rows_of(seed)[7], f"a wrong row of seed {seed} after a fork"))


def call_cached(work: Worker) -> None:
    """Call a cached function of a file that others replace: the result is that of the file as it was in the call."""
    number, path = work.one("inputs")
    codec = work.dice.choice(("records", "object"))
    function: Any = of_input if codec == "records" else object_of_input
    before = path.stat(), path.read_text()
    made = oc.cached(inputs=lambda path: [path], codec=codec, store=work.store())(function)(str(path))
    seed = made[0]["seed"] if codec == "records" else made["seed"]
    expect(seed % FILES == number, f"{path}: the result of another file, seed {seed}")
    if before == (path.stat(), path.read_text()):
        expect(before[1] == json.dumps({"seed": seed}), f"{path}: an old result, seed {seed}, not {before[1]}")
    if codec == "object":
        expect(np.array_equal(made["array"], content(seed)), f"{path}: a wrong array of seed {seed}")
        return
    with contextlib.closing(made):
        expect(made[:] == rows_of(seed), f"{path}: wrong rows of seed {seed}")


def fill_scratch(work: Worker) -> None:
    """Write a scratch array; save it over a file that others read, or seal it."""
    number, path = work.one("scratch")
    seed = work.seed(number)
    expected = content(seed, 2 * SIZE).reshape(8, -1)
    with oc.scratch(expected.shape, "u1", path.parent, max_resident="1 MiB") as array:
        for row, part in enumerate(expected):
            array.write(row, part)
        if work.coin():
            found = array.seal()
            expect(np.array_equal(found.array, expected), f"wrong bytes in scratch of seed {seed}")
            return
        array.save(path, name="content", metadata={"seed": str(seed)})
    with oc.open(path, verify=True) as file:  # of this worker or another one
        seed = int(file.metadata["seed"])
        expect(np.array_equal(file["content"].ravel(), content(seed, 2 * SIZE)), f"{path}: wrong bytes of seed {seed}")


def fill_disk(work: Worker) -> None:
    """Write more than a small disk may have: a file is whole, or there is an error and no file."""
    if not work.ground.disk:
        return
    number, path = work.one("disk")
    seed, size = work.seed(number), work.dice.randrange(1, 6) * MIB
    try:
        if work.coin():
            save(path, seed, size)
        else:
            store = work.store("disk/store")
            with oc.open(store.get_or_build(f"{size}", lambda target: save(target, size, size))) as file:
                expect(check(file) == size, f"{file.path}: another artefact")
    finally:
        with contextlib.suppress(FileNotFoundError):  # another worker removed it
            opened(path, number)
            if work.coin():
                path.unlink()


def fetch(work: Worker) -> None:
    """Open a remote file, whole or in part, that is replaced at its origin, which fails now and then."""
    if not work.ground.url:
        return
    number = work.dice.randrange(FILES)
    url = f"{work.ground.url}/{number}.safetensors"
    with oc.open(url, names=["head"] if work.coin() else None) as file:
        check(file, number)


def prune(work: Worker) -> None:
    """Remove artefacts beside their readers."""
    store = work.store()
    options: list[dict[str, Any]] = [{}, {"max_bytes": LIMIT}, {"max_age": 1}, {"missing_source": True}]
    store.prune(**work.dice.choice(options), dry_run=work.dice.random() < 0.2)
    store.ls()


def press(work: Worker) -> None:
    """Take the page cache from the files: by reading zeros, where a control group limits it, or by evicting them."""
    if work.ground.group and work.dice.random() < 0.3:
        with Path(work.ground.folder, "zeros").open("rb", buffering=0) as file:
            while file.readinto(BUFFER) > 0:
                pass
    for kind in ("files", "scratch"):
        for path in Path(work.ground.folder, kind).glob("*.oc"):
            with contextlib.suppress(FileNotFoundError):
                oc.evict(path)


BUFFER = bytearray(MIB)
ACTIONS = {read: 4, replace: 2, fork_during_opens: 1, build: 4, share_rows: 3, call_cached: 3, fill_scratch: 2}
ACTIONS |= {fill_disk: 2, fetch: 2, prune: 1, press: 1}
"""Each with how often it is chosen."""


def is_documented(error: BaseException, action: str) -> bool:
    """Return whether the documentation announces an error for an action, and the error names its path."""
    if isinstance(error, ChildProcessError):  # the driver kills children that build
        return "SIGKILL" in str(error)
    if not isinstance(error, OSError) or not error.filename:
        return False
    changed, origin = oc.errors.FileChanged, (ConnectionError, TimeoutError, PermissionError, FileNotFoundError)
    return {
        "call_cached": isinstance(error, changed),
        "fetch": isinstance(error, (*origin, changed)) and str(error.filename).startswith("http"),
        "fill_disk": error.errno == errno.ENOSPC,
    }.get(action, False)
