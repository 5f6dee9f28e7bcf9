"""`onecopy bench structs`: a C++ index opened in every way, and what it takes to answer 1, 1,000 and 10^6 questions.

Each sample is a fresh process of the C++ program: cold and warm, asking with each number of threads; several processes
at once from a warm cache; 100 short processes one after the other. With a memory limit, the processes join a control
group that holds a share of the file, from a cold cache. Beside them a million values inside one another: what opening
them costs beside as many plain records, and its system calls. A row such as "map-4" asks with 4 threads, "map-fresh" is
the short processes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from onecopy.base.text import counted
from onecopy_bench import places
from onecopy_bench.files.loaders import Job, Loader
from onecopy_bench.files.trials import trial_of
from onecopy_bench.record import Case, Record, Row, Sample, Spread
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, limits_of_cold_runs, option, size_option
from onecopy_bench.tables import MB, MISSING, Column, Table, above_start, per_sample, plain, slowest, table, total

NAME, NESTED = "structs", "nested"
BUILD = "cmake --preset release && cmake --build --preset release --target bench_structs"
BUILT = Path(__file__).parents[4] / "build/release/bench/bench_structs"
NESTED_BYTES = 100
"""Bytes that a nested value and what it is compared with take, generously."""


class Mode(NamedTuple):
    """A mode of opening: its word for the program, the file, the call, and private memory as a share of the file."""

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
    program: str | None = option(
        None, "bench_structs.  [default: that of the checkout's release build]", metavar="PATH", is_path=True
    )
    size: int = size_option("500MB", "Minimum size of the index.")
    genome: str | None = option(None, "FASTA.  [default: made up]", kind="existing", is_path=True)
    questions: int = option(1_000_000, "Number of questions that a process answers.")
    limit: str = option(
        "none", "Limit of memory: a control group with half of the size of the file (root).", choices=("none", "half")
    )
    modes: tuple[str, ...] = option(NAMES, "How the file is opened.", "--mode", choices=NAMES)
    threads: tuple[int, ...] = option((1, 4), "Number of threads that ask questions.")
    processes: int = option(4, "Number of processes at once, from a warm cache.", "-n", "--processes")
    fresh: int = option(100, "Number of short processes, one after the other.", at_least=0)
    nested: int = option(1_000_000, "Number of values with a span each.", at_least=0)
    limit_s: int = option(30, "Seconds after which a process stops asking.")


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
    """The files that the program has built, and their facts (kmers, bytes, questions, checksum)."""

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
        """Return the modes whose file exists; a build without cereal's headers writes none for it."""
        return [mode for mode in MODES if mode.name in names and (self.folder / mode.file).exists()]

    def job(self, mode: Mode) -> Job:
        """Return the job for the file of a mode."""
        path = self.folder / mode.file
        return Job(str(path.absolute()), "bytes", path.stat().st_size, ())

    def loader(self, mode: Mode, suffix: str, verb: str, *more: object) -> Loader:
        """Return a row, named after its mode, that runs a verb of the program."""
        questions = (self.folder / "questions").absolute()
        command = (self.program, verb, "--questions", questions, "--mode", mode.name, *more)
        words = tuple(map(str, command))
        return Loader(mode.name + suffix, mode.detail, private=mode.private, command=words)


def plan(setup: Setup, options: Options) -> Plan:
    """Build the files and plan their trials; raises FileNotFoundError that says how the program is built."""
    program = Path(options.program or BUILT).absolute()
    if not os.access(program, os.X_OK) or program.is_dir():
        raise FileNotFoundError(f"no benchmark program {program.name}: in a checkout, {BUILD}; elsewhere name it")
    setup.say("building the index")
    files = Files.build(program, setup.place, options)
    limit = files.facts["bytes"] // 2 if options.limit == "half" else None
    group = None if limit is None else setup.stack.enter_context(places.group(places.memory_limit(limit)))
    trials, rows = [], {}
    for mode, loader, case in _loaders(files, options, group):
        rows[loader.name] = Row(loader.name, loader.detail, size=files.job(mode).size)
        where: dict[str, Any] = {"case": case, "state": case[0], "processes": int(case[1])}
        where["limit"] = ([group] if group else [], limit)
        trials.append(trial_of(loader, files.job(mode), files.facts["checksum"], options, **where))
    calls: dict[int, int | None] = {}
    if options.nested and limit is None:
        for count in sorted({options.nested, max(options.nested // 100, 1)}):
            path = files.folder / f"nested-{count}.oc"
            ask(files.program, "nested", "build", path, "--count", count)
            calls[count] = _system_calls(files.program, path)
        rows[NESTED] = Row(NESTED, "values inside one another", role=NESTED)
        take = partial(_take_nested, files.program, path)
        trials.append(Trial(NESTED, (NESTED,), NESTED_BYTES * options.nested, take))
    data = {"size": files.facts["bytes"], "memory_bytes": limit, "system_calls": calls}
    data |= {name: files.facts[name] for name in ("kmers", "questions", "checksum")}
    paths = {files.job(mode).path for mode in files.modes(options.modes)}
    return Plan(list(rows.values()), trials, data, files=paths)


def _loaders(files: Files, options: Options, group: Path | None) -> Iterator[tuple[Mode, Loader, Case]]:
    """Yield the trials of a round: a mode of the program, its loader, and the case."""
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


def _take_nested(program: Path, path: Path, attempt: Attempt) -> Measured:
    """Open nested values, in a fresh process."""
    attempt.begin()
    answer = ask(program, "nested", "open", path)
    return Measured({name: answer[name] for name in ("count", "open_ns", "records_ns", "private_bytes")})


def _system_calls(program: Path, path: Path) -> int | None:
    """Return the number of system calls that opening such a file takes; None if strace is missing or not permitted."""
    if shutil.which("strace") is None:
        return None
    command = ["strace", "-f", "-c", "-U", "calls,name", str(program), "nested", "open", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^\s*(\d+)\s+total\s*$", done.stderr, re.MULTILINE)
    return int(found.group(1)) if done.returncode == 0 and found else None


def _note(name: str, unit: float) -> Callable[[Sample], float | None]:
    def value(sample: Sample) -> float | None:
        noted = [each["notes"][name] for each in sample.processes if name in each.get("notes", {})]
        return float(max(noted)) / unit if noted else None

    return value


def _all_ms(sample: Sample) -> float | None:
    """Return the time until all questions are answered; None if the limit came first."""
    return slowest("resident_ns")(sample) if all("checksum" in each for each in sample.processes) else None


def _rate(sample: Sample) -> float | None:
    """Return the answers per second, from opening to the end."""
    answered = _note("answered", 1)(sample)
    return None if answered is None else answered / slowest("resident_ns", 1)(sample) * 1e9


def _share_of_file(record: Record, row: str, case: Case) -> Spread | None:
    return per_sample(above_start("pss", record.data["size"]))(record, row, case)


COLUMNS: tuple[Column, ...] = (
    ("open\nms", per_sample(slowest("open_ns"))),
    ("1\nanswer", per_sample(_note("first_ns", 1e6))),
    ("1,000\nanswers", per_sample(_note("few_ns", 1e6))),
    ("all\nanswers", per_sample(_all_ms)),
    ("all,\nagain", per_sample(_note("again_ns", 1e6))),
    ("at the\nend", per_sample(slowest("resident_ns"))),
    ("answers\n/s", per_sample(_rate)),
    ("private\nMB", per_sample(above_start("anonymous"))),
    ("peak\nRSS MB", per_sample(_note("max_rss", MB))),
    ("PSS\nMB", per_sample(above_start("pss"))),
    ("of the\nfile", _share_of_file),
    ("major\nfaults", per_sample(total("major_faults", 1))),
    ("read from\ndisk MB", plain("disk_bytes", MB)),
)
"""Times are milliseconds since the start; memory is that of all processes, above empty ones."""
NESTED_COLUMNS: tuple[Column, ...] = (
    ("values", plain("count")),
    ("open\nms", plain("open_ns", 1e6)),
    ("records\nms", plain("records_ns", 1e6)),
    ("ratio", per_sample(lambda sample: sample.numbers["open_ns"] / sample.numbers["records_ns"])),
    ("private\nMB", plain("private_bytes", MB)),
)


def _tables(record: Record) -> Iterator[Table]:
    """Yield a table for each state of the cache and number of processes, then nested values."""
    limit = record.data["memory_bytes"]
    place = "" if limit is None else f", in {limit / MB:.0f} MB"
    for case in record.cases():
        names = [name for name in record.names() if any((s.row, s.case) == (name, case) for s in record.samples)]
        if case == (NESTED,):
            calls = {f"{int(count):,}": found for count, found in record.data["system_calls"].items()}
            words = ", ".join(f"{MISSING if found is None else found} for {count}" for count, found in calls.items())
            yield table(record, f"Nested values; system calls: {words}", case, [NESTED], NESTED_COLUMNS)
        else:
            processes = counted(int(case[1]), "process", "processes")
            yield table(record, f"{case[0]}, {processes}{place}", case, names, COLUMNS)


def _limits(record: Record) -> Iterator[str]:
    late = {s.row for s in record.samples if s.state == "ok" and _was_cut(s)}
    if late:
        yield f"Stopped after {record.options['limit_s']} s, before all answers: {', '.join(sorted(late))}."
    yield from limits_of_cold_runs(record)


def _described(record: Record) -> str:
    data = record.data
    kmers = "" if data["kmers"] is None else f"{data['kmers']:,} k-mers, "
    return f"{data['size'] / MB:.1f} MB, {kmers}{data['questions']:,} questions"


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
    plan,
    _described,
    _tables,
    limits=_limits,
    measures={"open_ms": slowest("open_ns"), "all_ms": _all_ms, "private_mb": above_start("anonymous")},
)
