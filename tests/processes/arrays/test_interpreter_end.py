"""The interpreter ends while daemon threads are inside the library: the process exits with its own status.

`threading.Thread(target=model.warm, daemon=True)` is the obvious prefetch. CPython before 3.14 ends a thread that asks
for the GIL then by unwinding its stack, which no C++ function may let through.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.children import run_python
from tests.support.rounds import rounds

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys, threading, time
from pathlib import Path
import numpy as np, onecopy as oc, onecopy.records

folder, what, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
path = folder / "model.safetensors"
oc.save(path, {"a": np.zeros(20_000_000, "u1")})
model, mapping = oc.open(path), oc.Mapping(path)
rows = oc.share([{"i": i, "text": "x" * 50} for i in range(20_000)])
table = oc.share({str(i): i for i in range(20_000)})
store = oc.Store(folder / "store")
(folder / "rows.jsonl").write_text('{"a": 1}\\n' * 50_000)
many = lambda: ({"i": i} for i in range(100_000))
build = lambda path: path.write_bytes(b"x")
calls = {
    "warm": lambda: model.warm(),
    "verify": lambda: model.verify(),
    "evict": lambda: model.evict(),
    "residency": lambda: model.residency(),
    "pin": lambda: model.pin(),
    "copy": lambda: oc.open(path, "copy").close(),
    "save": lambda: oc.save(folder / "saved", {"a": np.zeros(5_000_000, "u1")}),
    "scratch": lambda: oc.scratch((1000, 1000), "u1", folder, anywhere=True).close(),
    "read": lambda: rows[5],
    "iterate": lambda: list(rows),
    "take": lambda: rows.take(list(range(0, 20_000, 2))),
    "find": lambda: table["77"],
    "share": lambda: oc.share(many()),
    "records": lambda: onecopy.records.save(folder / "records", many()),
    "import": lambda: onecopy.records.import_jsonl(folder / "rows.jsonl", folder / "imported"),
    "build": lambda: (store.prune(everything=True), store.get_or_build("a", build)),
    "list": lambda: store.ls(),
}
started = threading.Barrier(3)

def run():
    started.wait()
    while True:
        try:
            calls[what]()
        except OSError:  # two threads prune one store, ...
            pass

for _ in range(2):
    threading.Thread(target=run, daemon=True).start()
started.wait()
time.sleep(pause)
sys.exit(7)
"""


def ending(program: str, *arguments: object) -> tuple[int, str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stderr


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", re.findall(r'^    "(\w+)": lambda', PROGRAM, re.MULTILINE))
def test_the_process_exits_with_its_own_status(tmp_path: Path, what: str) -> None:
    for i in range(rounds(4, 100)):
        assert ending(PROGRAM, tmp_path, what, 0.011 * (i % 10)) == (7, "")


ENDED = """
import sys, tempfile, threading, time, types
from onecopy import _core

class Late:  # its end, in that of the interpreter, lets the thread ask for the GIL
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

class Rows:
    def _arrow_stream(self):
        begun.set()
        time.sleep(0.2)

def run():
    _core.RecordBuilder(tempfile.gettempdir(), "list", {}).extend(Rows(), str)

begun = threading.Event()
late = sys.modules["late"] = types.ModuleType("late")  # whose names go, whatever the thread still holds
late.one = Late()
del late
threading.Thread(target=run, daemon=True).start()
begun.wait(10)
sys.exit(7)
"""


def test_a_thread_may_end_in_code_of_python_that_a_compiled_function_calls() -> None:
    assert ending(ENDED) == (7, "")


def test_a_sub_interpreter_is_refused() -> None:
    code = """
        import onecopy
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        new = interpreters.create()
        try:
            failed = interpreters.run_string(new, "import onecopy; onecopy.open")
        except Exception as error:
            failed = error
        print(failed)
        interpreters.destroy(new)
    """
    assert re.search("sub-?interpreter", run_python(code))  # from 3.12 on, Python itself refuses it
