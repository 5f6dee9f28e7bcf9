"""Buckets of S3, by moto's server in a process of its own."""

import os
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from tests.support.shards import ARRAYS, write_set

import onecopy as oc
from onecopy_remote import fetch

MIB = 1 << 20


@pytest.fixture(scope="module")
def endpoint():
    pytest.importorskip("moto", reason="moto is not installed")
    code = (
        "import sys, moto.server, werkzeug.serving as w\n"
        "app = moto.server.DomainDispatcherApplication(moto.server.create_backend_app)\n"
        "server = w.make_server('127.0.0.1', 0, app, threaded=True)\n"
        "print(server.port, flush=True); server.serve_forever()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def bucket(endpoint, tmp_path, monkeypatch):
    """Give a function (name, content) that puts an object into a bucket and returns its URL."""
    obstore = pytest.importorskip("obstore")
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "AWS_REGION": "us-east-1",
        "ONECOPY_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{time.time_ns()}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")).close()
    s3 = obstore.store.from_url(f"s3://{name}", client_options={"allow_http": True})

    def put(key: str, content: bytes) -> str:
        obstore.put(s3, key, content)
        return f"s3://{name}/{key}"

    return put


def test_an_object_of_a_bucket_is_fetched_and_its_credentials_are_not_kept(bucket):
    content = os.urandom(20 * MIB)
    url = bucket("models/100%+ä?.bin", content)
    path = fetch(url)
    assert path.name == "100%+ä?.bin"
    assert path.read_bytes() == content
    (artefact,) = oc.Store().ls()
    assert artefact.key.startswith(f"{url.partition('?')[0]}, query ")
    assert "s3cret" not in artefact.key
    assert fetch(url) == path


def test_objects_that_are_missing_are_errors_that_name_the_url(bucket):
    url = bucket("x", b"x")
    with pytest.raises(FileNotFoundError) as raised:
        fetch(f"{url}-missing")
    assert raised.value.filename == f"{url}-missing"


def test_a_folder_is_fetched_by_the_names_of_its_objects(bucket):
    bucket("model/config.json", b"{}")
    bucket("model/model.safetensors", b"\2\0\0\0\0\0\0\0{}")
    bucket("model/pytorch_model.bin", b"not wanted")
    url = bucket("model/below/x.json", b"{}").rpartition("below/")[0]
    folder = fetch(url, names=["*.json", "*.safetensors"])
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert fetch(url, names=["*.json", "*.safetensors"]) == folder
    assert len(list(fetch(url).iterdir())) == 3
    with pytest.raises(FileNotFoundError, match=r"\*.gguf"):
        fetch(url, names=["*.gguf"])


def test_a_folder_is_opened_as_the_weights_in_it(bucket, tmp_path):
    write_set(tmp_path)
    for path in tmp_path.glob("model*"):
        url = bucket(f"model/{path.name}", path.read_bytes())
    with oc.open(f"{url.rpartition('/')[0]}/") as model:
        assert list(model) == list(ARRAYS)
        assert np.array_equal(model["layer.4"], ARRAYS["layer.4"])


def test_a_model_of_transformers_is_loaded_from_a_bucket(bucket, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=100, n_positions=32)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "out", max_shard_size="40KB")
    for path in (tmp_path / "out").iterdir():
        url = bucket(f"gpt/{path.name}", path.read_bytes())
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    loaded = oc.transformers.from_pretrained(transformers.GPT2LMHeadModel, url.rpartition("/")[0])
    words = torch.arange(8)[None]
    with torch.no_grad():
        assert np.array_equal(loaded(words).logits.numpy(), model.eval()(words).logits.numpy())
