"""The project in examples/io_manager, run by Dagster."""

import os
import subprocess
import sys

import pytest
from tests.support.places import ROOT


@pytest.mark.slow
def test_the_steps_of_a_pipeline_hold_one_copy(tmp_path):
    pytest.importorskip("dagster", reason="dagster is not installed")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/io_manager/pipeline.py")],
        env={**os.environ, "PIPELINE_FOLDER": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "4 steps hold 64 MB of a table of 64 MB\n", done.stderr[-3000:]
