"""Every installed configuration loads what the file holds; ceilings and controls do what they are called."""

import contextlib
import importlib.util
import os
import pickle
import subprocess
import sys

import pytest

import onecopy
from onecopy_bench import runs
from onecopy_bench.files import loaders, opening, trials
from onecopy_bench.files.layout import checksum_of_file, read_layout
from onecopy_bench.files.loaders import CEILINGS, CONTROLS, ROWS, SECTOR, Job
from onecopy_bench.files.trials import trial_of
from onecopy_bench.peers import missing
from onecopy_bench.runs import Settings

HAS_CORE = importlib.util.find_spec("onecopy._core") is not None
NEEDS_CORE = pytest.mark.skipif(not HAS_CORE, reason="the compiled core is not built")
EVERY = (*ROWS, *CEILINGS, *CONTROLS)
LOADERS = [
    pytest.param(entry, id=entry.name, marks=[NEEDS_CORE] if "onecopy" in entry.needs else [])
    for entry in EVERY
    if not missing(entry.needs) or "onecopy" in entry.needs
]


QUICK = Settings(timeout=60.0, idle_wait=0.0)


def job_of(path) -> Job:
    layout = read_layout(path)
    return Job(str(path), layout.kind, layout.size, layout.pieces)


def take(entry, job, checksum, processes=2):
    return runs.take_sample(trial_of(entry, job, checksum, QUICK, state="warm", processes=processes), 0, QUICK)


def own_file(configuration, job):
    """Give the job of the file that a loader reads, for a block."""
    return trials.pt_file(job) if configuration.reads_pt else contextlib.nullcontext(job)


def with_checksums(path):
    """Save the arrays of a file again, as the rows by request want them."""
    onecopy.save(path, onecopy.open(path))


@pytest.mark.processes
@pytest.mark.parametrize("configuration", LOADERS)
@pytest.mark.parametrize("kind", ["safetensors", "bytes"])
@pytest.mark.slow
def test_each_configuration_touches_the_bytes_of_the_file(configuration, kind, model, tmp_path):
    path = model
    if kind == "bytes":
        path = tmp_path / "plain"
        path.write_bytes(os.urandom(2_000_003))
    if kind not in configuration.kinds:
        pytest.skip("does not understand the file")
    if configuration.by_request:
        with_checksums(path)
    job = job_of(path)
    with own_file(configuration, job) as own:
        sample = take(configuration, own, checksum_of_file(path, read_layout(path)))
    assert (sample.state, sample.reason) == ("ok", "")
    keeps_data = configuration in ROWS[:-1] or "fresh" in configuration.name
    for each in sample.processes:
        assert ("checksum" in each) == keeps_data
        assert 0 <= each["open_ns"] <= each["resident_ns"]


@pytest.mark.parametrize("size", [1, SECTOR - 1, SECTOR, 9 * 2**20 + 3, 16 * 2**20])
@pytest.mark.parametrize("threads", [1, 3])
def test_o_direct_reads_the_whole_file_with_its_tail(tmp_path, size, threads):
    content = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    job = Job(str(path), "bytes", size, read_layout(path).pieces)
    opened = loaders.open_direct_fresh(job, threads=threads)
    assert opened.arrays is not None
    ((_, data),) = opened.arrays()
    assert data.tobytes() == content
    assert loaders.open_direct_reused(job, threads=threads).arrays is None


ON_THE_CLOCK = """
import pickle, sys
from onecopy_bench.files import trials
loader, job = pickle.load(sys.stdin.buffer)
trials.prepare(loader)
before = set(sys.modules)
trials.load(loader, job)
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.processes
@pytest.mark.parametrize("configuration", [entry for entry in LOADERS if entry.values[0] in ROWS])
@pytest.mark.slow
def test_no_module_is_imported_on_the_clock(configuration, model):
    if configuration.by_request:
        with_checksums(model)
    job = job_of(model)
    with own_file(configuration, job) as own:
        arguments = pickle.dumps((configuration, own))
        done = subprocess.run([sys.executable, "-c", ON_THE_CLOCK], input=arguments, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"[]\n"), done.stderr


@pytest.mark.processes
def test_loaders_whose_pt_file_cannot_be_written_are_missing_rows_with_the_reason(model, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(trials, "write_pt", os.mkdir)
    options = opening.Options(file=str(model), only=("map", "torch.load"), ceilings=False, rounds=1, idle_wait=0.0)
    record = opening.SCENARIO.run(tmp_path, options)
    assert [absent.name for absent in record.absent] == ["torch.load"]
    assert "its file could not be written: failed: exit status 1" in record.absent[0].reason
    assert "TypeError: " in record.absent[0].reason
    assert not list(model.parent.glob(trials.PREFIX + "*"))
