"""The pytest plugin, as another project meets it: in pytest runs of their own."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def project(tmp_path):
    """Run pytest, with no plugin but ours, on a file of tests in an empty folder; return what it printed."""

    def run(tests: str, *options: str, plugins: tuple[str, ...] = ("-p", "onecopy_monitor.testing")) -> str:
        (tmp_path / "pytest.ini").write_text("[pytest]\n")  # else one that lies further up is found
        (tmp_path / "test_it.py").write_text(textwrap.dedent(tests))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, *options, "test_it.py"]
        environment = {**os.environ, **({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if plugins else {})}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    return run


def test_a_block_within_its_budget_passes_and_one_above_it_fails_with_facts(project):
    told = project(
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
    assert "1 failed, 1 passed" in told
    assert "Failed: anonymous memory grew by 9" in told
    assert "but the limit is 21.0 MB" in told
    assert "watching.py" not in told


def test_a_marked_test_keeps_its_budget_or_fails(project):
    told = project(
        """
        import time
        import pytest
        pytestmark = pytest.mark.memory_budget(anonymous="20 MiB")

        def test_small(): pass

        def test_big():
            block = bytearray(90_000_000)
            time.sleep(0.3)  # a sample after all of it was written

        @pytest.mark.memory_budget(anonymous="200 MiB")
        def test_allowed(): block = bytearray(90_000_000)
        """,
        "--strict-markers",
        "-W",
        "error",
    )
    assert "1 failed, 2 passed" in told
    assert "Failed: anonymous memory grew by 9" in told


def test_what_a_test_raises_itself_is_reported(project):
    told = project(
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
    assert "2 failed, 1 skipped" in told
    assert told.count("KeyError: 'mine'") >= 2
    assert "anonymous memory grew" not in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "TypeError: memory_budget needs a limit, one of anonymous"),
        ("rss='1 GB'", "TypeError: memory_budget has no limit or option named rss"),
        ("anonymous='much'", "ValueError: anonymous: 'much' is not a size"),
        ("'1 GB'", "TypeError: memory_budget takes keyword arguments only"),
    ],
)
def test_a_budget_that_is_none_fails_the_test(project, arguments, message):
    told = project(f"import pytest\n@pytest.mark.memory_budget({arguments})\ndef test_it(): pass\n")
    assert "1 failed" in told
    assert message in told


def test_who_does_not_use_it_does_not_load_it(project):
    told = project(
        """
        import sys

        def test_it():
            ours = {name for name in sys.modules if name.split(".")[0] in ("onecopy", "onecopy_monitor")}
            assert ours == {"onecopy", "onecopy_monitor", "onecopy_monitor.testing"}
            assert "numpy" not in sys.modules
        """
    )
    assert "1 passed" in told


def test_the_marker_is_explained(project):
    assert "@pytest.mark.memory_budget(anonymous=..., " in project("", "--markers")


@pytest.mark.slow
def test_the_plugin_is_loaded_only_where_it_is_requested(project):
    report = project("def test_it(memory_budget): pass", plugins=())
    assert "fixture 'memory_budget' not found" in report


def test_children_count(project):
    told = project(
        """
        import subprocess, sys, pytest

        @pytest.mark.memory_budget(anonymous="60 MB")
        def test_it():
            subprocess.run([sys.executable, "-c", "import time; b = bytearray(90_000_000); time.sleep(0.5)"])
        """
    )
    assert "1 failed" in told
