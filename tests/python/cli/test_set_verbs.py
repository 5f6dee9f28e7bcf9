"""`onecopy ls`, `warm`, `evict` and `verify` of several files as one."""

import json
import shutil
from pathlib import Path

import pytest
from tests.support.places import GOLDEN
from tests.support.shards import ARRAYS, shard_of, write_set

MODELS = GOLDEN / "onnx"


@pytest.fixture
def index(tmp_path):
    return write_set(tmp_path)


@pytest.fixture
def model(tmp_path):
    for name in ("external.onnx", "external.bin"):
        shutil.copy(MODELS / name, tmp_path)
    return tmp_path / "external.onnx"


def test_ls_warm_evict_and_verify_take_a_set_and_ls_reports_what_it_is(index, cached, onecopy_command):
    facts = json.loads(onecopy_command("ls", "--json", index).stdout)
    assert facts["container"] == "safetensors set"
    assert [array["name"] for array in facts["arrays"]] == list(ARRAYS)
    assert {Path(array["file"]).name for array in facts["arrays"]} == {shard_of(at) for at in range(3)}
    assert onecopy_command("evict", index).returncode == 0
    assert cached(index.parent / shard_of(2)) == 0
    report = json.loads(onecopy_command("warm", "--json", index).stdout)
    assert report["complete"]
    assert report["bytes"] == sum((index.parent / shard_of(at)).stat().st_size for at in range(3))
    assert cached(index.parent / shard_of(2)) > 0
    done = onecopy_command("verify", index)
    assert (done.returncode, done.stderr) == (0, "")
    assert "every byte" in done.stdout
    assert onecopy_command("ls", index).stdout.splitlines()[0] == f"{index}: safetensors set, 3 files"
    assert onecopy_command("ls", MODELS / "small.onnx").stdout.splitlines()[0] == f"{MODELS / 'small.onnx'}: onnx"


def test_warm_of_an_onnx_model_warms_its_data_too(model, cached, onecopy_command):
    data = model.parent / "external.bin"
    onecopy_command("evict", model)
    assert cached(data) == 0
    assert onecopy_command("warm", model).returncode == 0
    assert cached(data) > 0


def test_a_missing_shard_is_one_line(index, onecopy_command):
    (index.parent / shard_of(1)).unlink()
    for verb in ("ls", "warm", "verify"):
        done = onecopy_command(verb, index)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("onecopy: ")
        text = done.stderr.replace("\n", "")  # `verify` folds it
        assert shard_of(1) in text
        assert str(index) in text
