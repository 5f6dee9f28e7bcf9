"""`onecopy bench share` and `bench records` as commands."""

import signal
import subprocess
import sys

import pytest
from packages.bench.tests.support import has_sample
from tests.support.waiting import until

from onecopy_bench.engine.record import read

pytestmark = pytest.mark.processes

SHARE = (
    "bench", "share", "--rows", "200", "--peer", "list", "--peer", "LMDB", "--start", "fork", "--ranks", "1",
    "--workers", "1", "--no-torch", "--rounds", "1", "--idle-wait", "0", "--allocator", "glibc",
)  # fmt: skip
RECORDS = (
    "bench", "records", "--case", "key", "--case", "pair", "--keys", "300", "--pairs", "300", "--draws", "100",
    "--repeats", "2", "--rounds", "1", "--idle-wait", "0",
)  # fmt: skip


@pytest.mark.parametrize("command", [SHARE, RECORDS], ids=["share", "records"])
@pytest.mark.slow
def test_tables_are_printed_and_a_record_a_page_and_a_picture_written(onecopy_process, tmp_path, command):
    out = tmp_path / "r.jsonl"
    done = onecopy_process(
        *command, "--json", out, "--markdown", tmp_path / "r.md", "--plot", tmp_path / "r.svg", cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "list" in done.stdout
    assert "1 round: a published number needs" in done.stdout
    (record,) = read(out)
    assert {sample.state for sample in record.samples} == {"ok"}
    assert record.seconds is not None
    assert str(tmp_path) not in out.read_text()
    page = (tmp_path / "r.md").read_text()
    assert "![What it costs](r.svg)" in page
    assert "| list |" in page
    assert "<svg" in (tmp_path / "r.svg").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"r.jsonl", "r.md", "r.svg"}  # the data are gone


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on(onecopy_process, tmp_path):
    out = tmp_path / "r.jsonl"
    command = [sys.executable, "-m", "onecopy", *RECORDS, "--json", str(out)]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as running:
        until(lambda: running.poll() is not None or has_sample(out), "the first sample")
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "continue with --resume" in said
    taken = out.read_text().splitlines()[1:]
    assert len(taken) >= 1
    done = onecopy_process(*RECORDS, "--json", out, "--resume", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_text().splitlines()[1 : len(taken) + 1] == taken
    assert read(out)[0].seconds is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--peer", "none"), "'none' is not one of"),
        (("--resume",), "--resume needs --json OUT"),
        (("--json", "nowhere/r.jsonl"), "no folder for 'nowhere/r.jsonl'"),
        (("--ranks", "0"), "not in the range"),
    ],
)
def test_a_wrong_command_line_is_told(onecopy_process, tmp_path, arguments, message):
    done = onecopy_process(*SHARE, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_dataloader_without_torch_is_one_line(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from onecopy.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *SHARE, "--loader", "dataloader"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.endswith("bench share needs torch: pip install torch\n")
    assert done.stderr.count("\n") == 1
