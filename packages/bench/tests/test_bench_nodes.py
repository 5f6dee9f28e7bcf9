"""`bench nodes`: nodes that are network namespaces, a model behind a URL, and what is made of the numbers."""

import re
import shutil
from pathlib import Path

import pytest
from packages.bench.tests.support import read_back
from tests.support.places import ROOT

from onecopy_bench.engine.record import read
from onecopy_bench.scenarios.nodes import scale
from onecopy_bench.scenarios.nodes import scenario as nodes
from onecopy_bench.scenarios.nodes.scenario import SCENARIO

SMALL = nodes.Options(
    rounds=1, idle_wait=0.0, timeout=120.0, size=8_000_000, processes=2, nodes=(2,), links=(1.0,), ways=("onecopy",)
)
RECORDS = sorted((ROOT / "packages/bench/results").glob("*/*-nodes.jsonl"))


@pytest.mark.processes
@pytest.mark.slow
def test_every_node_fetches_once_and_holds_one_copy(tmp_path):
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    run = nodes.run(tmp_path, SMALL)
    if run.absent and "refused" in run.absent[0].reason:
        pytest.skip(run.absent[0].reason)
    (sample,) = run.samples
    assert (sample.state, sample.reason) == ("ok", "")
    assert sample.numbers["origin_share"] == pytest.approx(2, abs=0.001)
    assert sample.numbers["ready_ns"] >= sample.numbers["first_ns"] > 0
    assert read_back(run) == run
    assert "times size / link: onecopy" in "\n".join(SCENARIO.sentences(run))
    assert not list(tmp_path.glob("node-*/onecopy")), "the stores are mounted still"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_the_calculation_agrees_with_what_was_measured(path):
    """The bytes, and the times where links are the limit and not the two CPUs of that machine."""
    record = read(path)[0]
    ways = {"onecopy": scale.EACH_NODE, "onecopy, peers": scale.PEERS}
    compared = 0
    for case in record.cases():
        count, link = int(case[0].split()[0]), float(case[1].split()[0]) * 1e9
        job = scale.Job(count, record.options["processes"], record.data["bytes"], link, origin=1e12)
        for row, way in ways.items():
            spread = record.spread(row, case, "ready_ns")
            if spread is None:
                continue
            compared += 1
            if count * link <= 2e9:
                assert spread.median / 1e9 == pytest.approx(scale.seconds(way, job), rel=0.1)
            sent = record.spread(row, case, "origin_bytes")
            assert sent.median == pytest.approx(scale.origin_bytes(way, job), rel=0.01)
    assert compared > 0


def test_the_page_has_the_numbers_of_the_calculation():
    page = Path(ROOT, "docs/explanation/scale.md").read_text()
    rows = re.findall(r"^\| [\d,]+ \| (?:each process|onecopy).*$", page, re.MULTILINE)
    assert rows == scale.lines()
