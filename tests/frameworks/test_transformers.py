"""Models of Hugging Face's transformers: mapped as they are, and mapped in another dtype."""

import json
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.page_cache import nearly

import onecopy as oc

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from_pretrained, AutoModel = oc.transformers.from_pretrained, transformers.AutoModelForCausalLM


@pytest.fixture
def folder(tmp_path) -> Path:
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=4000
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "model", max_shard_size="2MB")
    return tmp_path / "model"


@pytest.fixture
def load(folder, tmp_path) -> Callable[..., Any]:
    """Give what loads the model of the folder, of which nothing is in memory, with a store of the test."""
    for file in folder.glob("*.safetensors"):
        oc.evict(file)
    return partial(from_pretrained, AutoModel, folder, store=tmp_path / "store")


def weights_of(model) -> list:
    return [one for one in oc.explain(model).findings if one.bytes > 10_000]


@pytest.mark.parametrize("dtype", [torch.float32, "float16"])
def test_weights_are_cast_once_and_stay_mapped(load, folder, tmp_path, dtype):
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    alone = AutoModel.from_pretrained(folder, dtype=wanted)
    assert "heap" in {one.kind for one in weights_of(alone)}
    for _ in range(2):
        model = load(dtype=dtype)
        assert {one.kind for one in weights_of(model)} == {"shared"}
        assert model.dtype == wanted
        for (name, ours), theirs in zip(model.state_dict().items(), alone.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs), name
    assert len(oc.Store(tmp_path / "store").ls()) == len(list(folder.glob("*.safetensors")))
    assert model.config._name_or_path == str(folder)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_files_are_brought_into_memory_meanwhile_but_none_beside_the_model(load, folder, tmp_path, dtype):
    """Hubs have the weights a second time, as consolidated.safetensors: transformers reads what the index names."""
    there, jobs = sorted(folder.glob("*.safetensors")), []
    (folder / "consolidated.safetensors").write_bytes(there[0].read_bytes())
    load(dtype=dtype, warming=jobs.append)
    report = jobs[0].wait()
    if dtype == "float32":
        casts = [artefact.path for artefact in oc.Store(tmp_path / "store").ls()]
        assert len(casts) == len(there) > 1
        there = casts
    size = sum(file.stat().st_size for file in there)
    assert report.complete
    assert size <= report.bytes < size + len(there) * 4096
    assert report.cached_after == nearly(report.bytes)


def test_a_budget_of_warming_is_for_all_files(load):
    jobs = []
    load(warming=jobs.append, max_bytes=1 << 20)
    report = jobs[0].wait()
    assert not report.complete
    assert 0 < report.filled <= 1 << 20


def test_what_is_no_folder_of_weights_and_a_damaged_file_are_refused(load, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="snapshot_download"):
        from_pretrained(AutoModel, "gpt2")
    with pytest.raises(FileNotFoundError, match=r"contains neither \*\.safetensors files nor pytorch_model\.bin"):
        from_pretrained(AutoModel, tmp_path)
    with pytest.raises(TypeError, match="first argument must be a class with from_pretrained"):
        from_pretrained(str(tmp_path), AutoModel)
    first, *_, last = sorted(folder.glob("*.safetensors"))
    content = last.read_bytes()
    last.unlink()
    for dtype in ("auto", "float32"):
        with pytest.raises(FileNotFoundError, match=str(last)):
            load(dtype=dtype)
    last.write_bytes(content)
    os.truncate(first, 1000)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"dtype"', '"other"'))
    for dtype in ("auto", "float32"):  # without a cast, and with one
        with pytest.raises(oc.FormatError, match=first.name):
            load(dtype=dtype)


@pytest.mark.parametrize("variant", [None, "v2"])
@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("dtype", ["auto", "float16"])
def test_a_folder_of_checkpoints_of_torch_is_loaded_as_transformers_loads_it(dtype, is_sharded, variant, tmp_path):
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16
    )
    torch.manual_seed(0)
    state = transformers.BertModel(config).state_dict()
    attention = "encoder.layer.0.attention.self"
    state[f"{attention}.key.weight"] = state[f"{attention}.query.weight"].T  # the same bytes with other strides
    config.save_pretrained(tmp_path)
    suffix = f".{variant}" if variant else ""
    if is_sharded:
        names = {name: f"pytorch_model{suffix}-{number % 2}.bin" for number, name in enumerate(state)}
        for file in set(names.values()):
            torch.save({name: state[name] for name in state if names[name] == file}, tmp_path / file)
        (tmp_path / f"pytorch_model.bin.index{suffix}.json").write_text(
            json.dumps({"metadata": {"total_size": 1}, "weight_map": names})
        )
    else:
        torch.save(state, tmp_path / f"pytorch_model{suffix}.bin")
    given = {"dtype": dtype, "variant": variant}
    expected = transformers.BertModel.from_pretrained(tmp_path, **given).state_dict()
    model = from_pretrained(transformers.BertModel, tmp_path, store=tmp_path / "store", **given)
    for name, weight in model.state_dict().items():
        assert weight.dtype == expected[name].dtype
        assert torch.equal(weight, expected[name]), name
    private = {one.name for one in weights_of(model) if one.kind != "shared"}
    assert private <= {f"{attention}.key.weight"}
    assert not (tmp_path / "store").exists() or dtype != "auto"


@pytest.mark.filterwarnings("ignore:`torch_dtype` is deprecated")
@pytest.mark.parametrize("given", [{"torch_dtype": torch.float32}, {"dtype": {"": torch.float32}}, {}], ids=str)
@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])  # in the configuration
def test_every_way_to_say_a_type_is_shared(load, given, folder, name):
    text = (folder / "config.json").read_text()
    assert '"dtype": "bfloat16"' in text
    named = "bfloat16" if given else "float32"
    (folder / "config.json").write_text(text.replace('"dtype": "bfloat16"', f'"{name}": "{named}"'))
    model, info = load(**given, output_loading_info=True)
    assert model.dtype == torch.float32
    assert {one.kind for one in weights_of(model)} == {"shared"}
    assert not info["missing_keys"]


def test_a_folder_in_the_folder_and_a_variant_are_found(folder, tmp_path):
    AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "outer/inner", variant="v2")
    for name in ("model", "consolidated.v2"):
        (tmp_path / f"outer/inner/{name}.safetensors").write_bytes(b"no model")
    given = {"subfolder": "inner", "dtype": "float32", "store": tmp_path / "store"}
    with pytest.raises(oc.FormatError, match="inner"):
        from_pretrained(AutoModel, tmp_path / "outer", **given)
    model = from_pretrained(AutoModel, tmp_path / "outer", variant="v2", **given)
    assert {one.kind for one in weights_of(model)} == {"shared"}


def test_what_shares_nothing_is_reported(load):
    with pytest.warns(UserWarning, match=r"all \d\.\d+ MB of weights are in private memory.*explain"):
        load(disable_mmap=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load()


def test_threads_that_load_at_once_get_their_own_and_the_environment_is_as_it_was(load, monkeypatch):
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "0")
    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(load, dtype=dtype) for dtype in ("float32", "float16", "float32", "float16")]
        models = [job.result() for job in jobs]
    assert [model.dtype for model in models] == [torch.float32, torch.float16] * 2
    assert {one.kind for model in models for one in weights_of(model)} == {"shared"}
    assert os.environ["HF_DEACTIVATE_ASYNC_LOAD"] == "0"
