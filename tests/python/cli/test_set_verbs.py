"""`onecopy ls`, `warm`, `evict` and `verify` of several files as one."""

import json
import shutil

import pytest
from tests.support.places import GOLDEN
from tests.support.shards import ARRAYS, shard_of, write_set

MODELS = GOLDEN / "onnx"


@pytest.fixture
def index(tmp_path):
    return write_set(tmp_path)


def test_ls_warm_evict_and_verify_take_a_set_and_ls_reports_what_it_is(index, cached, onecopy_command):
    shards = [index.parent / shard_of(at) for at in range(3)]
    facts = json.loads(onecopy_command("ls", "--json", index).stdout)
    assert facts["container"] == "safetensors set"
    assert [array["name"] for array in facts["arrays"]] == list(ARRAYS)
    assert {array["file"] for array in facts["arrays"]} == set(map(str, shards))
    assert onecopy_command("evict", index).returncode == 0
    assert cached(shards[2]) == 0
    report = json.loads(onecopy_command("warm", "--json", index).stdout)
    assert (report["complete"], report["bytes"]) == (True, sum(shard.stat().st_size for shard in shards))
    assert cached(shards[2]) > 0
    done = onecopy_command("verify", index)
    assert (done.returncode, done.stderr) == (0, "")
    assert "every byte" in done.stdout
    for path, container in ((index, "safetensors set, 3 files"), (MODELS / "small.onnx", "onnx")):
        assert onecopy_command("ls", path).stdout.splitlines()[0] == f"{path}: {container}"


def test_warm_of_an_onnx_model_warms_its_data_too(tmp_path, cached, onecopy_command):
    for name in ("external.onnx", "external.bin"):
        shutil.copy(MODELS / name, tmp_path)
    for verb, is_cached in (("evict", False), ("warm", True)):
        assert onecopy_command(verb, tmp_path / "external.onnx").returncode == 0
        assert (cached(tmp_path / "external.bin") > 0) == is_cached


@pytest.mark.parametrize("verb", ["ls", "warm", "verify"])
def test_a_missing_shard_is_one_line(index, onecopy_command, verb):
    (index.parent / shard_of(1)).unlink()
    done = onecopy_command(verb, index)
    assert (done.returncode, done.stdout) == (1, "")
    text = done.stderr.replace("\n", "")  # `verify` folds it
    assert text.startswith("onecopy: ")
    assert shard_of(1) in text
    assert str(index) in text
