"""The warm fork server."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import onecopy.frameworks.workers
from onecopy.frameworks.workers import preload

pytestmark = pytest.mark.processes

MB = 1_000_000


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., str]:
    """Run a program of a file, which can import what is beside it in `modules`; return what it printed."""
    (tmp_path / "modules").mkdir()

    def run(code: str, *, warnings: str = "error", **environment: str) -> str:
        (tmp_path / "program.py").write_text(textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, "-W", warnings, "program.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "modules"), "OPENBLAS_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_workers_have_from_the_start_what_is_preloaded(program):
    said = program("""
        import multiprocessing, sys
        import onecopy as oc
        from onecopy.frameworks.workers import preload

        def work():
            print("worker", "colorsys" in sys.modules)

        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            print(preload(["colorsys"]))
            worker = context.Process(target=work)
            worker.start()
            worker.join()
            print("parent", "colorsys" in sys.modules)
    """)
    assert said.splitlines() == [
        "the fork server will import colorsys before the first worker; measure=True measures the savings",
        "worker True",
        "parent False",
    ]


def test_the_main_module_stays_preloaded(python):
    told = python("""
        from multiprocessing import forkserver
        from onecopy.frameworks.workers import preload
        preload(["json", "xml.dom"])
        print(forkserver._forkserver._preload_modules)
    """)
    assert told.splitlines() == [str(["__main__", "json", "xml.dom", *onecopy.frameworks.workers.READERS])]


def test_a_module_that_is_not_there_is_an_error_and_not_ignored():
    with pytest.raises(ModuleNotFoundError, match=r"torhc\.nn"):
        preload(["torhc.nn"])


def test_a_server_that_runs_already_is_reported(program):
    said = program("""
        import multiprocessing, warnings
        import onecopy as oc
        from onecopy.frameworks.workers import preload

        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            preload(["json"])
            context.Process(target=print).start()
            print(preload(["json"]).effective)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                print(preload(["colorsys"]).effective)
            print(caught[0].category.__name__, caught[0].filename.endswith("program.py"), caught[0].message)
    """)
    assert said.split("\n", 1)[0] == "True"
    assert "False" in said
    assert "RuntimeWarning True the fork server is already running: colorsys will not be preloaded; call" in said


def test_measuring_reports_what_a_worker_saves(program, tmp_path):
    (tmp_path / "modules/heavy.py").write_text("TABLE = bytearray(b'x' * 50_000_000)\n")
    said = program("""
        import onecopy as oc
        from onecopy.frameworks.workers import preload

        report = preload(["heavy"], measure=True)
        print(report.without.uss - report.preloaded.uss, report.missing, report.server_threads, report.threads_at_fork)
        print(report)
    """)
    saved, rest = said.split(" ", 1)
    assert 45 * MB < int(saved) < 60 * MB
    lines = rest.splitlines()
    assert lines[0] == "() 1 1"
    assert lines[1].startswith("a worker with heavy starts in ")


def test_threads_that_an_import_starts_are_a_warning_that_names_the_variables(program, tmp_path):
    (tmp_path / "modules/busy.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    said = program(
        "from onecopy.frameworks.workers import preload\nprint(preload(['busy'], measure=True).threads_at_fork)\n",
        warnings="always",
    )
    assert said.startswith("2\n")
    assert "program.py:2: RuntimeWarning: importing busy started 1 threads in the fork server; forking" in said
    assert "set OPENBLAS_NUM_THREADS=1, MKL_NUM_THREADS=1, OMP_NUM_THREADS=1" in said


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a library starts no threads for one CPU")
@pytest.mark.slow
def test_the_variable_that_is_named_keeps_the_threads_away(program):
    code = "from onecopy.frameworks.workers import preload\nprint(preload(['numpy'], measure=True).server_threads)\n"
    openblas = any("openblas" in region.path for region in onecopy.memory.proc.maps(os.getpid()))
    if not openblas:
        pytest.skip("this numpy has no OpenBLAS")
    said = program(code, warnings="always", OPENBLAS_NUM_THREADS="2")
    assert said.startswith("2\n")
    assert "set OPENBLAS_NUM_THREADS=1 before" in said
    assert program(code, OPENBLAS_NUM_THREADS="1") == "1\n"


def test_a_module_that_the_server_cannot_import_is_reported(program, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/hidden.py").write_text("")
    said = program("""
        import sys
        import onecopy as oc
        from onecopy.frameworks.workers import preload

        sys.path.append("elsewhere")
        report = preload(["hidden"], measure=True)
        print(report.missing, report)
    """)
    if sys.version_info >= (3, 14):
        pytest.skip("this Python's fork server is given sys.path")
    assert said.startswith("('hidden',) a worker with hidden")
    assert said.endswith("; the server could not import hidden\n")
