"""Programs that are run as they are and under `onecopy run`, to compare what they print: cases of one process."""

import json
import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.children import CHILD_SECONDS, finished
from tests.support.places import ROOT

PRELUDE = """
import hashlib, os, sys
import numpy as np
def described(x):
    if not isinstance(x, np.ndarray):
        return type(x).__name__, repr(x)
    owners, base = [], x.base
    while base is not None:
        owners.append(type(base).__name__)
        base = getattr(base, "base", None)
    return (type(x).__name__, x.dtype.str, x.shape, x.strides if x.size else (), str(x.flags), owners,
            hashlib.sha256(repr(x.tolist()).encode() if x.dtype.hasobject else x.tobytes()).hexdigest())
"""


DRIVER = """
import json, os, sys, traceback, warnings
with open(sys.argv[1]) as file:
    prelude, cases = json.load(file)
exec(prelude)
sys.argv[1:] = []
for number, code in enumerate(cases):
    os.mkdir(str(number))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: those of libraries wait
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for descriptor, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{number}.{name}", os.O_WRONLY | os.O_CREAT), descriptor)
            os.chdir(str(number))
            if torch := sys.modules.get("torch"):  # makes the pool of a forked process, which threads cannot do at once
                torch.set_num_threads(torch.get_num_threads())
            exec(compile(code, f"case {number}", "exec"))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    with open(f"{number}.status", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
"""


class Outcome:
    """What a case did, in a process and a folder of its own."""

    def __init__(self, place: Path, report: dict[str, Any]) -> None:
        self.status = int(place.with_suffix(".status").read_text())
        self.printed, self.errors = (place.with_suffix(f".{name}").read_text() for name in ("out", "err"))
        self.report = {
            kind: [one for one in report[kind] if Path(one["path"]).is_relative_to(place)]
            for kind in ("shared", "copied", "read")
            if kind in report
        }

    @property
    def shared(self) -> dict[str, int]:
        """Bytes that are shared, by name of the file."""
        return {Path(one["path"]).name: one["bytes"] for one in self.report["shared"]}

    @property
    def reasons(self) -> set[str]:
        """Why something is not shared."""
        return {one["reason"] for one in self.report["copied"]}


def outcomes(
    cases: Mapping[str, str],
    folder: Path,
    *,
    prelude: str = PRELUDE,
    run: bool = True,
    options: tuple[str, ...] = (),
    warnings: str = "ignore",
) -> dict[str, Outcome]:
    """Run cases, each in a fork of one process that has run the prelude; under `onecopy run`, or plain."""
    folder.mkdir(parents=True)
    texts, report = folder.parent / f"{folder.name}-cases.json", folder.parent / f"{folder.name}.json"
    texts.write_text(json.dumps([prelude, [textwrap.dedent(code) for code in cases.values()]]))
    command = [sys.executable, "-W", warnings, "-c", DRIVER, str(texts)]
    if run:
        command = [sys.executable, "-m", "onecopy", "run", "-q", "--report", str(report), *options, "--", *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    finished(command, cwd=folder, env=environment, timeout=10 * CHILD_SECONDS)
    found = json.loads(report.read_text()) if run else {}
    return {name: Outcome(folder / str(number), found) for number, name in enumerate(cases)}


def same_answers(cases: Mapping[str, str], folder: Path, **settings: Any) -> Callable[[str], Outcome]:
    """Run cases both ways, in two folders; return a function of what is done under `onecopy run`: the same."""
    plain = outcomes(cases, folder / "plain", **settings, run=False)
    shared = outcomes(cases, folder / "run", **settings)

    def same(name: str) -> Outcome:
        one, other = plain[name], shared[name]
        assert one.status == 0, one.errors
        assert (other.status, other.printed) == (one.status, one.printed), other.errors
        return other

    return same


def same_answer(code: str, folder: Path, **settings: Any) -> Outcome:
    """Run one case both ways, as `same_answers` does."""
    return same_answers({"": code}, folder, **settings)("")


def run_shared(code: str, *arguments: object) -> str:
    """Run `code` under `onecopy run` with warnings as errors; return its standard output."""
    python = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    return finished([sys.executable, "-m", "onecopy", "run", "-q", "--", *python])


def run_reported(*command: object, folder: Path, before: tuple[str, ...] = ()) -> tuple[str, dict[str, Any]]:
    """Run a command under `onecopy run`; return its standard output and the report, a file in a folder."""
    report = folder / "report.json"
    run = [*before, sys.executable, "-m", "onecopy", "run", "-q", "--report", str(report), "--"]
    return finished([*run, *map(str, command)]), json.loads(report.read_text())
