"""Programs that are run as they are and under `onecopy run`, to compare what they print."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.support.children import CHILD_SECONDS
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


class Outcome:
    """What a program did in a folder of its own."""

    def __init__(
        self, code: str, folder: Path, *, run: bool, options: tuple[str, ...] = (), prelude: str = PRELUDE
    ) -> None:
        folder.mkdir(parents=True)
        program = folder.parent / f"{folder.name}.py"
        program.write_text(prelude + textwrap.dedent(code))
        report = folder.parent / f"{folder.name}.json"
        command = [sys.executable, "-W", "ignore", str(program)]
        if run:
            command = [sys.executable, "-m", "onecopy", "run", "-q", "--report", str(report), *options, "--", *command]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
        )
        self.status, self.printed, self.errors = done.returncode, done.stdout, done.stderr
        self.report: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}

    @property
    def shared(self) -> dict[str, int]:
        """Bytes that are shared, by name of the file."""
        return {Path(one["path"]).name: one["bytes"] for one in self.report["shared"]}

    @property
    def reasons(self) -> set[str]:
        """Why something is not shared."""
        return {one["reason"] for one in self.report["copied"]}


def run_shared(code: str, *arguments: object) -> str:
    """Run `code` under `onecopy run` with warnings as errors; return its standard output."""
    python = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    command = [sys.executable, "-m", "onecopy", "run", "-q", "--", *python]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def same_answer(code: str, folder: Path, **settings: Any) -> Outcome:
    """Run a program both ways, in two folders; return the outcome under `onecopy run`, which must be the plain one."""
    plain = Outcome(code, folder / "plain", run=False, **{k: v for k, v in settings.items() if k == "prelude"})
    shared = Outcome(code, folder / "run", run=True, **settings)
    assert plain.status == 0, plain.errors
    assert (shared.status, shared.printed) == (plain.status, plain.printed), shared.errors
    return shared
