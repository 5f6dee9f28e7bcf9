"""Libraries on top of numpy and torch with `onecopy.auto`: the same results, from shared memory."""

import shutil

import pytest
from tests.support.children import run_python
from tests.support.hub_server import COMMIT, serving_hub
from tests.support.same_answers import same_answer

HUB = """
import os, pathlib, sys
folder, how = pathlib.Path(sys.argv[1]), sys.argv[2]

os.environ |= {"HF_ENDPOINT": sys.argv[3], "HF_HOME": f"{folder}-{how}"}
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
    assert shared == ({sys.argv[4], "model"} if os.environ["ONECOPY_CACHE"].endswith("cache") else set()), shared
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
    with serving_hub(tmp_path / "model") as url:
        plain = run_python(HUB, tmp_path / "model", "plain", url, COMMIT)
        for cache in ("cache", "file/below"):
            monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / cache))
            assert run_python(HUB, tmp_path / "model", "auto", url, COMMIT) == plain
            shutil.rmtree(tmp_path / "model-auto")  # of the hub: it is downloaded again


SCIKIT_LEARN = """
import joblib
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsClassifier
x = np.random.default_rng(0).normal(size=(50_000, 16))
models = {
    "knn": KNeighborsClassifier(algorithm="brute").fit(x, x[:, 0] > 0),
    "forest": RandomForestRegressor(3, random_state=0).fit(x[:9000], x[:9000, 1]),
}
for name, model in models.items():
    joblib.dump(model, name)
    joblib.dump(model, f"{name}.z", compress=3)
    print(*(described(joblib.load(path).predict(x[:50])) for path in (name, f"{name}.z")))
joblib.dump([1], "knn")
print(joblib.load("knn"))
"""


def test_models_of_scikit_learn_are_mapped_and_what_they_copy_is_reported(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    outcome = same_answer(SCIKIT_LEARN, tmp_path / "same")
    assert 50_000 * 16 * 8 <= outcome.shared["knn"] <= 50_000 * 16 * 8 + 1_000_000
    assert "arrays that the loaded object copied" in outcome.reasons
    assert "the file is compressed, or contains no large arrays" in outcome.reasons
