"""Each call that `onecopy run` shares, with the installed version of its package: the same result, from shared memory.

`pytest --tested tests/tested.jsonl tests/frameworks/test_auto_versions.py` records the versions for the documentation.
"""

import importlib.metadata

import pytest
from tests.support.same_answers import PRELUDE, same_answers

from onecopy.run.hooks import FRAMEWORKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TORCH = """
    import torch
    torch.set_num_threads(1), torch.manual_seed(1)
    model = torch.nn.Linear(1024, 1024)
    torch.nn.init.constant_(model.weight, 0.5)
    """
CALLS = {
    ("numpy", "numpy.load"): """
        np.save("x.npy", x)
        print(described(np.load("x.npy")))""",
    ("numpy", "numpy.load of .npz files"): """
        np.savez("x.npz", array_0000=x)
        with np.load("x.npz") as arrays:
            print(described(arrays["array_0000"]))""",
    ("numpy", "numpy.fromfile"): """
        x.tofile("x.bin")
        print(described(np.fromfile("x.bin", "f4")))""",
    ("joblib", "joblib.load"): """
        import joblib
        joblib.dump({"x": x}, "x.joblib")
        print(described(joblib.load("x.joblib")["x"]))""",
    ("scikit-learn", "joblib.load of estimators"): """
        import joblib
        from sklearn.neighbors import NearestNeighbors
        joblib.dump(NearestNeighbors(algorithm="brute").fit(x), "x.joblib")
        print(joblib.load("x.joblib").kneighbors(x[:5] + 0.1))""",
    ("gensim", "numpy.load in KeyedVectors.load"): """
        from gensim.models import KeyedVectors
        words = KeyedVectors(x.shape[1])
        words.add_vectors([f"word {i}" for i in range(len(x))], x)
        words.save("words", sep_limit=1000)
        print(described(KeyedVectors.load("words").vectors))""",
    ("spacy", "numpy.load in spacy.load"): """
        import spacy
        words = spacy.blank("en")
        words.vocab.vectors.resize(x.shape)
        words.vocab.vectors.data[:] = x
        words.to_disk("words")
        print(described(spacy.load("words").vocab.vectors.data))""",
    ("safetensors", "safetensors.numpy.load_file"): """
        from safetensors.numpy import load_file, save_file
        save_file({"x": x}, "x.safetensors")
        print(described(load_file("x.safetensors")["x"]))""",
    ("safetensors", "torch.nn.Module.load_state_dict after load_file"): f"""{TORCH}
    from safetensors.torch import load_file, save_file
    save_file(model.state_dict(), "x.safetensors")
    model = torch.nn.Linear(1024, 1024)
    model.load_state_dict(load_file("x.safetensors"))
    print(model(torch.ones(1, 1024)).sum().item())""",
    ("torch", "torch.load"): f"""{TORCH}
    torch.save(model.state_dict(), "x.pt")
    print(torch.load("x.pt")["weight"].sum().item())""",
    ("torch", "torch.nn.Module.load_state_dict after torch.load"): f"""{TORCH}
    torch.save(model.state_dict(), "x.pt")
    model.load_state_dict(torch.load("x.pt"))
    print(model(torch.ones(1, 1024)).sum().item())""",
    ("transformers", "transformers.from_pretrained"): """
        import torch, transformers
        shape = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9000}
        transformers.BertModel(transformers.BertConfig(**shape)).eval().save_pretrained("bert")
        model = transformers.BertModel.from_pretrained("bert", dtype=torch.bfloat16)
        print(model.dtype, len(model.state_dict()))""",
    ("onnxruntime", "onnxruntime.InferenceSession"): """
        import onnxruntime
        from tests.support.onnx_models import IDS, words_model
        with open("x.onnx", "wb") as file:
            file.write(words_model(40_000).SerializeToString())
        session = onnxruntime.InferenceSession("x.onnx", providers=["CPUExecutionProvider"])
        print(described(session.run(None, {"ids": IDS})[0]))""",
    ("faiss-cpu", "faiss.read_index"): """
        import faiss
        index = faiss.IndexFlatL2(x.shape[1])
        index.add(x)
        faiss.write_index(index, "x.faiss")
        print(*map(described, faiss.read_index("x.faiss").search(x[:5], 3)))""",
    ("usearch", "usearch.index.Index.load"): """
        from usearch.index import Index
        index = Index(ndim=x.shape[1], metric="l2sq", dtype="f32")
        index.add(np.arange(len(x)), x, threads=1)
        index.save("x.usearch")
        print(described(Index.restore("x.usearch").search(x[:5], 3).keys))""",
}
"""Programs by package and call, whose first word is what the report calls it. `x` is an array of 2 MB."""
ARRAY = "x = np.arange(1 << 19, dtype=np.float32).reshape(-1, 128)"


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    """Give a function of what a program does under `onecopy run`: the same as without."""
    installed = {each.name.lower() for each in importlib.metadata.distributions()}
    cases = {f"{package}: {call}": code for (package, call), code in CALLS.items() if package in installed}
    return same_answers(cases, tmp_path_factory.mktemp("calls"), prelude=f"{PRELUDE}{ARRAY}")


def test_each_replaced_module_is_in_the_table():
    assert {name.partition(".")[0] for name in FRAMEWORKS} - {"hnswlib"} <= {
        word for package, call in CALLS for word in (package, call.partition(".")[0])
    }


@pytest.mark.parametrize(("package", "call"), CALLS)
def test_a_call_returns_the_same_from_shared_memory(same, tested, package, call):
    tested.version_of(package)
    outcome = same(f"{package}: {call}")
    shared = [one for one in outcome.report["shared"] if call.partition(" ")[0] in one["function"]]
    assert sum(one["bytes"] for one in shared) > 1 << 20, outcome.report
    tested.record("call", call, package)
