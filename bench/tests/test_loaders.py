"""Every installed configuration loads what the file holds; ceilings and controls do what they are called."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.support.safetensors_files import bytes_of

import onecopy
from onecopy.memory import proc
from onecopy_bench import ceilings, configurations, runner, touch
from onecopy_bench.ceilings import CEILINGS, CONTROLS, SECTOR
from onecopy_bench.children import table_of
from onecopy_bench.configurations import Job
from onecopy_bench.layout import read_layout
from onecopy_bench.machine.quiet import Patience
from onecopy_bench.peers import ROWS, ours, twins
from onecopy_bench.record import Absent, Options
from onecopy_bench.runner import Plan
from onecopy_bench.scenarios import open as opening

HAS_CORE = importlib.util.find_spec("onecopy._core") is not None
NEEDS_CORE = pytest.mark.skipif(not HAS_CORE, reason="the compiled core is not built")
EVERY = (*ROWS, *CEILINGS, *CONTROLS)
LOADERS = [
    pytest.param(entry, id=entry.name, marks=[NEEDS_CORE] if "onecopy" in entry.modules else [])
    for entry in EVERY
    if entry.is_installed() or "onecopy" in entry.modules
]


def plan_for(path, **options) -> Plan:
    layout = read_layout(path)
    job = Job(str(path), layout.kind, layout.size, layout.pieces)
    settings = {"processes": (2,), "timeout": 60.0, "idle_wait": 0.0} | options
    return Plan((), job, touch.of_file(path, layout), Options(**settings))


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
    plan = plan_for(path)
    with twins.written([configuration], plan.job) as (jobs, absent):
        assert absent == ()
        sample = runner.take(replace(plan, twins=jobs), configuration, 0, Patience(0))
    assert (sample.state, sample.reason) == ("ok", "")
    keeps_data = configuration in ROWS[:-1] or "fresh" in configuration.name
    for reading in sample.readings:
        assert (reading.checksum is not None) == keeps_data
        assert 0 <= reading.open_ns <= reading.resident_ns


@pytest.mark.processes
def test_a_row_that_loads_other_bytes_is_found_out(model, tmp_path):
    plan = plan_for(model)
    changed = tmp_path / "changed.safetensors"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    memmap = next(entry for entry in ROWS if entry.name == "numpy.memmap")
    other = Plan((), Job(str(changed), *plan_fields(plan)), plan.checksum, plan.options)
    assert runner.take(plan, memmap, 0, Patience(0)).state == "ok"
    assert runner.take(other, memmap, 0, Patience(0)).state == "wrong data"


def plan_fields(plan: Plan):
    return plan.job.kind, plan.job.size, plan.job.pieces


@pytest.mark.parametrize("size", [1, SECTOR - 1, SECTOR, 9 * 2**20 + 3, 16 * 2**20])
@pytest.mark.parametrize("threads", [1, 3])
def test_o_direct_reads_the_whole_file_with_its_tail(tmp_path, size, threads):
    content = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    job = Job(str(path), "bytes", size, read_layout(path).pieces)
    opened = ceilings.open_direct_fresh(job, threads=threads)
    assert opened.arrays is not None
    ((_, data),) = opened.arrays()
    assert data.tobytes() == content
    assert ceilings.open_direct_reused(job, threads=threads).keep == size


@pytest.mark.parametrize("huge", [True, False])
def test_fresh_memory_is_private_anonymous_and_aligned_to_a_huge_page(huge):
    size = 8 * 2**20
    before = proc.rollup(os.getpid())
    memory, data = ceilings.fresh_memory(size, huge=huge)
    assert data.ctypes.data % ceilings.HUGE == 0
    assert data.size >= size
    data[:size:4096] = 1
    after = proc.rollup(os.getpid())
    assert after.anonymous - before.anonymous >= size
    if not huge:
        assert after.anon_huge_pages == before.anon_huge_pages
    assert memory.closed is False


def test_a_control_touches_as_much_as_the_file_has_and_not_more(model, monkeypatch):
    monkeypatch.setattr(ceilings, "CONTROL_BYTES", 1 << 20)
    layout = read_layout(model)
    opened = ceilings.open_first_touch(Job(str(model), layout.kind, layout.size, layout.pieces), huge=False)
    assert opened.warm is not None
    assert opened.warm() == {"bytes": 1 << 20}


def test_a_row_exists_where_its_modules_are_installed_and_the_kind_fits(model, monkeypatch):
    missing = configurations.Configuration.missing_packages
    monkeypatch.setattr(
        configurations.Configuration,
        "missing_packages",
        lambda entry: ["torch"] if "torch" in entry.modules else missing(entry),
    )
    chosen, absent = opening.applicable(read_layout(model), Options())
    safetensors = [entry.name for entry in chosen]
    assert "safetensors.numpy" in safetensors
    assert "safetensors.torch" not in safetensors
    assert Absent("safetensors.torch", "not installed: torch") in absent
    assert safetensors[0] == "copy"
    assert safetensors[-1] == "first-touch-huge"
    chosen, absent = opening.applicable(read_layout(__file__), Options(ceilings="none"))
    rows = ["copy", "map", "map+warm", "numpy.memmap", "numpy.fromfile", "empty"]
    assert [entry.name for entry in chosen] == [*rows, "first-touch-4k", "first-touch-huge"]
    assert absent == ()


def test_a_row_by_request_is_taken_when_it_is_asked_for(tmp_path):
    path = tmp_path / "m.safetensors"
    onecopy.save(path, {"a": np.ones(100_000)})
    layout = read_layout(path)
    assert "map+verify" not in [entry.name for entry in opening.applicable(layout, Options())[0]]
    (row,) = [c for c in opening.applicable(layout, Options(), ("map+verify",))[0] if c.by_request]
    opened = row.open(Job(str(path), layout.kind, layout.size, layout.pieces))
    assert opened.warm is not None
    assert opened.warm()["verified"] == 800_000


def test_a_module_of_a_missing_package_is_missing_too():
    missing = replace(ROWS[0], modules=("no_such_package", "no_such_package.module"))
    assert not missing.is_installed()
    assert not replace(ROWS[0], modules=("no_such_package.module",)).is_installed()


def test_notes_of_a_report_are_its_plain_facts():
    class Report:
        seconds = 0.5
        reason = "why"
        huge_share = None
        _hidden = 1

        def method(self):
            pass

    assert ours.report_notes(Report()) == {"seconds": 0.5, "reason": "why", "huge_share": None}


@pytest.mark.processes
def test_a_whole_run_has_every_sample_and_rows_that_agree(model):
    chosen = tuple(entry for entry in EVERY if entry.name in {"numpy.memmap", "o_direct-fresh-1", "first-touch-4k"})
    options = Options(processes=(2,), iterations=2, idle_wait=0.0, timeout=60.0, caches=("cold",))
    record = opening.run(model, options, configurations=chosen)
    assert [sample.state for sample in record.samples] == ["ok"] * 6
    assert {len(sample.readings) for sample in record.samples if sample.configuration == "numpy.memmap"} == {2}
    assert record.file.name == "model.safetensors"
    assert np.all([s.cached_before == 0 for s in record.samples if s.configuration == "numpy.memmap"])
    assert all(s.cached_after == record.file.size for s in record.samples if s.configuration == "numpy.memmap")


@NEEDS_CORE
@pytest.mark.processes
@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F16", "BOOL", "C64", "F4"])
@pytest.mark.parametrize("name", ["copy", "map", "map+warm"])
def test_every_element_type_is_touched_as_bytes(name, dtype, tmp_path):
    bits = {"BF16": 16, "F8_E4M3": 8, "F16": 16, "BOOL": 8, "C64": 64, "F4": 4}[dtype]
    data = bytes(at % 2 for at in range(96_000))
    shape = [3, len(data) * 8 // bits // 3]
    path = tmp_path / "typed.safetensors"
    path.write_bytes(bytes_of({"t": (dtype, shape, data)}))
    row = next(entry for entry in ROWS if entry.name == name)
    sample = runner.take(plan_for(path, processes=(1,)), row, 0, Patience(0))
    assert (sample.state, sample.reason) == ("ok", "")
    assert sample.readings[0].checksum is not None


ON_THE_CLOCK = """
import json, sys
from onecopy_bench import child
name, path, table = sys.argv[1:]
configuration, job = child.prepare(name, path, json.loads(table))
before = set(sys.modules)
child.load(configuration, job)
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.processes
@pytest.mark.parametrize("configuration", [entry for entry in LOADERS if entry.values[0] in ROWS])
@pytest.mark.slow
def test_no_module_is_imported_on_the_clock(configuration, model):
    if configuration.by_request:
        with_checksums(model)
    job = plan_for(model).job
    with twins.written([configuration], job) as (jobs, _):
        own = jobs.get(configuration.name, job)
        command = [sys.executable, "-c", ON_THE_CLOCK, configuration.name, own.path, table_of(own).decode()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
