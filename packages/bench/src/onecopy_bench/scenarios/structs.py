"""`onecopy bench structs`: a C++ index opened in every way, and what it takes to answer 1, 1,000 and 10^6 questions.

Each sample is a fresh process of the C++ program: cold and warm, asking with each number of threads; several processes
at once from a warm cache; 100 short processes one after the other. With a memory limit, the processes join a control
group that holds a share of the file, from a cold cache. Beside them a million values inside one another: what opening
them costs beside as many plain records, and its system calls.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from onecopy.base.text import counted
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.machine import limits
from onecopy_bench.engine.record import Case, Log, Record, Row, Sample, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario, cache_state, usual_limits
from onecopy_bench.engine.tables import MB, MISSING, Column, Compute, Table, of_samples, plain, table
from onecopy_bench.files.loaders import Job, Loader, open_nothing
from onecopy_bench.files.sampling import above, limited, slowest, turn

NAME, NESTED = "structs", "nested"
BUILD = "cmake --preset release && cmake --build --preset release --target bench_structs"
BUILT = Path(__file__).parents[5] / "build/release/bench/bench_structs"
NESTED_BYTES = 100
"""Bytes that a nested value and what it is compared with take, generously."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to open: its word for the program, the file, the call, and its private memory as a share of the file."""

    name: str
    file: str
    detail: str
    private: float = 0.0


MODES = (
    Mode("map", "index.oc", "open<T>(path)"),
    Mode("warm", "index.oc", "open<T>(path, {.warm = true})"),
    Mode("start", "index.oc", "open<T>(path), start_warm() beside the questions"),
    Mode("random", "index.oc", "open<T>(path), advise_random()"),
    Mode("copy", "index.oc", "open<T>(path, {.mode = copy})", 1.0),
    Mode("s.mmap", "index.stream", "streams::mmap"),
    Mode("s.load", "index.stream", "streams::load", 1.0),
    Mode("fread", "index.flat", "fread into std::vector", 1.0),
    Mode("cereal", "index.cereal", "cereal::BinaryInputArchive", 1.0),
    Mode("read", "index.oc", "one read into huge pages, no questions", 1.0),
    Mode("none", "index.oc", "opens nothing", 0.0),
)
NAMES = tuple(mode.name for mode in MODES)
ASKED = NAMES[:-2]
"""The rows that answer questions."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    rounds: int = 7
    timeout: float = 300.0
    idle_wait: float = 30.0
    program: str | None = cli.option(
        None, "bench_structs.  [default: that of the checkout's release build]", metavar="PATH", path=True
    )
    size: int = cli.size("500MB", "Of the index, at least.")
    genome: str | None = cli.option(None, "FASTA.  [default: made up]", type=cli.EXISTING, path=True)
    questions: int = cli.option(1_000_000, "Number of questions that a process answers.")
    limit: str = cli.option(
        "none", "Of memory: in a control group of half of the file (root).", type=click.Choice(("none", "half"))
    )
    modes: tuple[str, ...] = cli.option(NAMES, "How the file is opened.", "--mode", choices=NAMES)
    threads: tuple[int, ...] = cli.option((1, 4), "Number of threads that ask.")
    processes: int = cli.option(4, "Number of processes at once, from a warm cache.", "-n", "--processes")
    fresh: int = cli.option(100, "Number of short processes, one after the other.", type=cli.NATURAL)
    nested: int = cli.option(1_000_000, "Number of values with a span each.", type=cli.NATURAL)
    limit_s: int = cli.option(30, "Seconds after which a process stops asking.")


def ask(program: Path, *words: object) -> dict[str, Any]:
    """Run the program to its end and return its line of JSON; raises RuntimeError where it fails."""
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"{program.name} {words[0]}: exit status {done.returncode}: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@dataclass(frozen=True, slots=True)
class Files:
    """What the program has built: where, and its facts (kmers, bytes, questions, checksum)."""

    program: Path
    folder: Path
    facts: dict[str, int]

    @classmethod
    def build(cls, program: Path, folder: Path, options: Options) -> Files:
        """Write the files of all modes; raises RuntimeError with what the program reported where it fails."""
        words: list[object] = ["--size", options.size, "--questions", options.questions, "--seed", 1]
        words += ["--genome", os.path.realpath(options.genome)] if options.genome else []
        return cls(program, folder, ask(program, "build", folder, *words))

    def modes(self, names: tuple[str, ...]) -> list[Mode]:
        """Return the modes whose file is there: without cereal's headers there was no such file to be built."""
        return [mode for mode in MODES if mode.name in names and (self.folder / mode.file).exists()]

    def job(self, mode: Mode) -> Job:
        """Return what a sample has to know of the file of a mode."""
        path = self.folder / mode.file
        return Job(str(path.absolute()), "bytes", path.stat().st_size, ())

    def loader(self, mode: Mode, suffix: str, verb: str, *more: object) -> Loader:
        """Return a row, named after its mode, that runs a verb of the program."""
        questions = (self.folder / "questions").absolute()
        command = (self.program, verb, "--questions", questions, "--mode", mode.name, *more)
        words = tuple(map(str, command))
        return Loader(mode.name + suffix, mode.detail, open=open_nothing, private=mode.private, command=words)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Build the files, and take all rounds; raises FileNotFoundError that says how the program is built."""
    program = Path(options.program or BUILT).absolute()
    if not os.access(program, os.X_OK) or program.is_dir():
        raise FileNotFoundError(f"no benchmark program {program.name}: in a checkout, {BUILD}; elsewhere name it")
    watch(Progress(0, 0, "building the index"))
    return measure(Files.build(program, place, options), options, watch, log)


def measure(files: Files, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Take all rounds of files that are there."""
    limit = files.facts["bytes"] // 2 if options.limit == "half" else None
    with contextlib.ExitStack() as stack:
        group = None if limit is None else stack.enter_context(limits.group(limits.memory(limit)))
        turns, rows = [], {}
        for mode, loader, case in _loaders(files, options, group):
            rows[loader.name] = Row(loader.name, loader.detail, size=files.job(mode).size)
            where: dict[str, Any] = {"case": case, "state": case[0], "processes": int(case[1])}
            plain_turn = turn(loader, files.job(mode), files.facts["checksum"], options, **where)
            turns.append(limited(plain_turn, [group] if group else [], limit))
        calls: dict[int, int | None] = {}
        if options.nested and limit is None:
            for count in sorted({options.nested, max(options.nested // 100, 1)}):
                path = files.folder / f"nested-{count}.oc"
                ask(files.program, "nested", "build", path, "--count", count)
                calls[count] = _system_calls(files.program, path)
            rows[NESTED] = Row(NESTED, "values inside one another", role=NESTED)
            take = partial(_take_nested, files.program, path)
            turns.append(Turn(NESTED, (NESTED,), NESTED_BYTES * options.nested, take))
        data = {"size": files.facts["bytes"], "memory_bytes": limit, "system_calls": calls}
        data |= {name: files.facts[name] for name in ("kmers", "questions", "checksum")}
        head = heading(NAME, files.folder, options, rows.values(), data=data)
        paths = {files.job(mode).path for mode in files.modes(options.modes)}
        return rounds.run(head, turns, options, watch=watch, log=log, files=paths)


def _loaders(files: Files, options: Options, group: Path | None) -> Iterator[tuple[Mode, Loader, Case]]:
    """Yield everything that a round holds: modes of the program, how they are started, and in which case."""
    more = ("--limit-s", options.limit_s, *(() if group is None else ("--group", group)), "--threads")
    for mode in files.modes(options.modes):
        for threads in options.threads if mode.name in ASKED else (1,):
            for state in ("cold",) if group is not None else ("cold", "warm"):
                yield mode, files.loader(mode, _suffix(threads), "open", *more, threads), (state, "1")
        if group is None and mode.name != "read":
            if options.processes > 1:
                yield mode, files.loader(mode, "", "open", *more, 1), ("warm", str(options.processes))
            if options.fresh:
                yield mode, files.loader(mode, "-fresh", "fresh", "--count", options.fresh), ("warm", "1")


def _take_nested(program: Path, path: Path, attempt: Attempt) -> Taken:
    """Open nested values, in a fresh process."""
    attempt.begin()
    answer = ask(program, "nested", "open", path)
    return Taken({name: answer[name] for name in ("count", "open_ns", "records_ns", "private_bytes")})


def _system_calls(program: Path, path: Path) -> int | None:
    """Return how many system calls a process makes that opens such a file; None without strace, or where it may not."""
    if shutil.which("strace") is None:
        return None
    command = ["strace", "-f", "-c", "-U", "calls,name", str(program), "nested", "open", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^\s*(\d+)\s+total\s*$", done.stderr, re.MULTILINE)
    return int(found.group(1)) if done.returncode == 0 and found else None


Value = float | None


def _note(name: str, unit: float) -> Callable[[Sample], Value]:
    def value(sample: Sample) -> Value:
        noted = [each["notes"][name] for each in sample.processes if name in each.get("notes", {})]
        return float(max(noted)) / unit if noted else None

    return value


def _all_ms(sample: Sample) -> Value:
    """Until all questions are answered: not where time was up before."""
    whole = all("checksum" in each for each in sample.processes)
    return slowest("resident_ns")(sample) if whole else None


def _rate(sample: Sample) -> Value:
    """Answers per second, from opening to the end."""
    answered = _note("answered", 1)(sample)
    return None if answered is None else answered / slowest("resident_ns", 1)(sample) * 1e9


TIMES: dict[str, Callable[[Sample], Value]] = {
    "open\nms": slowest("open_ns"),
    "1\nanswer": _note("first_ns", 1e6),
    "1,000\nanswers": _note("few_ns", 1e6),
    "all\nanswers": _all_ms,
}
"""Milliseconds since the process was released, by the words of a table."""

AGAIN = _note("again_ns", 1e6)


def elsewhere(suffix: str, case: Case, value: Callable[[Sample], Value]) -> Compute:
    """Return what computes a number of the row with a suffix, in a case of its own."""
    compute = of_samples(value)
    return lambda record, row, _: compute(record, row + suffix, case)


def _tables(record: Record) -> Iterator[Table]:
    """Yield times for each state of the cache and number of threads, then memory, then nested values."""
    limited = record.data["memory_bytes"] is not None
    for cache in ("cold",) if limited else ("cold", "warm"):
        for threads in record.options["threads"]:
            yield _time_table(record, cache, threads)
    yield _rate_table(record) if limited else _memory_table(record)
    if record.of(NESTED, (NESTED,)):
        yield _nested_table(record)


def _time_table(record: Record, cache: str, threads: int) -> Table:
    """Return what it takes from the start of opening to the answers, and to answer once more."""
    columns = [(title, of_samples(value)) for title, value in (*TIMES.items(), ("all,\nagain", AGAIN))]
    limit = record.data["memory_bytes"]
    place = "" if limit is None else f", in {limit / MB:.0f} MB"
    title = f"{cache}, {counted(threads, 'thread')}{place}: ms since the start"
    modes = [mode for mode in _modes(record) if mode in ASKED or (threads == 1 and mode != "none")]
    found = table(record, title, (cache, "1"), [mode + _suffix(threads) for mode in modes], columns)
    rows = ((mode, *cells) for mode, (_, *cells) in zip(modes, found.rows, strict=True) if cells[0] != MISSING)
    return replace(found, rows=tuple(rows))


def _rate_table(record: Record) -> Table:
    """Return how many answers a second a process gives, opening included, and what it reads for them."""
    cold = ("cold", "1")
    threads = record.options["threads"]
    columns = [(f"{counted(n, 'thread')}\nanswers/s", elsewhere(_suffix(n), cold, _rate)) for n in threads]
    columns += [("major\nfaults", of_samples(lambda s: float(s.processes[0]["major_faults"])))]
    columns += [("read from\ndisk MB", plain("disk_bytes", MB))]
    modes = [mode for mode in _modes(record) if mode in ASKED]
    return table(record, "Answers, opening included", cold, modes, columns)


def _memory_table(record: Record) -> Table:
    """Return what one process and several processes hold, and what short processes take."""
    count, fresh, size = record.options["processes"], record.options["fresh"], record.data["size"] / MB
    warm = ("warm", "1")
    columns = [("private\nMB", of_samples(above("anonymous"))), ("peak\nRSS MB", of_samples(_note("max_rss", MB)))]
    if count > 1:
        several, pss = ("warm", str(count)), above("pss")
        columns.append((f"PSS of {count}\nMB", elsewhere("", several, pss)))
        columns.append(("of the\nfile", elsewhere("", several, lambda s: pss(s) / size)))
    if fresh:
        columns.append((f"{fresh} short,\nms", elsewhere("-fresh", warm, slowest("resident_ns"))))
    return table(record, "Memory above an empty process, and short processes", warm, _modes(record), columns)


def _nested_table(record: Record) -> Table:
    calls = record.data["system_calls"]
    found = " and ".join(MISSING if count is None else str(count) for count in calls.values())
    sizes = " and ".join(f"{int(count):,}" for count in calls)
    columns: list[Column] = [
        ("values", plain("count")),
        ("open\nms", plain("open_ns", 1e6)),
        ("records\nms", plain("records_ns", 1e6)),
        ("ratio", of_samples(lambda s: s.numbers["open_ns"] / s.numbers["records_ns"])),
        ("private\nMB", plain("private_bytes", MB)),
    ]
    return table(record, f"Nested values; system calls for {sizes}: {found}", (NESTED,), [NESTED], columns)


def _limits(record: Record) -> Iterator[str]:
    late = {s.row for s in record.samples if s.state == "ok" and _was_cut(s)}
    if late:
        yield f"Stopped after {record.options['limit_s']} s, before all answers: {', '.join(sorted(late))}."
    yield from cache_state([s for s in record.samples if s.case[0] == "cold" and s.state == "ok"], {})
    yield from usual_limits(record)


def _described(record: Record) -> str:
    data = record.data
    kmers = "" if data["kmers"] is None else f"{data['kmers']:,} k-mers, "
    rounds = counted(record.rounds, "round")
    return f"structs: {data['size'] / MB:.1f} MB, {kmers}{data['questions']:,} questions, {rounds}"


def _modes(record: Record) -> list[str]:
    return [row.name for row in record.rows if "-" not in row.name and row.name != NESTED]


def _suffix(threads: int) -> str:
    return "" if threads == 1 else f"-{threads}"


def _was_cut(sample: Sample) -> bool:
    return any("answered" in each.get("notes", {}) and "checksum" not in each for each in sample.processes)


SCENARIO = Scenario(
    NAME,
    """Measure a C++ index: opened in every way, cold and warm, then asked 1, 1,000 and all questions.

    The index is a dictionary of the k-mers of a genome (examples/structs), as large as asked for by mutation. Its rows:
    mapped, mapped and warmed, mapped and being warmed, mapped and read by single pages, copied; as a packed stream,
    mapped and loaded; read by fread into vectors; read by cereal, where the program was built with it.
    """,
    Options(),
    run,
    _described,
    _tables,
    limits=_limits,
    measures={"open_ms": TIMES["open\nms"], "all_ms": _all_ms, "private_mb": above("anonymous")},
)
