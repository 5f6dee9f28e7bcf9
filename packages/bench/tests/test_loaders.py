"""Every installed configuration loads what the file holds; ceilings and controls do what they are called."""

import importlib.util
import os
import pickle
import subprocess
import sys

import pytest

import onecopy
from onecopy_bench.engine import rounds, ways
from onecopy_bench.engine.raw import SECTOR
from onecopy_bench.engine.record import Absent
from onecopy_bench.engine.rounds import Settings
from onecopy_bench.engine.ways import missing
from onecopy_bench.files import mechanisms, sampling, touch
from onecopy_bench.files.layout import read_layout
from onecopy_bench.files.loaders import Job
from onecopy_bench.files.mechanisms import CEILINGS, CONTROLS
from onecopy_bench.files.rivals import ROWS
from onecopy_bench.files.sampling import turn
from onecopy_bench.scenarios import open as opening
from onecopy_bench.scenarios.open import Options

HAS_CORE = importlib.util.find_spec("onecopy._core") is not None
NEEDS_CORE = pytest.mark.skipif(not HAS_CORE, reason="the compiled core is not built")
EVERY = (*ROWS, *CEILINGS.values(), *CONTROLS)
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
    return rounds.take(turn(entry, job, checksum, QUICK, state="warm", processes=processes), 0, QUICK)


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
    with sampling.twins([configuration], job) as (jobs, absent):
        assert absent == ()
        sample = take(configuration, jobs.get(configuration.name, job), touch.of_file(path, read_layout(path)))
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
    opened = mechanisms.open_direct_fresh(job, threads=threads)
    assert opened.arrays is not None
    ((_, data),) = opened.arrays()
    assert data.tobytes() == content
    assert mechanisms.open_direct_reused(job, threads=threads).arrays is None


def test_a_row_exists_where_its_modules_are_installed_and_the_kind_fits(model, monkeypatch):
    monkeypatch.setattr(ways, "missing", lambda modules: ["torch"] if "torch" in modules else missing(modules))
    chosen, absent = opening.applicable(read_layout(model), Options())
    safetensors = [entry.name for entry in chosen]
    assert "safetensors.numpy" in safetensors
    assert "safetensors.torch" not in safetensors
    assert Absent("safetensors.torch", "not installed: torch") in absent
    assert safetensors[0] == "copy"
    assert safetensors[-1] == "first-touch-huge"
    chosen, absent = opening.applicable(read_layout(__file__), Options(ceilings=False))
    rows = ["copy", "map", "map+warm", "numpy.memmap", "numpy.fromfile", "empty"]
    assert [entry.name for entry in chosen] == [*rows, "first-touch-4k", "first-touch-huge"]
    assert not absent


ON_THE_CLOCK = """
import pickle, sys
from onecopy_bench.files import loading
loader, job = pickle.load(sys.stdin.buffer)
loading.prepare(loader)
before = set(sys.modules)
loading.load(loader, job, 1, 60)
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.processes
@pytest.mark.parametrize("configuration", [entry for entry in LOADERS if entry.values[0] in ROWS])
@pytest.mark.slow
def test_no_module_is_imported_on_the_clock(configuration, model):
    if configuration.by_request:
        with_checksums(model)
    job = job_of(model)
    with sampling.twins([configuration], job) as (jobs, _):
        errand = pickle.dumps((configuration, jobs.get(configuration.name, job)))
        done = subprocess.run([sys.executable, "-c", ON_THE_CLOCK], input=errand, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"[]\n"), done.stderr
