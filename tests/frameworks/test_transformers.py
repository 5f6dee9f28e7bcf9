"""Models of Hugging Face's transformers: mapped as they are, and mapped in another dtype."""

import os
from pathlib import Path

import pytest

import onecopy as oc

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture
def folder(tmp_path) -> Path:
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=4000
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "model", max_shard_size="2MB")
    return tmp_path / "model"


def weights_of(model) -> list:
    return [one for one in oc.explain(model).findings if one.bytes > 10_000]


def test_weights_stay_mapped_as_they_are_in_the_file(folder, tmp_path):
    model = oc.transformers.from_pretrained(transformers.AutoModelForCausalLM, folder, store=tmp_path / "store")
    assert {one.kind for one in weights_of(model)} == {"shared"}
    assert not (tmp_path / "store").exists()
    assert model.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, "float16"])
def test_weights_are_cast_once_and_stay_mapped(folder, tmp_path, dtype):
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    alone = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=wanted)
    assert "heap" in {one.kind for one in weights_of(alone)}
    for _ in range(2):
        model = oc.transformers.from_pretrained(
            transformers.AutoModelForCausalLM, folder, dtype=dtype, store=tmp_path / "store"
        )
        assert {one.kind for one in weights_of(model)} == {"shared"}
        assert model.dtype == wanted
        for (name, ours), theirs in zip(model.state_dict().items(), alone.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs), name
    assert len(oc.Store(tmp_path / "store").ls()) == len(list(folder.glob("*.safetensors")))
    assert model.config._name_or_path == str(folder)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_files_are_brought_into_memory_meanwhile(folder, tmp_path, dtype):
    jobs = []
    for file in folder.glob("*.safetensors"):
        oc.evict(file)
    oc.transformers.from_pretrained(
        transformers.AutoModelForCausalLM, folder, dtype=dtype, store=tmp_path / "store", warming=jobs.append
    )
    (job,) = jobs
    report = job.wait()
    there = (
        [artefact.path for artefact in oc.Store(tmp_path / "store").ls()]
        if dtype == "float32"
        else folder.glob("*.safetensors")
    )
    sizes = [file.stat().st_size for file in there]
    assert len(sizes) > 1
    assert report.complete
    assert sum(sizes) <= report.bytes < sum(sizes) + len(sizes) * 4096
    assert report.cached_after == report.bytes


def test_a_budget_of_warming_is_for_all_files(folder, tmp_path):
    jobs = []
    for file in folder.glob("*.safetensors"):
        oc.evict(file)
    oc.transformers.from_pretrained(transformers.AutoModelForCausalLM, folder, warming=jobs.append, budget=1 << 20)
    report = jobs[0].wait()
    assert not report.complete
    assert 0 < report.filled <= 1 << 20


def test_files_beside_the_model_are_not_touched(folder, tmp_path):
    """Hubs have the weights a second time, as consolidated.safetensors: transformers reads what the index names."""
    shards = sorted(folder.glob("*.safetensors"))
    (folder / "consolidated.safetensors").write_bytes(shards[0].read_bytes())
    jobs = []
    oc.transformers.from_pretrained(
        transformers.AutoModelForCausalLM,
        folder,
        dtype="torch.float32",
        store=tmp_path / "store",
        warming=jobs.append,
    )
    report = jobs[0].wait()
    casts = oc.Store(tmp_path / "store").ls()
    assert len(casts) == len(shards)
    assert report.bytes < sum(one.bytes for one in casts) + len(casts) * 4096


def test_a_name_of_the_hub_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="snapshot_download"):
        oc.transformers.from_pretrained(transformers.AutoModelForCausalLM, "gpt2")


def test_a_folder_without_weights_and_a_damaged_file_are_refused(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no \*\.safetensors"):
        oc.transformers.from_pretrained(transformers.AutoModelForCausalLM, tmp_path)
    file = min(folder.glob("*.safetensors"))
    os.truncate(file, 1000)
    with pytest.raises(oc.FormatError, match=file.name):
        oc.transformers.from_pretrained(transformers.AutoModelForCausalLM, folder, dtype="float32")
