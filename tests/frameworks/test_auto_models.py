"""Libraries on top of numpy and torch with `onecopy.auto`: the same results, from shared memory."""

import json
import shutil
import subprocess
import sys

import pytest
from tests.support.children import CHILD_SECONDS, run_python
from tests.support.same_answers import run_shared

SHARED = """
def shared(function):
    return sum(call.shared for call in onecopy.auto.calls() if call.function == function)
def reasons(function):
    return [call.reason for call in onecopy.auto.calls() if call.function == function and call.reason]
"""


HUB = """
import hashlib, http.server, os, pathlib, sys, threading
folder, how = pathlib.Path(sys.argv[1]), sys.argv[2]

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        path = folder / self.path.rpartition("/")[2].partition("?")[0]
        found = "/resolve/" in self.path and path.is_file()
        data = path.read_bytes() if found else b""
        self.send_response(200 if found else 404)
        headers = {"Content-Length": str(len(data)), "X-Repo-Commit": "a" * 40}
        headers |= {"ETag": f'"{hashlib.sha1(data).hexdigest()}"'} if found else {"X-Error-Code": "EntryNotFound"}
        for header in headers.items():
            self.send_header(*header)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)
    do_HEAD = do_GET

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": f"{folder}-{how}"}
os.environ |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
if how == "auto":
    import onecopy.auto
import torch, transformers
transformers.utils.logging.disable_progress_bar()
for name in ("org/model", str(folder)):
    for dtype in (torch.bfloat16, "float32", torch.float16):
        model = transformers.BertModel.from_pretrained(name, dtype=dtype)
        print(model.dtype, sum(one.double().sum().item() for one in model.state_dict().values()))
for wrong in ("org/none", f"{folder}/none", 7):
    try:
        transformers.BertModel.from_pretrained(wrong, dtype="float15")
    except Exception as error:
        print(type(error).__name__)
if how == "auto":
    shared = {pathlib.Path(call.path).name for call in onecopy.auto.calls() if call.shared}
    assert shared == ({"a" * 40, "model"} if os.environ["ONECOPY_CACHE"].endswith("cache") else set()), shared
"""


def test_models_that_are_downloaded_first_and_stores_that_cannot_be_written_load_as_ever(torch, tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "file").touch()
    make = """
    import sys
    from transformers import BertConfig, BertModel
    shape = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9000}
    BertModel(BertConfig(**shape)).save_pretrained(sys.argv[1])
    """
    run_python(make, tmp_path / "model")
    plain = run_python(HUB, tmp_path / "model", "plain")
    for cache in ("cache", "file/below"):
        monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / cache))
        assert run_python(HUB, tmp_path / "model", "auto") == plain
        shutil.rmtree(tmp_path / "model-auto")  # of the hub: it is downloaded again


def test_sessions_of_onnx_runtime_use_prepacked_weights(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    models = pytest.importorskip("tests.support.onnx_models", reason="onnx is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    models.save_inline(tmp_path / "large.onnx", aligned=True, rows=2000, width=1024, layers=3)
    models.save_inline(tmp_path / "small.onnx", aligned=True, rows=4000)
    code = (
        """
import sys, numpy as np
import onecopy.auto
import onnxruntime
"""
        + SHARED
        + """
name = "onnxruntime.InferenceSession"
feed = {"ids": np.arange(7)}
plain = onnxruntime.InferenceSession.__init__.__wrapped__
class Plain(onnxruntime.InferenceSession):
    __init__ = plain
for size in ("small", "large"):
    path = f"{sys.argv[1]}/{size}.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert type(session) is onnxruntime.InferenceSession
    expected = Plain(path, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    assert (session.run(None, feed)[0] == expected).all()
    session.set_providers(["CPUExecutionProvider"])
    assert (session.run(None, feed)[0] == expected).all()
assert shared(name) > 16 << 20
assert "auto prepacks from" in reasons(name)[0], reasons(name)
open(f"{sys.argv[1]}/bad.onnx", "wb").write(b"\\x08\\x07" * (1 << 20))
for bad in ("none.onnx", "bad.onnx"):
    errors = []
    for make in (onnxruntime.InferenceSession, Plain):
        try:
            make(f"{sys.argv[1]}/{bad}")
        except Exception as error:
            errors.append(repr(error))
    assert len(errors) == 2 and errors[0] == errors[1], errors
"""
    )
    run_python(code, tmp_path)


def test_models_of_scikit_learn_are_mapped_and_what_they_copy_is_reported(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    code = (
        """
import sys, numpy as np
import onecopy.auto
import joblib
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsClassifier
"""
        + SHARED
        + """
random = np.random.default_rng(0)
x = random.normal(size=(50_000, 16))
models = {
    "knn": KNeighborsClassifier(algorithm="brute").fit(x, x[:, 0] > 0),
    "forest": RandomForestRegressor(3, random_state=0).fit(x[:9000], x[:9000, 1]),
}
for name, model in models.items():
    path = f"{sys.argv[1]}/{name}.joblib"
    joblib.dump(model, path)
    loaded = joblib.load(path)
    assert (loaded.predict(x[:50]) == model.predict(x[:50])).all()
    joblib.dump(model, f"{path}.z", compress=3)
    joblib.load(f"{path}.z")
assert x.nbytes <= shared("joblib.load") <= x.nbytes + 1_000_000
assert "arrays that the loaded object copies" in reasons("joblib.load"), reasons("joblib.load")
assert "compressed, or without large arrays" in reasons("joblib.load")
joblib.dump([1], f"{sys.argv[1]}/knn.joblib")
assert joblib.load(f"{sys.argv[1]}/knn.joblib") == [1]
"""
    )
    run_shared(code, tmp_path)


def test_arrays_of_another_byte_order_are_swapped_by_joblib(tmp_path):
    pytest.importorskip("joblib", reason="joblib is not installed")
    code = (
        """
import sys, numpy as np
import onecopy.auto
import joblib
"""
        + SHARED
        + """
path = f"{sys.argv[1]}/a.joblib"
for dtype in (">f8", "<f8"):
    joblib.dump(np.arange(200_000, dtype=dtype), path)
    for given in ({}, {"ensure_native_byte_order": True}, {"ensure_native_byte_order": False}):
        found = joblib.load(path, **given)
        native = np.dtype(dtype).isnative or given.get("ensure_native_byte_order", True)
        assert found.dtype == np.dtype("=f8" if native else dtype), (dtype, given)
        assert (found == np.arange(200_000)).all()
        assert type(found) is np.ndarray
assert shared("joblib.load") == 1_600_000
assert "another byte order" in reasons("joblib.load")
"""
    )
    run_shared(code, tmp_path)


def test_vectors_of_gensim_are_mapped(tmp_path):
    pytest.importorskip("gensim", reason="gensim is not installed")
    code = (
        """
import sys, numpy as np
import onecopy.auto
from gensim.models import KeyedVectors
"""
        + SHARED
        + """
vectors = np.random.default_rng(0).normal(size=(2000, 600)).astype("f4")
words = KeyedVectors(600)
words.add_vectors([f"word {i}" for i in range(len(vectors))], vectors)
path = f"{sys.argv[1]}/words"
words.save(path, sep_limit=1000)
loaded = KeyedVectors.load(path)
assert (loaded.vectors == vectors).all()
assert loaded.most_similar("word 1") == words.most_similar("word 1")
assert shared("numpy.load") == vectors.nbytes
"""
    )
    run_shared(code, tmp_path)


@pytest.mark.nightly
def test_vectors_of_spacy_are_in_memory_once_for_all_processes(tmp_path):
    pytest.importorskip("spacy", reason="spaCy is not installed")
    make = """
import sys, numpy as np, spacy
from spacy.vectors import Vectors
pipeline = spacy.blank("en")
data = np.random.default_rng(0).normal(size=(50_000, 300)).astype("f4")
pipeline.vocab.vectors = Vectors(strings=pipeline.vocab.strings, data=data, keys=[f"w{i}" for i in range(len(data))])
pipeline.to_disk(sys.argv[1])
"""
    use = """
import sys, spacy
from onecopy.memory.proc import Regions
pipeline = spacy.load(sys.argv[1])
vectors = pipeline.vocab.vectors
region = Regions().at(vectors.data.ctypes.data)
print(bool(region.inode), pipeline("w1 w2 unknown").vector.tobytes().hex())
vectors.add("w1", vector=vectors.data[7])
assert (pipeline.vocab.get_vector("w1") == vectors.data[7]).all()
"""
    (tmp_path / "use.py").write_text(use)
    run_python(f"import warnings; warnings.simplefilter('default')\n{make}", tmp_path / "pipeline")
    call = f"{sys.executable} {tmp_path / 'use.py'} {tmp_path / 'pipeline'}"
    plain = subprocess.run(call.split(), check=True, capture_output=True, text=True, timeout=CHILD_SECONDS).stdout
    command = [sys.executable, "-m", "onecopy", "run", "--report", tmp_path / "report.json", "--"]
    done = subprocess.run(
        [*command, "sh", "-c", f"{call} & {call} && wait"],
        check=True,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
    )
    is_mapped, vector = plain.split()
    assert (is_mapped, done.stdout) == ("False", f"True {vector}\n" * 2)
    (shared,) = json.loads((tmp_path / "report.json").read_text())["shared"]
    assert (shared["bytes"], len(shared["pids"])) == (60_000_000, 2)
    assert shared["path"] == str(tmp_path / "pipeline/vocab/vectors")
