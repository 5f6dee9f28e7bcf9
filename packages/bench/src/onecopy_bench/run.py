"""`onecopy bench run`: any program, N copies of it, and of its baseline in the same rounds.

A sample is all copies once: files evicted, copies launched and released together, waited for until they are ready,
held, measured, ended. Of N copies, times are the median and the slowest, memory is the sum. Ratios and differences are
medians over the rounds in which both commands went well. The command line is kept, with the home folder as "~".

With `--program` the commands are programs of this package, which load a file with the calls of a framework: under
`onecopy run`, as they are, and where there is such a program, rewritten so that it maps its file.

Each copy first is a launcher that stops itself; when all of them have, one signal after the other lets them become the
program, and the clock starts there, so that no start of Python is in it. A copy leads a session of its own, its stdin
is empty, and what it prints goes to a file without a name. The kernel kills the first process of a copy should this one
die; leaving the block ends all of them: SIGTERM, a grace, SIGKILL.
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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

from onecopy.base.text import counted
from onecopy_bench import programs, runs, system
from onecopy_bench.peers import installed, named
from onecopy_bench.processes import SampleError, end_of, last_lines, state_of
from onecopy_bench.programs import ANSWERED, PROGRAMS, Program
from onecopy_bench.record import Absent, Case, Log, Record, Row, Sample, Spread, heading
from onecopy_bench.runs import Attempt, Measured, Progress, Settings, Trial, Watch, without_home
from onecopy_bench.scenario import Scenario, UsageError, argument, cache_state, option, size_option, usual_limits
from onecopy_bench.system import anonymous_of, difference, disk_bytes, family_of, totals_of
from onecopy_bench.tables import MB, MISSING, Table, cell, percentile_99, slowest

NAME = "run"
NUMBER = "{i}"
"""Exactly these three characters in an argument become the number of the copy, from 0; other braces stay."""
LAUNCHER = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; it outlives exec
if os.getppid() != int(parent):
    sys.exit("the parent died first")
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would hand that on
    signal.signal(number, signal.SIG_DFL)
os.kill(os.getpid(), signal.SIGSTOP)
os.execvp(command[0], command)
"""
POLL_S, MEMORY_S, LOOK_S = 0.002, 0.02, 0.2
"""How often it is looked who is ready, what memory there is, and who belongs to a copy."""
MARK = "ONECOPY_BENCH_COPY"
"""The variable in the environment of each copy; its value names the run and the copy."""
GRACE_S = 5.0


def numbered(command: Sequence[str], number: int) -> list[str]:
    """Return a command with the number of its copy put in.

    Examples
    --------
    >>> numbered(["serve", "--port=800{i}", '{"i": 1}'], 3)
    ['serve', '--port=8003', '{"i": 1}']
    """
    return [word.replace(NUMBER, str(number)) for word in command]


@dataclass(slots=True)
class Copy:
    """One copy: its first process, what it printed, and when it was ready (ns after the start; None: not yet)."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    mark: bytes
    ready_ns: int | None = None
    members: list[int] = field(default_factory=list)
    last_lines: tuple[str, ...] = ()


def find_members(copies: Sequence[Copy]) -> None:
    """Find the living processes of each copy: its descendants, and whatever carries its mark in the environment.

    A daemon that forked twice into a session of its own is found by its mark, a program with another environment by its
    parents. A zombie has no environment and no memory.
    """
    found = {copy.mark: set(family_of([copy.process.pid])) for copy in copies}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                for mark in found.keys() & set(Path(entry.path, "environ").read_bytes().split(b"\0")):
                    found[mark].add(int(entry.name))
    for copy in copies:
        copy.members = [pid for pid in found[copy.mark] if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Copies:
    """The copies of one sample: of a command, with `NUMBER` where the copy's number belongs.

    The options say how many, what makes them ready, and how long that may take.
    """

    def __init__(self, command: Sequence[str], options: Options) -> None:
        self._command, self._options = command, options
        self._looked = self._polled = 0.0
        self._start = 0
        self.copies: list[Copy] = []
        self.peak_anonymous = self.killed = 0

    def __enter__(self) -> Self:
        token = secrets.token_hex(8)
        try:
            for number in range(self._options.processes):
                self.copies.append(self._launch(number, f"{token}-{number}"))
            for copy in self.copies:  # its launcher has stopped, or failed
                os.waitid(os.P_PID, copy.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SampleError("failed", f"cannot start a process: {error}") from error
            raise
        return self

    def _launch(self, number: int, mark: str) -> Copy:
        words = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *numbered(self._command, number)]
        output, environment = tempfile.TemporaryFile(), {**os.environ, MARK: mark}  # noqa: SIM115 - closed by close()
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(words, **streams, start_new_session=True, env=environment)
        return Copy(process, output, f"{MARK}={mark}".encode())

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Let all copies become the program now."""
        self._start = time.monotonic_ns()
        for copy in self.copies:
            os.kill(copy.process.pid, signal.SIGCONT)

    def wait_until_ready(self) -> None:
        """Wait until every copy has printed the text, or has ended well if there is no text to wait for.

        Raises
        ------
        SampleError
            If one ends before, with its last lines, or the time is up.
        """
        text = (self._options.ready or "").encode()
        while late := [copy for copy in self.copies if copy.ready_ns is None]:
            now = self._look()
            for copy in late:
                status = copy.process.poll()  # before its output is read, so that nothing is missed
                if (text and text in _printed(copy)) or (status == 0 and not text):
                    copy.ready_ns = now
                elif status is not None:
                    raise self._ended(copy, status, "before it was ready")
            late = [copy for copy in late if copy.ready_ns is None]
            if late and now > self._options.timeout * 1e9:
                words = f"{len(late)} of {len(self.copies)} copies were not ready within {self._options.timeout:g} s"
                if text and not any(map(_printed, late)):
                    words += "; they printed nothing (output is often kept back: try stdbuf -oL, python -u)"
                raise SampleError("timeout", words)

    def hold(self, seconds: float) -> None:
        """Keep the copies; raises SampleError if one ends meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look()
            for copy in self.copies:
                if (status := copy.process.poll()) is not None:
                    raise self._ended(copy, status, "while it was to hold")
        find_members(self.copies)

    def _look(self) -> int:
        """Wait a little, poll the memory if it is time; return the nanoseconds since the start."""
        time.sleep(POLL_S)
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            find_members(self.copies)
        if now - self._polled >= MEMORY_S:
            self._polled = now
            held = sum(anonymous_of(copy.members) for copy in self.copies)
            self.peak_anonymous = max(self.peak_anonymous, held)
        return time.monotonic_ns() - self._start

    def _ended(self, copy: Copy, status: int, when: str) -> SampleError:
        return SampleError(state_of(status), f"copy {self.copies.index(copy)}: {end_of(status)} {when}")

    def last_lines(self) -> tuple[str, ...]:
        """Return what was printed last, when all have ended: by the first copy that was not ready, else the first."""
        late = [copy for copy in self.copies if copy.ready_ns is None] or self.copies
        return late[0].last_lines if late else ()

    def close(self) -> None:
        """End every process of every copy: SIGTERM, `GRACE_S` seconds, SIGKILL; wait for them, close their output."""
        if not self._start:
            for copy in self.copies:
                copy.process.kill()  # a launcher that is still stopped
        self._signal(signal.SIGTERM)
        self.killed = len(self._signal(signal.SIGKILL))
        for copy in self.copies:
            copy.process.wait()
            copy.last_lines = last_lines(copy.output, 5)
            copy.output.close()

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
        find_members(self.copies)
        return {pid for copy in self.copies for pid in copy.members}


def _printed(copy: Copy) -> bytes:
    return os.pread(copy.output.fileno(), os.fstat(copy.output.fileno()).st_size, 0)


# --- the scenario -----------------------------------------------------------------------------------------------------

NAMES = tuple(program.name for program in PROGRAMS)
COMMAND, BASELINE, REWRITTEN = "command", "baseline", "rewritten"
UNDER = (sys.executable, "-P", "-m", "onecopy", "run", "--quiet", "--")
HOLD = "Milliseconds from 'all are ready' to the reading of the memory."
BASE = "Another command, in one word, to compare with in each round."
PROGRAM = "Instead of COMMAND: a program that loads a file in -n workers, under onecopy run, as it is, and rewritten."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How programs are run; without `ready` a copy is ready when it has ended."""

    rounds: int = 3
    timeout: float = 120.0
    idle_wait: float = 0.0
    command: tuple[str, ...] = argument("-- COMMAND...", (), kind="words")
    baseline: str | None = option(None, BASE, metavar="CMD")
    processes: int = option(1, "Copies that are started in the same instant.", "-n", "--processes")
    ready: str | None = option(None, "A copy is ready when it prints this on stdout or stderr.", metavar="TEXT")
    hold_ms: float = option(500.0, HOLD, at_least=0.0, metavar="M")
    evict: tuple[str, ...] = option(
        (), "Drop this file from the page cache before each start.", metavar="FILE", kind="existing", is_path=True
    )
    programs: tuple[str, ...] = option((), PROGRAM, "--program", choices=NAMES, shown=())
    size: int = size_option("1GB", "Size of the file of a --program, about.")
    requests: int = option(100, "Number of requests that each worker of a --program answers.")


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure a command or programs beside the baseline; `NUMBER` in an argument becomes the copy's number."""
    absent: list[Absent] = []
    data: dict[str, Any] = {}
    if options.programs:
        chosen, absent = installed(PROGRAMS, options.programs)
        trials: list[Trial] = []
        for at, program in enumerate(chosen):
            watch(Progress(at, len(chosen), f"writing the file of {program.name}"))
            found, data[program.name] = _trials_of(program, place / f"program-{at}", options)
            trials += found
        rows = [Row(COMMAND, "under onecopy run"), Row(BASELINE, "as it is")]
        rows += [Row(REWRITTEN, "as it is, its file and its calls changed")] if any(p.rewritten for p in chosen) else []
    else:
        commands = {COMMAND: options.command, BASELINE: tuple(shlex.split(options.baseline or ""))}
        commands = {name: words for name, words in commands.items() if words}
        trials = [Trial(name, (), 0.0, measuring(words, options)) for name, words in commands.items()]
        data |= {name: [without_home(word) for word in words] for name, words in commands.items()}
        rows = [Row(name, shlex.join(words)) for name, words in data.items()]
    where = options.evict[0] if options.evict else Path.cwd()
    head = heading(NAME, where, replace(options, command=(), baseline=None), rows, data, absent)
    return runs.run(head, trials, options, watch=watch, log=log)


def _trials_of(program: Program, folder: Path, options: Options) -> tuple[list[Trial], int]:
    """Write the files of a program; return its trials, and the bytes of what it loads."""
    folder.mkdir()
    words = ("env", f"ONECOPY_CACHE={folder.parent / 'store'}", "OMP_NUM_THREADS=1")
    counts = (str(options.processes), str(options.requests))
    settings = replace(options, processes=1, ready=ANSWERED)
    paths: dict[str, Path] = {}
    trials = []
    for row, name, under in (
        (COMMAND, program.name, UNDER), (BASELINE, program.name, ()), (REWRITTEN, program.rewritten, ())
    ):  # fmt: skip
        if name and name not in paths:
            paths[name] = folder / f"data-{len(paths)}"
            named(PROGRAMS, name).make(str(paths[name]), options.size)
        if name:
            server = (sys.executable, "-P", "-m", programs.MODULE, name, str(paths[name]), *counts)
            size = paths[name].stat().st_size
            measure = measuring((*words, *under, *server), settings, folder, size)
            trials.append(Trial(row, (program.name,), options.processes * 2.0 * size, measure))
    return trials, paths[program.name].stat().st_size


def measuring(
    command: Sequence[str], options: Options, folder: Path | None = None, size: int = 0
) -> Callable[[Attempt], Measured]:
    """Return what takes one sample; workers of a program leave their answers in a folder."""

    def measure(attempt: Attempt) -> Measured:
        for path in options.evict:
            system.evict(path)
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
                    held = [totals_of(copy.members) for copy in copies.copies]
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
        return Measured(numbers, processes=[{**one, **two} for one, two in zip(ready, totals, strict=True)])

    return measure


def _answers(folder: Path, size: int) -> dict[str, Any]:
    """Return what the workers of a program have measured; raises SampleError if their results differ."""
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
    """Return how many bytes of some files are cached together; None for no files, and if it is unknown."""
    known = [system.cached_bytes(path) for path in paths]
    return None if None in known or not known else sum(filter(None, known))


def _disk_bytes(paths: Sequence[str]) -> int | None:
    """Return the bytes read since boot from the disks of some files, else from that of the working folder."""
    disks = {Path(path).stat().st_dev: os.fspath(path) for path in (paths or (os.curdir,))}
    known = [disk_bytes(path) for path in disks.values()]
    return None if None in known else sum(filter(None, known))


def _sum(name: str, unit: float = MB) -> Callable[[Sample], float | None]:
    """Return what adds a number up over the copies; what is unknown of one is unknown of all."""
    return lambda s: sum(p[name] for p in s.processes) / unit if all(name in p for p in s.processes) else None


def _number(name: str, unit: float = MB) -> Callable[[Sample], float | None]:
    return lambda sample: sample.numbers[name] / unit if name in sample.numbers else None


MEASURES: dict[str, Callable[[Sample], float | None]] = {
    "ready, median copy, s": lambda s: statistics.median(each["ready_ns"] for each in s.processes) / 1e9,
    "ready, slowest copy, s": slowest("ready_ns", 1e9),
    "held by all, copies of the file": _number("held_share", 1),
    "private to a worker, MB": _number("worker_private"),
    "a request, p50, ms": _number("p50_ns", 1e6),
    "a request, p99, ms": _number("p99_ns", 1e6),
    "PSS, MB": _sum("pss"),
    "anonymous (PSS), MB": _sum("anonymous_pss"),
    "file (PSS), MB": _sum("file"),
    "shared memory (PSS), MB": _sum("shmem"),
    "private, MB": _sum("private"),
    "swap, MB": _sum("swap"),
    "page tables, MB": _sum("page_tables"),
    "peak anonymous (RSS), MB": _number("peak_anonymous"),
    "read from disk, MB": _number("disk_bytes"),
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
    of_programs = ("worker of each program", "workers of each program")
    nouns = of_programs if record.options["programs"] else ("copy", "copies")
    return f"run: {counted(record.options['processes'], *nouns)}, {counted(record.rounds, 'round')}{state}"


def _limits(record: Record) -> Iterator[str]:
    """Yield what limits the numbers beside the usual: files that stayed cached, what did not end or only ended."""
    if record.options["evict"]:
        yield from cache_state([s for s in record.samples if s.state == "ok"], {})
    if killed := sum(s.numbers.get("killed", 0) for s in record.samples):
        yield f"{killed:.0f} processes did not end on SIGTERM and were killed."
    if record.options["ready"] is None and not record.options["programs"]:
        yield "The copies were waited for until they ended: what they hold is known by its peak only."
    yield from usual_limits(record)


def _findings(record: Record) -> Iterator[str]:
    """Yield the commands; of programs whether their results are equal."""
    yield from (f"{row.name}: {row.detail}" for row in record.rows)
    for case in record.cases():
        sums = {s.numbers["checksum"] for s in record.samples if s.case == case and s.state == "ok"}
        yield f"{case[0]}: results {'equal' if len(sums) == 1 else 'DIFFER'}."


def _adjusted(options: Options) -> Options:
    """Return the options of a command line that can be run; raises UsageError otherwise."""
    if options.ready == "":
        raise UsageError("an empty text is never printed", "--ready")
    if bool(options.command) == bool(options.programs):
        raise UsageError("Missing argument '-- COMMAND...'" if not options.command else "COMMAND or --program")
    try:
        baseline = shlex.split(options.baseline or "")
    except ValueError as error:
        raise UsageError(f"{options.baseline!r}: {error}", "--baseline") from error
    for words in (options.command, baseline):
        if words and shutil.which(numbered(words, 0)[0]) is None:
            raise UsageError(f"no program {words[0]!r}")
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
