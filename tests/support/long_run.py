"""A mixed load for hours, in which all promises are checked.

    python -m tests.support.long_run --minutes 360 --state FILE

In each round workers that are forked or spawned use the library (`tests/support/mixed_load.py`); two of them live for
many rounds. Workers, and their children that build, are killed at random moments. After each action a worker counts its
descriptors, mappings, threads and children. After each round the driver checks the files, the space of a small disk,
the processes, the memory of the lasting workers, and that several readers of a file have one physical copy.

A round prints a line, and is recorded in the file of --state, from which the same command goes on. A failure prints the
seed and the plan of the round, keeps the folder, and ends with status 1; the next call begins with that round.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib.util
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support import children, isolation, leaks, memory_group, mixed_load, small_disks
from tests.support.mixed_load import FILES, LIMIT, MIB, SIZE, BrokenPromiseError, Ground, check, expect, save
from tests.support.object_server import Fault, Request, serving
from tests.support.places import TEMPORARY
from tests.support.waiting import PATIENCE, until

import onecopy as oc
from onecopy.memory import proc

GROUP = 768 * MIB
"""The limit of the control group of the workers, which read a file of zeros twice as large."""
SECONDS = 4.0
"""Length of the work in a round."""
WARM, LIFE = 5, 150
"""A lasting worker ends after `LIFE` rounds; the first `WARM` are not compared: modules are imported in them."""
MORE = {"descriptors": 16, "mappings": 100, "anonymous": 32 * MIB}
"""What a lasting worker may have gained since its first rounds: connections, and 16 arenas of malloc on two CPUs."""
READERS = 3


# --- a worker ---


def held() -> Counter[str]:
    """Count what an action may not leave in this process."""
    own = Counter(f"child {pid}" for pid in children.children_of(os.getpid()))
    return leaks.descriptors_of_tests() + leaks.mappings() + leaks.threads() + own


def play(ground: Ground, seed: str, seconds: float) -> dict[str, Any]:
    """Work for some time; return what was done, and what this process has."""
    work, errors, end = mixed_load.Worker(ground, random.Random(seed)), Counter[str](), time.monotonic() + seconds
    name = ""
    try:
        while time.monotonic() < end:
            action, before = work.choose(), held()
            name = action.__name__
            try:
                action(work)
            except Exception as error:
                if not mixed_load.is_documented(error, name):
                    raise
                errors[type(error).__name__] += 1
            work.done[name] += 1
            for pause in (0, 0.01, 0.1, 1, 2):
                if not held() - before:
                    break
                gc.collect()
                time.sleep(pause)
            left = sorted(held() - before)
            expect(not left, f"left behind: {', '.join(left)}")
    except BaseException:
        return {"failure": f"{name}: {traceback.format_exc()}"}
    gc.collect()
    return {
        "done": work.done,
        "errors": errors,
        "descriptors": len(children.descriptors()),
        "mappings": Path("/proc/self/maps").read_text().count("\n"),
        "anonymous": proc.rollup(os.getpid()).anonymous,
    }


def serve(ground: Ground, driver: Connection) -> None:
    """Answer each message with a report, until the driver sends None."""
    end_with_driver()
    if ground.group:
        memory_group.enter(Path(ground.group))
    while message := driver.recv():
        driver.send(play(ground, *message))


def end_with_driver() -> None:
    """Let the kernel kill this process when the driver ends, and not before; Ctrl-C is for the driver."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Process:
    """A worker as the driver sees it, forked or spawned."""

    def __init__(self, ground: Ground, how: str) -> None:
        self.killed, self.reports = False, list[dict[str, Any]]()
        context: Any = multiprocessing.get_context(how)
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(ground, theirs), daemon=True)
        self.process.start()
        self.pid: int = self.process.pid
        theirs.close()

    def report(self) -> dict[str, Any] | None:
        """Wait for the report; None if the driver killed the process."""
        try:
            self.reports.append(self.pipe.recv())
        except (EOFError, ConnectionResetError):
            self.process.join()
            expect(self.killed and self.process.exitcode == -signal.SIGKILL, self.state())
            return None
        expect("failure" not in self.reports[-1], self.reports[-1].get("failure", ""))
        return self.reports[-1]

    def state(self) -> str:
        return f"worker {self.pid} ended with status {self.process.exitcode}"

    def end(self, *, now: bool = False) -> None:
        """End the process, which is idle, and check its status; `now`: kill it, if it has not ended."""
        with contextlib.suppress(BrokenPipeError):
            self.process.kill() if now else self.pipe.send(None)
        self.process.join()
        expect(now or self.process.exitcode == (-signal.SIGKILL if self.killed else 0), self.state())
        self.process.close()
        self.pipe.close()

    def kill(self, pid: int) -> None:
        self.killed |= pid == self.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# --- the origin of remote files ---


@contextlib.contextmanager
def origin() -> Iterator[str]:
    """Give the URL of a server in a process of its own; its objects change, and some of its answers fail."""
    ours, theirs = multiprocessing.Pipe()
    with children.forked(lambda: serve_objects(theirs)), ours, theirs:
        yield ours.recv()


def serve_objects(announce: Connection) -> None:
    end_with_driver()
    signal.alarm(0)  # of `children.fork`
    dice, seeds = random.Random(1), itertools.count(1)
    faults = [Fault(503), Fault(500), Fault(403), Fault(404), Fault(cut=1000), Fault(cut=0, stall=0.2)]
    faults += [Fault(cut=1000, announced=False)]

    def put(number: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder, "made"), next(seeds) * FILES + number)
            objects.put(f"{number}.safetensors", Path(folder, "made").read_bytes())

    def disturb(_request: Request) -> None:
        objects.requests.clear()
        if (chance := dice.random()) < 0.05:
            put(dice.randrange(FILES))
        elif chance < 0.25:
            objects.faults.extend([dice.choice(faults)] * dice.choice((1, 1, 1, 12)))

    with serving() as objects:
        for number in range(FILES):
            put(number)
        objects.on_data = disturb
        announce.send(objects.url)
        signal.pause()


# --- the driver ---


class Driver:
    """Rounds in a folder. `shared_memory`: the folder of files in memory that only the workers use."""

    def __init__(self, ground: Ground, seed: int, shared_memory: Path) -> None:
        self.ground, self.seed, self.shared_memory = ground, seed, shared_memory
        self.folder = Path(ground.folder)
        self.store = oc.Store(self.folder / "store")
        self.lasting, self.brief, self.plan = list[Process](), list[Process](), list[str]()
        for kind in ("files", "inputs", "scratch", "disk"):
            (self.folder / kind).mkdir(exist_ok=True)
        for number in range(FILES):
            save(ground.place("files", number), number)
            ground.place("inputs", number).write_text(json.dumps({"seed": number}))
        with (self.folder / "zeros").open("wb") as file:
            file.truncate(2 * GROUP)
        resource_tracker.ensure_running()
        self.blocks = self.empty_disk()
        self.before = held()

    def round(self, number: int) -> str:
        """Let the workers work, kill some, and check what is left; return a line about it."""
        dice = random.Random(f"{self.seed} {number}")
        self.lasting += [Process(self.ground, ("fork", "spawn")[i]) for i in range(len(self.lasting), 2)]
        hows = dice.choices(("fork", "spawn"), (3, 1), k=dice.randint(2, 3))
        self.plan = [f"brief workers: {hows}"]
        self.brief = [Process(self.ground, how) for how in hows]
        workers = [*self.lasting, *self.brief]
        for place, worker in enumerate(workers):
            seed = f"{self.seed} {number} {place}"
            self.plan.append(f"worker {worker.pid}: seed {seed!r}")
            worker.pipe.send((seed, SECONDS))
        kills = self.kill_some(dice)
        found = [report for worker in workers if (report := worker.report())]
        while self.brief:
            self.brief.pop().end()
        lasting = self.check_lasting()
        done = sum((Counter(one["done"]) for one in found), Counter[str]())
        errors = sum((Counter(one["errors"]) for one in found), Counter[str]())
        return (
            f"{time.strftime('%H:%M:%S')} round {number}, seed {self.seed}: {len(workers)} workers, {kills} kills; "
            f"{in_words(done)}; expected errors: {in_words(errors) or 'none'}; {lasting}; {self.check_the_rest(number)}"
        )

    def kill_some(self, dice: random.Random) -> int:
        """Kill brief workers, and children of workers, at random moments; return how many."""
        begun, kills = time.monotonic(), 0
        for moment in sorted(dice.uniform(0, SECONDS) for _ in range(dice.randint(0, 6))):
            time.sleep(max(0, begun + moment - time.monotonic()))
            itself = dice.random() < 0.4
            victim = dice.choice(self.brief if itself else [*self.lasting, *self.brief])
            pids = [] if victim.killed else [victim.pid] if itself else children.descendants_of(victim.pid)
            for pid in pids[-1:]:
                self.plan.append(f"{pid} of {victim.pid}, killed after {moment:.1f} s")
                victim.kill(pid)
                kills += 1
        return kills

    def check_lasting(self) -> str:
        """Compare lasting workers with what they were after their first rounds; end those that are old."""
        for worker in self.lasting:
            now, first = worker.reports[-1], worker.reports[: WARM + 1][-1]
            for kind, more in MORE.items():
                what = f"{kind} of worker {worker.pid}, round by round: {[one[kind] for one in worker.reports]}"
                expect(now[kind] <= first[kind] + more, what)
        now = [worker.reports[-1] for worker in self.lasting]
        for worker in [one for one in self.lasting if len(one.reports) >= LIFE]:
            self.lasting.remove(worker)
            worker.end()
        found = (f"{kind} {' + '.join(f'{one[kind]:,}' for one in now)}" for kind in MORE)
        return f"lasting workers: {'; '.join(found)}"

    def check_the_rest(self, number: int) -> str:
        """Check processes, files and memory while all workers are idle; return what there is."""
        wait_for(children.orphans, "processes")
        for kind in ("files", "scratch"):
            save(self.ground.place(kind, 0), 0)  # removes what killed writers left
        known = {f"{kind}/{n}.oc" for kind in ("files", "inputs", "scratch") for n in range(FILES)} | {"zeros", "image"}
        others = ("store/", "disk/")  # and in "image" is the small disk
        wait_for(lambda: [name for name in names_in(self.folder) - known if not name.startswith(others)], "files")
        everything = number % 10 == 0
        self.store.prune(max_bytes=LIMIT, everything=everything)
        artefacts = self.store.ls()
        strange = [one for one in artefacts if one.state not in ("ready", "partial")]
        expect(not strange, f"left behind: in the store: {strange}")
        total, digests = sum(one.bytes for one in artefacts), {one.path.stem for one in artefacts}
        expect(total <= (0 if everything else LIMIT), f"{total} bytes in the store after a prune: {artefacts}")
        names = [name for name in names_in(self.store.folder) if Path(name).stem not in digests]
        names = [name for name in names if everything or not name.startswith("views/")]
        expect(not names, f"left behind: in the store: {names}")
        oc.Store(place="memory").prune(everything=True)
        wait_for(lambda: names_in(self.shared_memory), "files in memory")
        wait_for(lambda: self.empty_disk() - self.blocks, "blocks of the small disk")
        known_processes = Counter(f"child {one.pid}" for one in self.lasting)
        wait_for(lambda: sorted(held() - self.before - known_processes), "by the driver")
        return f"store {len(artefacts)} files, {total / MIB:.1f} MiB; {self.count_copies()}"

    def end(self) -> None:
        for worker in (*self.lasting, *self.brief):
            worker.end(now=True)

    def empty_disk(self) -> int:
        """Remove all files from the small disk; return the blocks in use."""
        if not self.ground.disk:
            return 0
        oc.Store(self.folder / "disk/store").prune(everything=True)
        for path in (self.folder / "disk").glob("*.oc"):
            path.unlink()
        save(self.ground.place("disk", 0), 0)  # removes what killed writers left
        self.ground.place("disk", 0).unlink()
        left = names_in(self.folder / "disk")
        expect(not left, f"left behind: on the small disk: {sorted(left)}")
        return small_disks.blocks_used(self.folder / "disk")

    def count_copies(self) -> str:
        """Let several processes read a file and keep it mapped; they have one copy of it together."""
        path, context = self.ground.place("files", 0), multiprocessing.get_context("fork")
        ready, go_on = context.Semaphore(0), context.Event()

        def read_and_wait() -> bool:
            with oc.open(path) as file:
                check(file, 0)
                ready.release()
                return go_on.wait(PATIENCE)

        pids = [children.fork(read_and_wait) for _ in range(READERS)]
        for _ in pids:
            ready.acquire(timeout=PATIENCE)
        regions = [region for pid in pids for region in proc.regions_of(pid, path)]
        pss, private = sum(one.memory.pss for one in regions), sum(one.memory.anonymous for one in regions)
        go_on.set()
        expect([children.status_of(pid) for pid in pids] == [0] * READERS, "a reader failed")
        size = path.stat().st_size
        expect(0.9 * SIZE < pss < size + MIB // 4, f"{READERS} readers of {size} bytes have {pss} bytes together")
        expect(private == 0, f"{READERS} readers have {private} bytes of their own")
        return f"{READERS} readers of {size / MIB:.2f} MiB have {pss / MIB:.2f} MiB"


def names_in(folder: Path) -> set[str]:
    """List the files below a folder, by their paths in it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def wait_for(left: Callable[[], Any], what: str) -> None:
    """Wait until nothing is left: processes that were killed take a moment to end."""
    with contextlib.suppress(AssertionError):
        until(lambda: not left(), seconds=8)
    found = left()
    expect(not found, f"left behind: {what}: {found}")


def in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


# --- the command ---


@contextlib.contextmanager
def driving(folder: Path, seed: int) -> Iterator[Driver]:
    """Give a driver, with what this machine has: mounts, control groups, obstore; print what it lacks."""
    own = isolation.have_own_shared_memory()
    (folder / "tmp").mkdir()
    os.environ |= {"HOME": str(folder / "home"), "ONECOPY_CACHE": str(folder / "store")}
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
    ground = Ground(str(folder), "", "", "")
    with contextlib.ExitStack() as stack:
        try:
            small_disks.mount("ext4" if seed % 2 else "tmpfs", folder / "disk")
            ground.disk = "ext4" if seed % 2 else "tmpfs"
            stack.callback(subprocess.run, ["umount", "--lazy", folder / "disk"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"without a small disk: {error}")
        try:
            ground.group = str(stack.enter_context(memory_group.limited(GROUP)))
        except OSError as error:
            print(f"without a control group: {error}")
        if importlib.util.find_spec("obstore"):
            ground.url = stack.enter_context(origin())
        else:
            print("without remote files: obstore is not installed")
        driver = Driver(ground, seed, Path("/dev/shm") if own else oc.Store(place="memory").folder)
        stack.callback(driver.end)
        yield driver


def main(arguments: list[str] | None = None) -> int:
    """Run rounds until the time is over; status 1 after a failure, 0 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="of work, in all pieces together")
    parser.add_argument("--piece", type=float, metavar="MINUTES", help="stop after so many; --state goes on from there")
    parser.add_argument("--seed", type=int, help="a random one is taken, and printed, without it")
    parser.add_argument("--state", type=Path, metavar="FILE", help="where seed, round and time are kept")
    options = parser.parse_args(arguments)
    state = {"seed": random.randrange(10**6) if options.seed is None else options.seed, "round": 1, "seconds": 0.0}
    if options.state and options.state.exists():
        state = json.loads(options.state.read_text())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="onecopy-long-", dir=TEMPORARY))
    before, begun = state["seconds"], time.monotonic()
    with driving(folder, state["seed"]) as driver:
        try:
            while state["seconds"] < 60 * options.minutes:
                print(driver.round(state["round"]), flush=True)
                state |= {"round": state["round"] + 1, "seconds": before + time.monotonic() - begun}
                if options.state:
                    options.state.write_text(json.dumps(state))
                if options.piece and time.monotonic() - begun > 60 * options.piece:
                    break
        except KeyboardInterrupt:
            print(f"interrupted in round {state['round']}")
        except BaseException as error:
            what = error if isinstance(error, BrokenPromiseError) else traceback.format_exc()
            print(f"FAILED in round {state['round']}, seed {state['seed']}: {what}", *driver.plan, sep="\n  ")
            print(f"{folder} is kept", flush=True)
            return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
