"""`onecopy bench run`: any program, N copies of it, and of its baseline in the same rounds.

A sample is all copies once: files evicted, copies launched and released together, waited for until they are ready,
held, measured, ended. Of N copies, times are the median and the slowest, memory is the sum. Ratios and differences are
medians over the rounds in which both commands went well. The command line is kept, with the home folder as "~".

With `--program` the commands are programs of this package, which load a file with the calls of a framework: under
`onecopy run`, as they are, and where there is such a program, rewritten so that it maps its file.

Each copy first is a launcher that waits; when all of them do, one closed pipe lets them become the program in the
same instant, and the clock starts there, so that no start of Python is in it. A copy leads a session of its own, its
stdin is empty, and what it says on stdout or stderr is read all the time and the last lines kept. The kernel kills
the first process of a copy should this one die; leaving the block ends all of them: SIGTERM, a grace, SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click

from onecopy.base.text import counted
from onecopy.memory import proc
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.crew import SampleError, end_of, last_lines, state_of
from onecopy_bench.engine.machine import cache
from onecopy_bench.engine.memory import anonymous_of, difference, disk_bytes, totals_of
from onecopy_bench.engine.record import Absent, Case, Log, Record, Row, Sample, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch, without_home
from onecopy_bench.engine.scenario import Scenario, cache_state, usual_limits
from onecopy_bench.engine.tables import MB, MISSING, Spread, Table, cell, percentile_99
from onecopy_bench.engine.ways import installed, named
from onecopy_bench.workers import programs
from onecopy_bench.workers.programs import ANSWERED, PROGRAMS, Program

NUMBER = "{i}"
"""Exactly these three characters in an argument become the number of the copy, from 0; other braces stay."""

LAUNCHER = """
import ctypes, os, signal, sys
parent, go, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; it outlives exec
if os.getppid() != int(parent):
    sys.exit("the parent died first")
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would hand that on
    signal.signal(number, signal.SIG_DFL)
os.write(1, b".")
os.read(int(go), 1)
os.closerange(3, int(go) + 1)
os.execvp(command[0], command)
"""

POLL_S, MEMORY_S, LOOK_S = 0.002, 0.02, 0.2
"""How often it is looked who is ready, what memory there is, and who belongs to a copy."""

MARK = "ONECOPY_BENCH_COPY"
"""The variable in the environment of each copy; its value names the run and the copy."""

GRACE_S = 5.0
TAIL = 4096


def numbered(command: Sequence[str], number: int) -> list[str]:
    """Return a command with the number of its copy put in.

    Examples
    --------
    >>> numbered(["serve", "--port=800{i}", '{"i": 1}'], 3)
    ['serve', '--port=8003', '{"i": 1}']
    """
    return [word.replace(NUMBER, str(number)) for word in command]


class Trees:
    """Who belongs to which copy: a process and everything that comes of it, once and until it ends.

    Its descendants, whatever shares its session, and whatever carries its mark in the environment, so that a daemon
    that forked twice into a session of its own is still found.

    Parameters
    ----------
    roots
        The first process of each copy, which leads a session of its own.
    marks
        The value of `MARK` in the environment of each copy.
    """

    def __init__(self, roots: Sequence[int], marks: Sequence[str]) -> None:
        self._roots = {pid: index for index, pid in enumerate(roots)}
        self._marks = {f"{MARK}={mark}".encode(): index for index, mark in enumerate(marks)}
        self._owner: dict[tuple[int, float], int | None] = {}  # a later process with its number starts later

    def members(self) -> list[list[int]]:
        """Look through /proc and return the living processes of each copy; zombies are not living."""
        stats = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    stats[int(entry.name)] = proc.stat(int(entry.name))
        now = {}
        members: list[list[int]] = [[] for _ in self._roots]
        for pid, stat in stats.items():
            index = self._owner.get((pid, stat.starttime))
            now[pid, stat.starttime] = index = self._find(pid, stats) if index is None else index
            if index is not None and stat.state not in "ZX":
                members[index].append(pid)
        self._owner = now
        return members

    def _find(self, pid: int, stats: dict[int, proc.Stat]) -> int | None:
        """Return the copy of a process that was in none when it was last seen."""
        ancestor: int | None = pid
        while ancestor is not None and ancestor not in self._roots:
            ancestor = stats[ancestor].ppid if ancestor in stats else None
        if ancestor is not None:
            return self._roots[ancestor]
        with contextlib.suppress(OSError):
            if (session := os.getsid(pid)) in self._roots:
                return self._roots[session]
            variables = set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            return next((index for mark, index in self._marks.items() if mark in variables), None)
        return None


class Copy:
    """One copy: its first process, what it said last, and when it was ready (ns after the start; None: not yet)."""

    def __init__(self, process: subprocess.Popen[bytes], marker: bytes) -> None:
        assert process.stdout is not None
        self.process, self.stdout = process, process.stdout
        self.ready_ns: int | None = None
        self.heard_ns: int | None = None
        self.listener = threading.Thread(target=self._listen, args=(marker,), daemon=True)
        self._tail = b""

    def _listen(self, marker: bytes) -> None:
        """Read all output, and note when the marker came."""
        while piece := os.read(self.stdout.fileno(), 1 << 16):
            said = self._tail + piece
            if marker and self.heard_ns is None and marker in said:
                self.heard_ns = time.monotonic_ns()
            self._tail = said[-max(TAIL, len(marker)) :]

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines it said."""
        return last_lines(self._tail, 5)


class Copies:
    """The copies of one sample: of a command, with `NUMBER` where the copy's number belongs.

    The options say how many, what makes them ready, and how long that may take.
    """

    def __init__(self, command: Sequence[str], options: Options) -> None:
        self._command, self._options = command, options
        self._looked = self._polled = 0.0
        self._start, self._go = 0, -1
        self._trees = Trees([], [])
        self.copies: list[Copy] = []
        self.members: list[list[int]] = []
        self.peak_anonymous = self.killed = 0

    def __enter__(self) -> Self:
        go, self._go = os.pipe()
        token = secrets.token_hex(8)
        marks = [f"{token}-{number}" for number in range(self._options.processes)]
        try:
            for number, mark in enumerate(marks):
                self.copies.append(self._launch(number, mark, go))
            self._trees = Trees([copy.process.pid for copy in self.copies], marks)
            for copy in self.copies:
                os.read(copy.stdout.fileno(), 1)  # its launcher waits
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SampleError("failed", f"cannot start a process: {error}") from error
            raise
        finally:
            os.close(go)
        return self

    def _launch(self, number: int, mark: str, go: int) -> Copy:
        words = [str(os.getpid()), str(go), *numbered(self._command, number)]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LAUNCHER, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(go,),
            start_new_session=True,
            env={**os.environ, MARK: mark},
        )
        return Copy(process, (self._options.ready or "").encode())

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Let all copies become the program now."""
        self._start = time.monotonic_ns()
        os.close(self._go)
        self._go = -1
        for copy in self.copies:
            copy.listener.start()

    def wait_until_ready(self) -> None:
        """Wait until every copy has said the text, or has ended well where there is none to be said.

        Raises
        ------
        SampleError
            If one ends before, with its last lines, or the time is up.
        """
        while late := [copy for copy in self.copies if copy.ready_ns is None]:
            now = self._look()
            for copy in late:
                copy.ready_ns = self._ready_at(copy, now)
            late = [copy for copy in late if copy.ready_ns is None]
            if late and now > self._options.timeout * 1e9:
                words = f"{len(late)} of {len(self.copies)} copies were not ready within {self._options.timeout:g} s"
                if self._options.ready is not None and not any(copy.last_lines() for copy in late):
                    words += "; they said nothing (output to a pipe is often kept back: try stdbuf -oL, python -u)"
                raise SampleError("timeout", words)

    def _ready_at(self, copy: Copy, now: int) -> int | None:
        """Return when a copy was ready, or None where it is not; raises SampleError where it never will be."""
        status = copy.process.poll()
        if status is not None:
            copy.listener.join(GRACE_S / 10)  # what it said last
        if copy.heard_ns is not None:
            return copy.heard_ns - self._start
        if status == 0 and self._options.ready is None:
            return now
        if status is not None:
            raise self._ended(copy, status, "before it was ready")
        return None

    def hold(self, seconds: float) -> None:
        """Keep the copies; raises SampleError where one ends meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look()
            for copy in self.copies:
                if (status := copy.process.poll()) is not None:
                    raise self._ended(copy, status, "while it was to hold")
        self.members = self._trees.members()

    def _look(self) -> int:
        """Wait a little, poll the memory if it is time; return the nanoseconds since the start."""
        time.sleep(POLL_S)
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked, self.members = now, self._trees.members()
        if now - self._polled >= MEMORY_S:
            self._polled = now
            self.peak_anonymous = max(self.peak_anonymous, sum(map(anonymous_of, self.members)))
        return time.monotonic_ns() - self._start

    def _ended(self, copy: Copy, status: int, when: str) -> SampleError:
        return SampleError(state_of(status), f"copy {self.copies.index(copy)}: {end_of(status)} {when}")

    def last_lines(self) -> tuple[str, ...]:
        """Return what was said last: by the first copy that is not ready, else by the first."""
        late = [copy for copy in self.copies if copy.ready_ns is None] or self.copies
        return late[0].last_lines() if late else ()

    def close(self) -> None:
        """End every process of every copy: SIGTERM, `GRACE_S` seconds, SIGKILL; wait for them, close the pipes."""
        if self._go >= 0:
            for copy in self.copies:
                copy.process.kill()  # a launcher that still waits
            os.close(self._go)
            self._go = -1
        self._signal(signal.SIGTERM)
        self.killed = len(self._signal(signal.SIGKILL))
        for copy in self.copies:
            copy.process.wait()
            if copy.listener.ident is not None:
                copy.listener.join(GRACE_S)
            copy.stdout.close()

    def _signal(self, number: signal.Signals) -> set[int]:
        """Send a signal to everything that lives until nothing does or the time is up; return who got it."""
        reached: set[int] = set()
        deadline = time.monotonic() + GRACE_S
        while (living := self._living()) and time.monotonic() < deadline:
            for pid in living - reached:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            reached |= living
            time.sleep(POLL_S)
        return reached

    def _living(self) -> set[int]:
        for copy in self.copies:
            copy.process.poll()  # reaps it
        return {pid for pids in self._trees.members() for pid in pids}


NAME = "run"
NAMES = tuple(program.name for program in PROGRAMS)
COMMAND, BASELINE, REWRITTEN = "command", "baseline", "rewritten"
UNDER = (sys.executable, "-P", "-m", "onecopy", "run", "--quiet", "--")
HOLD = "Milliseconds from 'all are ready' to the reading of the memory."
EVICT = "Drop this file from the page cache before each start."
BASE = "Another command, in one word, to compare with in each round."
PROGRAM = "Instead of COMMAND: a program that loads a file in -n workers, under onecopy run, as it is, and rewritten."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How programs are run; without `ready` a copy is ready when it has ended."""

    rounds: int = 3
    timeout: float = 120.0
    idle_wait: float = 0.0
    command: tuple[str, ...] = cli.argument("-- COMMAND...", (), nargs=-1, type=click.UNPROCESSED)
    baseline: str | None = cli.option(None, BASE, metavar="CMD")
    processes: int = cli.option(1, "Copies that are started in the same instant.", "-n", "--processes")
    ready: str | None = cli.option(None, "A copy is ready when it prints this on stdout or stderr.", metavar="TEXT")
    hold_ms: float = cli.option(500.0, HOLD, type=click.FloatRange(min=0), metavar="M")
    evict: tuple[str, ...] = cli.option((), EVICT, metavar="FILE", type=cli.EXISTING, path=True)
    programs: tuple[str, ...] = cli.option((), PROGRAM, "--program", type=click.Choice(NAMES))
    size: int = cli.size("1GB", "Size of the file of a --program, about.")
    requests: int = cli.option(100, "Number of requests that each worker of a --program answers.")


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure a command or programs beside the baseline; `copies.NUMBER` in an argument becomes the copy's number."""
    absent: list[Absent] = []
    if options.programs:
        chosen, absent = installed(PROGRAMS, options.programs)
        turns: list[Turn] = []
        data: dict[str, Any] = {}
        for at, program in enumerate(chosen):
            watch(Progress(at, len(chosen), f"writing the file of {program.name}"))
            found, data[program.name] = _turns_of(program, place / f"program-{at}", options)
            turns += found
        rows = [Row(COMMAND, "under onecopy run"), Row(BASELINE, "as it is")]
        rows += [Row(REWRITTEN, "as it is, its file and its calls changed")] if any(p.rewritten for p in chosen) else []
    else:
        commands = {COMMAND: options.command, BASELINE: shlex.split(options.baseline or "")}
        turns = [Turn(name, (), 0.0, sample(words, options)) for name, words in commands.items() if words]
        data = {name: [without_home(word) for word in words] for name, words in commands.items() if words}
        rows = [Row(name, shlex.join(words)) for name, words in data.items()]
    where = options.evict[0] if options.evict else Path.cwd()
    head = heading(NAME, where, replace(options, command=(), baseline=None), rows, data=data, absent=absent)
    return rounds.run(head, turns, options, watch=watch, log=log)


def _turns_of(program: Program, folder: Path, options: Options) -> tuple[list[Turn], int]:
    """Write the files of a program; return its turns, and the bytes of what it loads."""
    folder.mkdir()
    words = ("env", f"ONECOPY_CACHE={folder.parent / 'store'}", "OMP_NUM_THREADS=1")
    counts = (str(options.processes), str(options.requests))
    settings = replace(options, processes=1, ready=ANSWERED)
    paths: dict[str, Path] = {}
    turns = []
    for row, name, under in (
        (COMMAND, program.name, UNDER), (BASELINE, program.name, ()), (REWRITTEN, program.rewritten, ())
    ):  # fmt: skip
        if name and name not in paths:
            paths[name] = folder / f"data-{len(paths)}"
            named(PROGRAMS, name).make(str(paths[name]), options.size)
        if name:
            server = (sys.executable, "-P", "-m", programs.MODULE, name, str(paths[name]), *counts)
            size = paths[name].stat().st_size
            take = sample((*words, *under, *server), settings, folder, size)
            turns.append(Turn(row, (program.name,), options.processes * 2.0 * size, take))
    return turns, paths[program.name].stat().st_size


def sample(
    command: Sequence[str], options: Options, folder: Path | None = None, size: int = 0
) -> Callable[[Attempt], Taken]:
    """Return what takes one sample; workers of a program leave their answers in a folder."""

    def take(attempt: Attempt) -> Taken:
        for path in options.evict:
            cache.evict(path)
        attempt.wait()
        copies = Copies(command, options)
        try:
            with copies:
                cached, disk = _cached(options.evict), _disk_bytes(options.evict)
                copies.start()
                copies.wait_until_ready()
                held = []
                if options.ready is not None:
                    copies.hold(options.hold_ms / 1e3)
                    held = list(map(totals_of, copies.members))
                read = difference(_disk_bytes(options.evict), disk)
        except SampleError as failure:
            said = copies.last_lines()
            words = f"{failure.reason}; last lines: {' | '.join(said)}" if said else failure.reason
            raise SampleError(failure.state, words) from failure
        numbers: dict[str, float | None] = {
            "peak_anonymous": max(copies.peak_anonymous, sum(each["anonymous"] for each in held)),
            "disk_bytes": read,
            "cached_before": cached,
            "killed": copies.killed,
        }
        ready = [{"ready_ns": copy.ready_ns or 0} for copy in copies.copies]
        if folder is not None:
            more = _answers(folder, size)
            ready = [{"ready_ns": more.pop("load_ns")}]
            numbers |= more
        totals: list[dict[str, Any]] = held or [{} for _ in ready]
        return Taken(numbers, processes=[{**one, **two} for one, two in zip(ready, totals, strict=True)])

    return take


def _answers(folder: Path, size: int) -> dict[str, Any]:
    """Return what the workers of a program have measured; raises SampleError where their results differ."""
    found = []
    for path in folder.glob("answers-*.json"):
        found.append(json.loads(path.read_text()))
        path.unlink()
    sums = {each["checksum"] for each in found}
    if len(sums) != 1:
        raise SampleError("wrong data", f"the results of the workers are {sorted(sums)}")
    times = [time for each in found for time in each["times_ns"]]
    return {
        "load_ns": max(each["load_ns"] for each in found),
        "held_share": sum(each["pss"] for each in found) / size,
        "worker_private": sum(each["anonymous"] for each in found) / len(found),
        "p50_ns": statistics.median(times),
        "p99_ns": percentile_99(times),
        "checksum": sums.pop(),
    }


def _cached(paths: Sequence[str]) -> int | None:
    """Return how many bytes of some files are cached together; None for no files, and where it is unknown."""
    known = [cache.ask(path) for path in paths]
    return None if None in known or not known else sum(filter(None, known))


def _disk_bytes(paths: Sequence[str]) -> int | None:
    """Return the bytes read since boot from the disks of some files, else from that of the working folder."""
    disks = {Path(path).stat().st_dev: os.fspath(path) for path in (paths or (os.curdir,))}
    known = [disk_bytes(path) for path in disks.values()]
    return None if None in known else sum(filter(None, known))


def _sum(name: str, unit: float = MB) -> Callable[[Sample], float | None]:
    """Return what adds a number up over the copies; what is unknown of one is unknown of all."""

    def value(sample: Sample) -> float | None:
        return sum(each[name] for each in sample.processes) / unit if all(name in p for p in sample.processes) else None

    return value


def _number(name: str, unit: float) -> Callable[[Sample], float | None]:
    return lambda sample: sample.numbers[name] / unit if name in sample.numbers else None


MEASURES: dict[str, Callable[[Sample], float | None]] = {
    "ready, median copy, s": lambda s: statistics.median(each["ready_ns"] for each in s.processes) / 1e9,
    "ready, slowest copy, s": lambda s: max(each["ready_ns"] for each in s.processes) / 1e9,
    "held by all, copies of the file": _number("held_share", 1),
    "private to a worker, MB": _number("worker_private", MB),
    "a request, p50, ms": _number("p50_ns", 1e6),
    "a request, p99, ms": _number("p99_ns", 1e6),
    "PSS, MB": _sum("pss"),
    "anonymous (PSS), MB": _sum("anonymous_pss"),
    "file (PSS), MB": _sum("file"),
    "shared memory (PSS), MB": _sum("shmem"),
    "private, MB": _sum("private"),
    "swap, MB": _sum("swap"),
    "page tables, MB": _sum("page_tables"),
    "peak anonymous (RSS), MB": lambda s: s.numbers["peak_anonymous"] / MB,
    "read from disk, MB": _number("disk_bytes", MB),
    "major faults": _sum("major_faults", 1),
    "minor faults": _sum("minor_faults", 1),
    "processes": _sum("processes", 1),
}
"""What a table shows, by name: each is computed from one sample."""


def spreads_of(record: Record, name: str, case: Case = ()) -> dict[str, Spread | None]:
    """Return a measure by row, and how command and baseline compare: ratio and difference, paired by round."""
    rows = {
        row: {s.round: each for s in record.of(row, case) if (each := MEASURES[name](s)) is not None}
        for row in (COMMAND, BASELINE, REWRITTEN)
    }
    command, baseline = rows[COMMAND], rows[BASELINE]
    pairs = [(command[number], baseline[number]) for number in command if number in baseline]
    found = {row: Spread.of(values.values()) for row, values in rows.items()}
    found["ratio"] = Spread.of(mine / other for mine, other in pairs if other > 0)
    return found | {"difference": Spread.of(mine - other for mine, other in pairs)}


def _tables(record: Record) -> Iterator[Table]:
    """Yield a table for each case: a line per measure; the baseline and the comparison where there is one."""
    for case in record.cases() or ((),):
        lines = {name: spreads_of(record, name, case) for name in MEASURES}
        titles = [row for row in next(iter(lines.values())) if any(line[row] for line in lines.values())]
        words = "; ratio and difference: median of paired rounds" if "ratio" in titles else ""
        title = f"Medians (min-max) over the rounds; memory of all copies together, with their children{words}"
        rows = ((name, *(cell(line[row]) for row in titles)) for name, line in lines.items())
        shown = tuple(row for row in rows if set(row[1:]) - {MISSING})
        if shown:
            yield Table(f"{case[0]}: {title}" if case else title, ("", *titles), shown)


def _described(record: Record) -> str:
    evicted = record.options["evict"]
    state = f", {', '.join(evicted)} evicted" if evicted else ""
    nouns = (
        ("worker of each program", "workers of each program") if record.options.get("programs") else ("copy", "copies")
    )
    return f"run: {counted(record.options['processes'], *nouns)}, {counted(record.rounds, 'round')}{state}"


def _limits(record: Record) -> Iterator[str]:
    """Yield what limits the numbers beside the usual: files that stayed cached, what did not end or only ended."""
    if record.options["evict"]:
        yield from cache_state([s for s in record.samples if s.state == "ok"], {})
    if killed := sum(s.numbers.get("killed", 0) for s in record.samples):
        yield f"{killed:.0f} processes did not end on SIGTERM and were killed."
    options = record.options
    if options["ready"] is None and options.get("settle") is None and not options.get("programs"):
        yield "The copies were waited for until they ended: what they hold is known by its peak only."
    yield from usual_limits(record)


def _findings(record: Record) -> Iterator[str]:
    """Yield the commands; of programs whether their results are equal."""
    yield from (f"{row.name}: {row.detail}" for row in record.rows)
    for case in record.cases():
        sums = {s.numbers["checksum"] for s in record.samples if s.case == case and s.state == "ok"}
        yield f"{case[0]}: results {'equal' if len(sums) == 1 else 'DIFFER'}."


def _adjusted(options: Options) -> Options:
    """Return the options of a command line that can be run; raises click.UsageError otherwise."""
    if options.ready == "":
        raise click.BadParameter("an empty text is never said", param_hint="--ready")
    if bool(options.command) == bool(options.programs):
        raise click.UsageError("Missing argument '-- COMMAND...'" if not options.command else "COMMAND or --program")
    try:
        baseline = shlex.split(options.baseline or "")
    except ValueError as error:
        raise click.BadParameter(f"{options.baseline!r}: {error}", param_hint="--baseline") from error
    for words in (options.command, baseline):
        if words and shutil.which(numbered(words, 0)[0]) is None:
            raise click.UsageError(f"no program {words[0]!r}")
    return options


SCENARIO = Scenario(
    NAME,
    """Start N copies of COMMAND, wait until they are ready, and report what they hold.

    Exactly the text {i} in an argument becomes the number of the copy, from 0, for ports and folders of their own.
    Without --ready a copy is ready when it has ended with status 0. Memory is that of each copy with all its children.
    Everything is ended afterwards: SIGTERM, five seconds, SIGKILL.

    Example: onecopy bench run -n 4 --ready 'startup complete' -- python -u serve.py --port 80{i}

    Without COMMAND: unmodified programs that load a file with torch or numpy, in workers that answer requests.
    """,
    Options(),
    run,
    _described,
    _tables,
    _findings,
    limits=_limits,
    measures=MEASURES,
    adjust=_adjusted,
    without=("backed",),
    status=lambda record: 0 if any(s.row == COMMAND and s.state == "ok" for s in record.samples) else 1,
    settings={"context_settings": {"allow_interspersed_args": False}},
)
