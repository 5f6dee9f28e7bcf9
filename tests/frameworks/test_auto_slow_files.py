"""Weights that torch maps from a slow file system are read ahead under `onecopy run`, each byte once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.children import call_in_child
from tests.support.fuse_disk import fuse_disk
from tests.support.fuse_models import skip_without_fuse
from tests.support.waiting import until

import onecopy as oc

MIB = 1 << 20
TAIL = """
weights = load(place)
weights = weights if isinstance(weights, dict) else weights.state_dict()
print("loaded", flush=True)
input()
print(sum(float(tensor.double().sum()) for tensor in weights.values()), [*weights], tensor_of(weights))
"""
PROGRAMS = {
    "safetensors.torch.load_file": "from safetensors.torch import load_file as load\nplace += '/model.safetensors'",
    "transformers.from_pretrained": "from transformers import AutoModel\nload = AutoModel.from_pretrained",
}
HEAD = """
import sys
import torch
def tensor_of(weights):
    one = weights[max(weights, key=lambda name: weights[name].numel())]
    one.detach()[0] += 1  # as in the plain program: writable
    return one.shape, one.dtype, one.requires_grad, one.is_contiguous(), one.storage_offset(), float(one.sum())
place = sys.argv[1]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small model of transformers, of 30 MB."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("model")
    size = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    BertModel(BertConfig(vocab_size=25_000, **size)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("function", PROGRAMS)
def test_mapped_weights_are_read_ahead_on_a_slow_file_system(model, tmp_path, function):
    skip_without_fuse(tmp_path / "probe")
    program = [sys.executable, "-c", HEAD + PROGRAMS[function] + TAIL, tmp_path / "fuse"]
    report = tmp_path / "report.json"
    under_run = [sys.executable, "-m", "onecopy", "run", "-q", "--report", report, "--", *program]
    size = (model / "model.safetensors").stat().st_size

    def child() -> object:
        with fuse_disk(tmp_path / "fuse", model) as faults:
            plain = subprocess.run(program, input="\n", capture_output=True, text=True, check=True).stdout
            oc.evict(tmp_path / "fuse/model.safetensors")
            faults.bytes = 0
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with subprocess.Popen(under_run, **pipes, text=True) as process:
                assert process.stdout.readline() == "loaded\n"
                until(lambda: faults.bytes >= size, "the whole file, of which nothing is touched")
                rest = process.communicate("\n")[0]
            return plain, "loaded\n" + rest, faults.bytes, process.returncode

    plain, shared, sent, code = call_in_child(child)
    assert (shared, code) == (plain, 0)
    assert sent <= 1.05 * size + MIB
    [line] = [one for one in json.loads(report.read_text())["shared"] if one["path"].endswith("model.safetensors")]
    assert (line["function"], line["bytes"], line["saved"]) == (function, size, 0)
