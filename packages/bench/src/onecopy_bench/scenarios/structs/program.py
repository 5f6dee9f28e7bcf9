"""The C++ program `bench_structs`: where it is, what it builds, and the rows that it opens."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecopy_bench.files.configurations import Configuration, Job, open_nothing

BUILD = "cmake --preset release && cmake --build --preset release --target bench_structs"


@dataclass(frozen=True, slots=True)
class Row:
    """A way to open: its word for the program, the file, the call, and its private memory as a share of the file."""

    mode: str
    file: str
    detail: str
    private_share: float = 0.0


ROWS = (
    Row("map", "index.oc", "open<T>(path)"),
    Row("warm", "index.oc", "open<T>(path, {.warm = true})"),
    Row("start", "index.oc", "open<T>(path), start_warm() beside the questions"),
    Row("random", "index.oc", "open<T>(path), advise_random()"),
    Row("copy", "index.oc", "open<T>(path, {.mode = copy})", 1.0),
    Row("s.mmap", "index.stream", "streams::mmap"),
    Row("s.load", "index.stream", "streams::load", 1.0),
    Row("fread", "index.flat", "fread into std::vector", 1.0),
    Row("cereal", "index.cereal", "cereal::BinaryInputArchive", 1.0),
    Row("read", "index.oc", "one read into huge pages, no questions", 1.0),
    Row("none", "index.oc", "opens nothing", 0.0),
)
ASKED = ("map", "warm", "start", "random", "copy", "s.mmap", "s.load", "fread", "cereal")
"""The rows that answer questions."""


@dataclass(frozen=True, slots=True)
class Files:
    """What was built: where, the k-mers, the bytes of the onecopy file, the questions and the sum of the answers."""

    folder: Path
    kmers: int
    bytes: int
    questions: int
    checksum: int

    def path(self, row: Row) -> Path:
        """Return the file that a row opens."""
        return self.folder / row.file

    def rows(self) -> tuple[Row, ...]:
        """Return the rows whose file is there: without cereal's headers there was no such file to be built."""
        return tuple(row for row in ROWS if self.path(row).exists())

    def job(self, row: Row) -> Job:
        """Return what the runner has to know of the file of a row."""
        path = self.path(row)
        return Job(os.fspath(path.absolute()), "bytes", path.stat().st_size, ())


def find(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the program; None: that of the checkout this package is in.

    Raises
    ------
    FileNotFoundError
        If it is not there, with the command that builds it.
    """
    program = Path(__file__).parents[6] / "build/release/bench/bench_structs" if path is None else Path(path)
    if not os.access(program, os.X_OK) or program.is_dir():
        raise FileNotFoundError(f"no benchmark program {program.name}: in a checkout, {BUILD}; elsewhere name it")
    return program.absolute()


def build(
    program: Path, folder: Path, *, size: int, genome: str | None = None, questions: int = 1_000_000, seed: int = 1
) -> Files:
    """Write the files of all rows; raises RuntimeError with what the program said where it fails.

    Parameters
    ----------
    program
        See `find`.
    folder
        Made if it is not there.
    size
        Bytes that the onecopy file has at least.
    genome
        A FASTA file, not compressed; None makes one up.
    questions, seed
        How many k-mers are asked for; of the genome's mutations.
    """
    words = ["--size", size, "--questions", questions, "--seed", seed, *(["--genome", genome] if genome else [])]
    told = ask(program, "build", folder, *words)
    return Files(folder, told["kmers"], told["bytes"], told["questions"], told["checksum"])


def ask(program: Path, *words: object) -> dict[str, Any]:
    """Run the program to its end and return the line of JSON that it says; raises RuntimeError where it fails."""
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"{program.name} {words[0]}: exit status {done.returncode}: {last}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def configuration(program: Path, files: Files, row: Row, **settings: object) -> Configuration:
    """Return a row for the runner: named after its mode and its threads, or as 100 fresh processes.

    Parameters
    ----------
    settings
        `threads`, `limit_s`, `group` of the process; or `fresh`, how many processes one after the other.
    """
    questions = ("--questions", str((files.folder / "questions").absolute()), "--mode", row.mode)
    fresh = settings.pop("fresh", None)
    threads = settings.get("threads", 1)
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    if fresh is not None:
        words += ["--count", str(fresh)]
    name = row.mode + ("-fresh" if fresh is not None else f"-{threads}" if threads != 1 else "")
    return Configuration(
        name,
        row.detail,
        open_nothing,
        modules=(),
        optional=(),
        private_share=row.private_share,
        command=(str(program), "open" if fresh is None else "fresh", *questions, *words),
    )
