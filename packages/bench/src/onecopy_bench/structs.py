"""`onecopy bench structs`: open a C++ index in every supported way, and time 1, 1,000 and 10^6 queries.

Each sample is a fresh process of the C++ program with a cold or a warm cache, or several simultaneous processes with a
warm cache. In each process, a single thread runs the queries.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onecopy.base.text import counted
from onecopy_bench.files.loaders import Job, Loader
from onecopy_bench.files.trials import trial_of
from onecopy_bench.record import Record, Row, Sample
from onecopy_bench.runs import Settings
from onecopy_bench.scenario import Plan, Scenario, Setup, limits_of_cold_runs, option, size_option
from onecopy_bench.tables import MB, Column, Table, above_start, per_sample, plain, slowest, table, total

NAME = "structs"
BUILD = "cmake --preset release && cmake --build --preset release --target bench_structs"
BUILT = Path(__file__).parents[4] / "build/release/bench/bench_structs"


class Mode(NamedTuple):
    """A way to open the index: its name in the program, the file, the call, and private memory per byte of the file."""

    name: str
    file: str
    detail: str
    private: float = 0.0


MODES = (
    Mode("map", "index.oc", "open<T>(path)"),
    Mode("warm", "index.oc", "open<T>(path, {.warm = true})"),
    Mode("copy", "index.oc", "open<T>(path, {.mode = copy})", 1.0),
    Mode("s.mmap", "index.stream", "streams::mmap"),
    Mode("s.load", "index.stream", "streams::load", 1.0),
    Mode("fread", "index.flat", "fread into std::vector", 1.0),
)
NAMES = tuple(mode.name for mode in MODES)


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The options of the scenario."""

    rounds: int = 7
    timeout: float = 300.0
    idle_wait: float = 30.0
    program: str | None = option(
        None, "The program bench_structs.  [default: from the release build]", metavar="PATH", is_path=True
    )
    size: int = size_option("500MB", "Minimum size of the index.")
    genome: str | None = option(None, "A FASTA file.  [default: synthetic]", kind="existing", is_path=True)
    questions: int = option(1_000_000, "Number of questions that a process answers.")
    modes: tuple[str, ...] = option(NAMES, "Way to open the file.", "--mode", choices=NAMES)
    processes: int = option(4, "Number of simultaneous processes, with a warm cache.", "-n", "--processes")


def build(program: Path, folder: Path, options: Options) -> dict[str, int]:
    """Run the program to write the files for all modes, and return facts about them. Raise RuntimeError if it fails."""
    words: list[object] = [folder, "--size", options.size, "--questions", options.questions, "--seed", 1]
    words += ["--genome", os.path.realpath(options.genome)] if options.genome else []
    done = subprocess.run([program, "build", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"{program.name} build: exit status {done.returncode}: {last}")
    facts: dict[str, int] = json.loads(done.stdout)
    return facts


def plan(setup: Setup, options: Options) -> Plan:
    """Build the files and plan their trials. Raise FileNotFoundError if the program is missing."""
    program = Path(options.program or BUILT).absolute()
    if not os.access(program, os.X_OK) or program.is_dir():
        raise FileNotFoundError(f"{program.name} is missing: build it in a checkout ({BUILD}), or pass its path")
    setup.say("building the index")
    facts = build(program, setup.place, options)
    asking = (str(program), "open", "--questions", str((setup.place / "questions").absolute()), "--mode")
    trials, rows, paths = [], [], set()
    for mode in (mode for mode in MODES if mode.name in options.modes):
        path = (setup.place / mode.file).absolute()
        job = Job(str(path), "bytes", path.stat().st_size, ())
        paths.add(path)
        rows.append(Row(mode.name, mode.detail, size=job.size))
        loader = Loader(mode.name, mode.detail, private=mode.private, command=(*asking, mode.name))
        several = [("warm", options.processes)] if options.processes > 1 else []
        for state, processes in (("cold", 1), ("warm", 1), *several):
            where: dict[str, Any] = {"case": (state, str(processes)), "state": state, "processes": processes}
            trials.append(trial_of(loader, job, facts["checksum"], options, **where))
    data = {"size": facts["bytes"]} | {name: facts[name] for name in ("kmers", "questions", "checksum")}
    return Plan(rows, trials, data, files=paths)


def _note(name: str, unit: float) -> Callable[[Sample], float | None]:
    def value(sample: Sample) -> float | None:
        noted = [each["notes"][name] for each in sample.processes if name in each.get("notes", {})]
        return float(max(noted)) / unit if noted else None

    return value


def _all_ms(sample: Sample) -> float | None:
    """Return the time until all queries were answered, or None if an older record lacks this number."""
    return slowest("resident_ns")(sample) if all("checksum" in each for each in sample.processes) else None


def _rate(sample: Sample) -> float | None:
    """Return the number of answers per second, counted from the opening of the index."""
    answered = _note("answered", 1)(sample)
    return None if answered is None else answered / slowest("resident_ns", 1)(sample) * 1e9


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
    ("of the\nfile", lambda record, *of: per_sample(above_start("pss", record.data["size"]))(record, *of)),
    ("major\nfaults", per_sample(total("major_faults", 1))),
    ("read from\ndisk MB", plain("disk_bytes", MB)),
)
"""Times are in milliseconds since the start; memory is the total of all processes, minus that of empty processes."""


def _tables(record: Record) -> Iterator[Table]:
    """Yield a table for each combination of a cache state and a number of processes; older records have more cases."""
    for case in (case for case in record.cases() if len(case) == 2):
        names = [name for name in record.names() if any((s.row, s.case) == (name, case) for s in record.samples)]
        yield table(record, f"{case[0]}, {counted(int(case[1]), 'process', 'processes')}", case, names, COLUMNS)


def _described(record: Record) -> str:
    data = record.data
    return f"{data['size'] / MB:.1f} MB, {data['kmers']:,} k-mers, {data['questions']:,} questions"


SCENARIO = Scenario(
    NAME,
    """Measure a C++ index that is opened in every way, cold and warm, and then answers 1, 1,000 and all questions.

    The index is a dictionary of the k-mers of a genome (examples/structs), enlarged by mutated copies to the requested
    size. It is mapped, mapped and warmed, or copied; mapped and loaded as a packed stream; and read by fread into
    vectors.
    """,
    Options(),
    plan,
    _described,
    _tables,
    limits=limits_of_cold_runs,
    measures={"open_ms": slowest("open_ns"), "all_ms": _all_ms, "private_mb": above_start("anonymous")},
)
