"""The pytest plugin, as another project meets it: in pytest runs of their own."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap

import pytest

import onecopy as oc

XDIST = ("-p", "onecopy_monitor.testing", "-p", "xdist", "-n", "8")


@pytest.fixture
def project(tmp_path):
    """Run pytest, with no plugin but ours, on a file of tests in an empty folder; return what it printed."""

    def run(tests: str, *options: str, plugins: tuple[str, ...] = XDIST[:2]) -> str:
        (tmp_path / "pytest.ini").write_text("[pytest]\n")  # else one that lies further up is found
        (tmp_path / "test_it.py").write_text(textwrap.dedent(tests))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, *options, "test_it.py"]
        environment = {**os.environ, **({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if plugins else {})}
        environment |= {"ONECOPY_CACHE": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    return run


def test_a_block_within_its_budget_passes_and_one_above_it_fails_with_facts(project):
    output = project(
        """
        def test_small(memory_budget):
            with memory_budget(anonymous="200 MiB") as watched:
                bytearray(10)
            assert watched.peak.real.bytes > 0

        def test_big(memory_budget):
            with memory_budget(anonymous="20 MiB"):
                block = bytearray(90_000_000)
        """
    )
    assert "1 failed, 1 passed" in output
    assert "Failed: anonymous memory grew by 9" in output
    assert "but the limit is 21.0 MB" in output
    assert "watching.py" not in output


def test_a_marked_test_and_its_children_keep_its_budget_or_fail(project):
    output = project(
        """
        import subprocess, sys, time
        import pytest
        pytestmark = pytest.mark.memory_budget(anonymous="20 MiB")

        def test_small(): pass

        def test_big():
            block = bytearray(90_000_000)
            time.sleep(0.3)  # a sample after all of it was written

        @pytest.mark.memory_budget(anonymous="200 MiB")
        def test_allowed(): block = bytearray(90_000_000)

        @pytest.mark.memory_budget(anonymous="60 MB")
        def test_child():
            subprocess.run([sys.executable, "-c", "import time; b = bytearray(90_000_000); time.sleep(0.5)"])
        """,
        "--strict-markers",
        "-W",
        "error",
    )
    assert "2 failed, 2 passed" in output
    assert output.count("FAILED") == output.count(" - Failed: anonymous memory grew by 9") == 2


def test_what_a_test_raises_itself_is_reported(project):
    output = project(
        """
        import pytest

        @pytest.mark.memory_budget(anonymous=1)
        def test_broken():
            block = bytearray(90_000_000)
            raise KeyError("mine")

        def test_broken_block(memory_budget):
            with memory_budget(anonymous=1):
                raise KeyError("mine")

        @pytest.mark.memory_budget(anonymous=1)
        def test_skipped():
            pytest.skip("not here")
        """
    )
    assert "2 failed, 1 skipped" in output
    assert output.count("KeyError: 'mine'") >= 2
    assert "anonymous memory grew" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "TypeError: memory_budget requires at least one of the limits"),
        ("rss='1 GB'", "TypeError: memory_budget has no limit or option named rss"),
        ("anonymous='much'", "ValueError: anonymous: 'much' is not a size"),
        ("'1 GB'", "TypeError: memory_budget accepts keyword arguments only"),
    ],
)
def test_a_budget_that_is_none_fails_the_test(project, arguments, message):
    output = project(f"import pytest\n@pytest.mark.memory_budget({arguments})\ndef test_it(): pass\n")
    assert "1 failed" in output
    assert message in output


def test_who_does_not_use_it_does_not_load_it(project):
    output = project(
        """
        import sys

        def test_it():
            ours = {name for name in sys.modules if name.split(".")[0] in ("onecopy", "onecopy_monitor")}
            loader = {"onecopy.base", "onecopy.base.lazy"}
            assert ours == {"onecopy", "onecopy_monitor", "onecopy_monitor.testing"} | loader
            assert "numpy" not in sys.modules
        """
    )
    assert "1 passed" in output


def test_pytest_finds_the_plugin_once_however_it_is_requested_and_explains_its_marker(project):
    assert "@pytest.mark.memory_budget(anonymous=..., " in project("", "--markers")
    tests = "def test_it(memory_budget, onecopy_cached): pass"
    assert "1 passed" in project(tests, plugins=())
    assert "1 passed" in project(tests, plugins=("-p", "onecopy_monitor.testing"))
    assert "fixture 'memory_budget' not found" in project(tests, plugins=("-p", "no:onecopy_monitor.testing"))
    point = importlib.metadata.entry_points(group="pytest11")["onecopy_monitor.testing"]
    assert point.value == point.name  # so that pytest_plugins = [...] does not load it twice


# --- objects that are built once --------------------------------------------------------------------------------------

CACHED = """
import os, pathlib, time
import numpy as np, pytest
from onecopy.memory import proc

MIB = 64

def note(name):
    (pathlib.Path(__file__).parent / f"{name} {os.getpid()} {time.monotonic_ns()}").touch()

def names(name):
    return [path.name for path in pathlib.Path(__file__).parent.glob(f"{name} *")]

def wait_for(name, count=8):
    note(name)
    while len(names(name)) < count:
        time.sleep(0.01)
"""
EIGHT_USES = """
@pytest.mark.parametrize("number", range(8))
def test_it(onecopy_cached, number):
    wait_for("began")
    assert onecopy_cached("index", build)[4] == 4
"""
ONE_COPY = (
    CACHED
    + """
def build():
    note("built")
    return {"table": np.ones(MIB << 17), "names": ["a"]}

def pss():
    return proc.rollup(os.getpid()).pss

@pytest.mark.parametrize("number", range(8))
def test_it(onecopy_cached, number):
    onecopy_cached("small", lambda: np.arange(5))
    before = pss()
    found = onecopy_cached("big", build)
    assert found["table"].sum() == MIB << 17
    wait_for("opened")
    (pathlib.Path(__file__).parent / f"memory {pss() - before} {os.getpid()}").touch()
    wait_for("measured")
    with pytest.raises(ValueError):
        found["table"][0] = 1
    onecopy_cached("big", build, private=True)["table"][0] = 1
"""
)


def noted(folder, name: str) -> list[str]:
    return [path.name.split()[1] for path in folder.glob(f"{name} *")]


@pytest.mark.slow
@pytest.mark.processes
def test_eight_workers_build_once_and_hold_one_copy_and_later_runs_find_it(project, tmp_path):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    assert "8 passed" in project(ONE_COPY, plugins=XDIST)
    assert len(noted(tmp_path, "built")) == 1
    assert len(set(noted(tmp_path, "opened"))) == 8  # processes
    assert 60 << 20 < sum(map(int, noted(tmp_path, "memory"))) <= 1.1 * (64 << 20)
    for path in tmp_path.glob("* *"):
        path.unlink()
    assert "8 passed" in project(ONE_COPY, plugins=XDIST)
    assert noted(tmp_path, "built") == []


def test_what_was_built_is_gone_by_onecopy_clear_and_nothing_else(project, tmp_path):
    tests = CACHED + "def test_it(onecopy_cached): onecopy_cached('small', lambda: note('built'))"
    oc.share_object(lambda: [1], "another", store=tmp_path / "store")
    for count, *options in [(1,), (1,), (1, "--onecopy-clear", "--collect-only"), (2,), (3, "--onecopy-clear")]:
        project(tests, *options)
        assert len(noted(tmp_path, "built")) == count
    kept = sorted(one.key.partition(",")[0] for one in oc.Store(tmp_path / "store").ls())
    assert kept == ["another", f"pytest of {tmp_path}: small"]


@pytest.mark.slow
@pytest.mark.processes
def test_every_worker_gets_the_error_of_a_build_and_the_next_run_builds_again(project, tmp_path):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    tests = """
def build():
    note("tried")
    if not names("repaired"):
        time.sleep(0.5)  # the others wait
        raise KeyError("no such gene")
    return np.arange(5)
"""
    output = project(CACHED + tests + EIGHT_USES, plugins=XDIST)
    assert "8 failed" in output
    assert output.count("KeyError: 'no such gene'") >= 8
    assert output.count("RuntimeError: cannot build the object: the function failed in this run") >= 7
    assert len(noted(tmp_path, "tried")) == 1
    assert len(set(noted(tmp_path, "began"))) == 8
    (tmp_path / "repaired now").touch()
    assert "8 passed" in project(CACHED + tests + EIGHT_USES, plugins=XDIST)
    assert len(noted(tmp_path, "tried")) == 2


def test_a_changed_function_builds_again_and_one_without_identity_is_an_error(project, tmp_path):
    tests = CACHED + "def test_it(onecopy_cached): assert onecopy_cached('x', lambda: note('built') or VALUE) == VALUE"
    for value in (1, 2, 2):
        assert "1 passed" in project(tests.replace("VALUE", str(value)))
    assert len(noted(tmp_path, "built")) == 2
    output = project("import threading\ndef test_it(onecopy_cached):\n    onecopy_cached('x', threading.Lock().locked)")
    assert "TypeError: a key needs values with a stable identity" in output
