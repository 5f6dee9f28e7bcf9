"""A mixed load for hours, in which all promises are checked.

    python -m tests.support.long_run --minutes 360 --state FILE

In each round workers that are forked or spawned use the library (`tests/support/mixed_load.py`); two of them live for
many rounds. Workers, and their children that build, are killed at random moments. After each action a worker counts its
descriptors, mappings, threads and children. After each round, when all are idle, the driver checks the files, the space
of a small disk, the processes, the memory of the lasting workers, and that several readers of a file have one physical
copy. A round prints a line.

With --state a run can be interrupted (Ctrl-C, or --piece) and is resumed by the same command: seed, round and time are
in that file. A failure prints the seed and the plan of the round, keeps the folder, and ends with status 1; the next
call with that state begins with that round.
"""

import argparse
import contextlib
import ctypes
import gc
import itertools
import json
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
from pathlib import Path
from typing import Any

from tests.support import children, isolation, leaks, memory_group, mixed_load, small_disks
from tests.support.mixed_load import FILES, LIMIT, MIB, SIZE, BrokenPromiseError, Ground, check, expect, save
from tests.support.object_server import Fault, Request, serving
from tests.support.places import ROOT, TEMPORARY
from tests.support.waiting import until

import onecopy as oc
from onecopy.memory import proc

GROUP = 768 * MIB
"""The limit of the control group of the workers, which read a file of zeros twice as large."""
SECONDS = 4.0
"""Length of the work in a round."""
WARM, LIFE = 5, 150
"""A lasting worker ends after `LIFE` rounds; the first `WARM` are not compared: modules are imported in them."""
MORE = {"descriptors": 16, "mappings": 100, "anonymous": 32 * MIB}
"""How much more a lasting worker may have than after its first rounds: for connections, and arenas of malloc."""
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


def serve(ground: Ground, commands: Any, reports: Any) -> None:
    """Answer each command with a report, until there is an empty line."""
    end_with_driver()
    if ground.group:
        memory_group.enter(Path(ground.group))
    while line := commands.readline().strip():
        reports.write(json.dumps(play(ground, *json.loads(line))) + "\n")
        reports.flush()


def end_with_driver() -> None:
    """Let the kernel kill this process when the driver ends, and not before; Ctrl-C is for the driver."""
    signal.alarm(0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Process:
    """A worker as the driver sees it, forked or spawned."""

    def __init__(self, ground: Ground, *, spawned: bool) -> None:
        self.spawned, self.killed, self.status = spawned, False, 0
        self.reports: list[dict[str, Any]] = []
        theirs, commands = os.pipe()
        reports, ours = os.pipe()
        if spawned:
            command = [sys.executable, "-m", "tests.support.long_run", "--worker", json.dumps(vars(ground))]
            self._popen = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=ours)
            self.pid = self._popen.pid
        else:
            self.pid = children.fork(lambda: serve(ground, os.fdopen(theirs), os.fdopen(ours, "w")) is None)
        os.close(theirs)
        os.close(ours)
        self._commands, self._reports = os.fdopen(commands, "w"), os.fdopen(reports)

    def begin(self, seed: str, seconds: float) -> None:
        self._commands.write(json.dumps([seed, seconds]) + "\n")
        self._commands.flush()

    def report(self) -> dict[str, Any] | None:
        """Wait for the report; None if the driver killed the process."""
        line = self._reports.readline()
        if not line:
            expect(self.end() == -signal.SIGKILL and self.killed, f"a worker ended with status {self.status}")
            return None
        self.reports.append(json.loads(line))
        expect("failure" not in self.reports[-1], self.reports[-1].get("failure", ""))
        return self.reports[-1]

    def end(self) -> int:
        """End an idle process; return its status."""
        if self.pid:
            with contextlib.suppress(BrokenPipeError):
                self._commands.write("\n")
                self._commands.flush()
            self.status, self.pid = children.status_of(self.pid), 0
            if self.spawned:
                self._popen.returncode = self.status
            for pipe in (self._commands, self._reports):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return self.status

    def kill(self, dice: random.Random, *, itself: bool) -> int:
        """Kill the process, or one that it has started; return its PID, 0 if there is none."""
        pids = [self.pid] if itself else children.descendants_of(self.pid)
        self.killed |= itself
        pid = dice.choice(pids) if pids else 0
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid


# --- the origin of remote files ---


@contextlib.contextmanager
def origin() -> Iterator[str]:
    """Give the URL of a server in a process of its own; its objects change, and some of its answers fail."""
    read_end, write_end = os.pipe()
    pid = children.fork(lambda: serve_objects(write_end))
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        url = pipe.readline().strip()
    try:
        yield url
    finally:
        os.kill(pid, signal.SIGKILL)
        children.status_of(pid)


def serve_objects(announce: int) -> None:
    end_with_driver()
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
        os.write(announce, f"{objects.url}\n".encode())
        os.close(announce)
        signal.pause()


# --- the driver ---


class Driver:
    """Rounds in a folder."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.ground, self.seed = ground, seed
        self.folder = Path(ground.folder)
        self.store, self.in_memory = oc.Store(self.folder / "store"), oc.Store(place="memory")
        self.lasting: list[Process] = []
        self.brief: list[Process] = []
        self.plan: list[str] = []
        for kind, number in itertools.product(("files", "inputs", "scratch", "disk"), range(FILES)):
            path = ground.place(kind, number)
            path.parent.mkdir(exist_ok=True)
            if kind == "files":
                save(path, number)
            elif kind == "inputs":
                path.write_text(json.dumps({"seed": number}))
        with (self.folder / "zeros").open("wb") as file:
            file.truncate(2 * GROUP)
        self.blocks = self.empty_disk()
        self.before = held()

    def round(self, number: int) -> str:
        """Let the workers work, kill some, and check what is left; return a line about it."""
        dice = random.Random(f"{self.seed} {number}")
        self.lasting += [Process(self.ground, spawned=bool(i)) for i in range(len(self.lasting), 2)]
        self.brief = brief = [Process(self.ground, spawned=dice.random() < 0.3) for _ in range(dice.randint(2, 3))]
        begun, workers = time.monotonic(), [*self.lasting, *brief]
        self.plan = []
        for place, worker in enumerate(workers):
            seed = f"{self.seed} {number} {place}"
            self.plan.append(f"{worker.pid}: {'spawned' if worker.spawned else 'forked'}, seed {seed!r}")
            worker.begin(seed, SECONDS)
        for moment in sorted(dice.uniform(0, SECONDS) for _ in range(dice.randint(0, 6))):
            time.sleep(max(0, begun + moment - time.monotonic()))
            itself = dice.random() < 0.4
            victims = [one for one in (brief if itself else workers) if not one.killed]
            if victims and (pid := (victim := dice.choice(victims)).kill(dice, itself=itself)):
                self.plan.append(
                    f"{pid}{'' if itself else f', a child of {victim.pid},'} is killed after {moment:.1f} s"
                )
        found = [worker.report() for worker in workers]
        expect(all(worker.end() in (0, -9 * worker.killed) for worker in brief), "a status of a brief worker")
        self.check_lasting()
        reports = [one for one in found if one]
        done = sum((Counter(one["done"]) for one in reports), Counter[str]())
        errors = sum((Counter(one["errors"]) for one in reports), Counter[str]())
        after = self.check_what_is_left(number)
        lasting = "; ".join(
            f"{one['descriptors']} descriptors, {one['mappings']} mappings, {one['anonymous'] / MIB:.1f} MiB anonymous"
            for one in (worker.reports[-1] for worker in self.lasting)
        )
        return (
            f"{time.strftime('%H:%M:%S')} round {number}, seed {self.seed}: {len(brief)} brief workers, "
            f"{sum('killed' in line for line in self.plan)} kills; {in_words(done)}; expected errors: {in_words(errors) or 'none'}; "
            f"lasting workers: {lasting}; {after}"
        )

    def end(self) -> None:
        """Kill the workers that there are."""
        for worker in (*self.lasting, *self.brief):
            if worker.pid:
                worker.kill(random.Random(), itself=True)
                worker.end()

    def check_lasting(self) -> None:
        """Compare lasting workers with what they were after their first rounds; end those that are old."""
        for worker in self.lasting:
            now, first = worker.reports[-1], worker.reports[: WARM + 1][-1]
            for kind, more in MORE.items():
                what = f"{kind} of worker {worker.pid}, round by round: {[one[kind] for one in worker.reports]}"
                expect(now[kind] <= first[kind] + more, what)
        for worker in [one for one in self.lasting if len(one.reports) >= LIFE]:
            expect(worker.end() == 0, f"a lasting worker ended with status {worker.status}")
            self.lasting.remove(worker)

    def check_what_is_left(self, number: int) -> str:
        """Check processes, files and memory while all workers are idle; return what there is."""
        wait_for(children.orphans, "processes")
        for kind in ("files", "scratch"):
            save(self.ground.place(kind, 0), 0)  # removes what killed writers left
        places = itertools.product(("files", "inputs", "scratch"), range(FILES))
        known = {"zeros", "image"} | {f"{kind}/{place}.oc" for kind, place in places}  # in the image is the small disk
        others = ("store/", "disk/", "home/")
        wait_for(lambda: [name for name in names_in(self.folder) - known if not name.startswith(others)], "files")
        for path in Path(self.folder, "inputs").iterdir():
            expect(json.loads(path.read_text())["seed"] % FILES == int(path.stem), f"{path}: wrong contents")
        self.store.prune(max_bytes=LIMIT, everything=number % 10 == 0)
        artefacts = self.store.ls()
        expect({one.state for one in artefacts} <= {"ready", "partial"}, f"in the store: {artefacts}")
        total = sum(one.bytes for one in artefacts)
        expect(total <= (0 if number % 10 == 0 else LIMIT), f"{total} bytes in the store after a prune: {artefacts}")
        digests = {one.path.stem for one in artefacts}
        strange = {
            name for name in names_in(self.store.folder) if name[:6] != "views/" and Path(name).stem not in digests
        }
        expect(not strange, f"in the store: {sorted(strange)}")
        self.in_memory.prune(everything=True)
        wait_for(lambda: names_in(Path("/dev/shm")), "files in memory")
        wait_for(lambda: self.empty_disk() - self.blocks, "blocks of the small disk")
        wait_for(lambda: sorted(held() - self.before - self.of_lasting()), "held by the driver")
        return f"store {len(artefacts)} files, {total / MIB:.1f} MiB; {self.count_copies()}"

    def of_lasting(self) -> Counter[str]:
        return Counter(f"child {one.pid}" for one in self.lasting)

    def empty_disk(self) -> int:
        """Remove all files from the small disk; return the blocks in use."""
        if not self.ground.disk:
            return 0
        oc.Store(self.folder / "disk/store").prune(everything=True)
        save(self.ground.place("disk", 0), 0)
        for number in range(FILES):
            self.ground.place("disk", number).unlink(missing_ok=True)
        left = names_in(self.folder / "disk")
        expect(not left, f"on the small disk: {sorted(left)}")
        return small_disks.blocks_used(self.folder / "disk")

    def count_copies(self) -> str:
        """Let several processes read a file and keep it mapped; they have one copy of it together."""
        path, go_on = self.ground.place("files", 0), os.pipe()
        ready = os.pipe()

        def read_and_wait() -> bool:
            with oc.open(path) as file:
                check(file, 0)
                os.write(ready[1], b".")
                os.close(go_on[1])
                return os.read(go_on[0], 1) == b""

        pids = [children.fork(read_and_wait) for _ in range(READERS)]
        for _ in pids:
            os.read(ready[0], 1)
        regions = [region for pid in pids for region in proc.regions_of(pid, path)]
        pss, private = sum(one.memory.pss for one in regions), sum(one.memory.anonymous for one in regions)
        for end in (go_on[1], go_on[0], *ready):
            os.close(end)
        expect([children.status_of(pid) for pid in pids] == [0] * READERS, "a reader failed")
        size = path.stat().st_size
        expect(0.9 * SIZE < pss < size + MIB // 4, f"{READERS} readers of {size} bytes have {pss} bytes together")
        expect(private == 0, f"{READERS} readers have {private} bytes of their own")
        return f"{READERS} readers of {size / MIB:.2f} MiB have {pss / MIB:.2f} MiB"


def names_in(folder: Path) -> set[str]:
    """List the files below a folder, by their paths in it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def wait_for(left: Callable[[], Any], what: str) -> None:
    """Wait until nothing is left, as that of processes that are ending."""
    with contextlib.suppress(AssertionError):
        until(lambda: not left(), seconds=20)
    found = left()
    expect(not found, f"left behind: {what}: {found}")


def in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


# --- the command ---


@contextlib.contextmanager
def prepared(folder: Path, seed: int) -> Iterator[Ground]:
    """Give the ground of a run, with what this machine has: mounts, control groups, obstore; print what it lacks."""
    own = isolation.have_own_shared_memory()
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    os.environ |= {"HOME": str(folder / "home"), "ONECOPY_CACHE": str(folder / "store")}
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
    with contextlib.ExitStack() as stack:
        ground = Ground(str(folder), "", "", "")
        try:
            small_disks.mount(kind := "ext4" if seed % 2 else "tmpfs", folder / "disk")
            ground.disk = kind
            stack.callback(subprocess.run, ["umount", folder / "disk"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"without a small disk: {error}")
        try:
            ground.group = str(stack.enter_context(memory_group.limited(GROUP)))
        except OSError as error:
            print(f"without a control group: {error}")
        try:
            import obstore  # noqa: F401

            ground.url = stack.enter_context(origin())
        except ImportError as error:
            print(f"without remote files: {error}")
        if not own:
            print("without a /dev/shm of its own: what others have there counts")
        yield ground


def main(arguments: list[str] | None = None) -> int:
    """Run rounds until the time is over; status 1 after a failure, 0 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="of work, in all pieces together")
    parser.add_argument("--piece", type=float, metavar="MINUTES", help="stop after so many; --state goes on from there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, metavar="FILE", help="where seed, round and time are kept")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        serve(Ground(**json.loads(options.worker)), sys.stdin, sys.stdout)
        return 0
    state = {"seed": options.seed, "round": 1, "seconds": 0.0}
    if options.state and options.state.exists():
        state = json.loads(options.state.read_text())
    folder = Path(tempfile.mkdtemp(prefix="onecopy-long-", dir=TEMPORARY))
    begun, before = time.monotonic(), state["seconds"]
    failed = True
    with prepared(folder, state["seed"]) as ground:
        driver = Driver(ground, state["seed"])
        try:
            while state["seconds"] < 60 * options.minutes:
                print(driver.round(state["round"]), flush=True)
                state |= {"round": state["round"] + 1, "seconds": before + time.monotonic() - begun}
                if options.state:
                    options.state.write_text(json.dumps(state))
                if options.piece and time.monotonic() - begun > 60 * options.piece:
                    break
            failed = False
        except KeyboardInterrupt:
            print(f"interrupted in round {state['round']}")
            failed = False
        except BaseException as error:
            what = error if isinstance(error, BrokenPromiseError) else traceback.format_exc()
            plan = "\n  ".join(driver.plan)
            print(
                f"FAILED in round {state['round']}, seed {state['seed']}: {what}\n  {plan}\n{folder} is kept",
                flush=True,
            )
        finally:
            driver.end()
    if not failed:
        shutil.rmtree(folder)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
