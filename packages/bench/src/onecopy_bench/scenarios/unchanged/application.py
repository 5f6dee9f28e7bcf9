"""A WSGI application whose workers load the file of a program, and answer requests: ``GET /NUMBER``.

`server` starts it with gunicorn. Nothing here imports onecopy.auto.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from onecopy_bench.engine.memory import memory_of
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.unchanged.programs import PROGRAMS

Start = Callable[[str, list[tuple[str, str]]], object]


def made(name: str, path: str) -> Callable[[dict[str, Any], Start], Iterable[bytes]]:
    """Load the file of a program, and return the application.

    It answers with the result, the PID, and the memory of the process before it loaded the file.
    """
    program = named(PROGRAMS, name)
    for module in program.needs:
        importlib.import_module(module)
    program.prepare()
    gc.collect()
    before = memory_of(os.getpid())
    state = program.load(path)

    def application(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        result = program.answer(state, int(environ["PATH_INFO"].strip("/")))
        start("200 OK", [("Content-Type", "application/json")])
        answer = {"pid": os.getpid(), "result": result, "pss": before.pss, "anonymous": before.anonymous}
        return [json.dumps(answer).encode()]

    return application
