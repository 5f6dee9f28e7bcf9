"""Objects of the frameworks keep their arrays in the file: what each shares, and what its classes copy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onecopy as oc
from onecopy.base.load_report import LoadReport


@pytest.fixture
def round_trip(tmp_path: Path) -> Any:
    """Give a function (value, private=False) that saves and loads an object: (object, report, arrays by name)."""

    def save_and_load(value: Any, *, private: bool = False) -> tuple[Any, LoadReport, dict[str, Any]]:
        path, reports = tmp_path / "object.oc", []
        oc.save_object(path, value)
        with oc.open(path) as file:
            arrays = {entry.name: (entry.dtype, entry.shape) for entry in file.entries if "object." not in entry.name}
        return oc.load_object(path, trusted=True, private=private, report=reports.append), reports[0], arrays

    return save_and_load


def copied(report: LoadReport) -> int:
    return sum(one.bytes for one in report.copied)


def test_modules_of_torch_keep_names_ties_and_gradients_and_can_be_trained(round_trip):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200), torch.nn.Linear(200, 300))
    module[2].weight = torch.nn.Parameter(torch.zeros(300, 200))
    module.tied = module[0].weight
    module[0].bias.requires_grad_(False)
    module.half = torch.ones(5000, dtype=torch.bfloat16)
    loaded, report, arrays = round_trip(module)
    assert (arrays["2.weight"], arrays["half"]) == (("F32", (300, 200)), ("BF16", (5000,)))
    assert loaded.tied is loaded[0].weight
    assert not loaded[0].bias.requires_grad
    assert type(loaded[0].weight) is torch.nn.Parameter
    for mine, other in zip(loaded.state_dict().values(), module.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    assert report.mapped > 480_000
    assert copied(report) < 4000
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1)
    loaded(torch.ones(10, 300)).sum().backward()
    optimizer.step()
    assert not torch.equal(loaded[2].weight, module[2].weight)


def test_tensors_that_share_memory_share_it_again(round_trip):
    torch = pytest.importorskip("torch")
    whole = torch.arange(10_000.0)
    views = [whole[:5000], whole[5000:], whole.view(100, 100).t(), whole[::3]]
    loaded, report, _ = round_trip(views)
    assert report.mapped == 40_000
    for mine, other in zip(loaded, views, strict=True):
        assert (mine.stride(), mine.storage_offset()) == (other.stride(), other.storage_offset())
        assert torch.equal(mine, other)
    loaded[0][0] = 7
    assert loaded[2][0, 0] == 7


def test_nearest_neighbors_share_their_data_and_trees_and_forests_are_copied_as_the_report_says(round_trip):
    neighbors, ensemble = pytest.importorskip("sklearn.neighbors"), pytest.importorskip("sklearn.ensemble")
    points = np.random.default_rng(0).random((20_000, 10))
    model = neighbors.KNeighborsClassifier(algorithm="kd_tree").fit(points, np.arange(20_000) % 3)
    loaded, report, arrays = round_trip(model)
    assert arrays["_fit_X"] == ("F64", (20_000, 10))
    assert (report.mapped > 2_000_000, copied(report) < 4000) == (True, True)
    assert np.array_equal(loaded.predict(points[:50] + 0.01), model.predict(points[:50] + 0.01))
    model = ensemble.RandomForestClassifier(5, random_state=0).fit(points[:5000], np.arange(5000) % 3)
    loaded, report, _ = round_trip(model)
    assert copied(report) > 500_000
    assert report.copied[0].name.startswith("Tree ")
    assert np.array_equal(loaded.predict(points), model.predict(points))


def test_data_frames_share_their_columns(round_trip):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "number": np.arange(10_000),
            "float": np.arange(10_000) / 3,
            "text": [f"row {i}" for i in range(10_000)],
            "kind": pandas.Categorical(["a", "b"] * 5000),
            "time": pandas.date_range("2020-01-01", periods=10_000, freq="h"),
        }
    )
    loaded, report, _ = round_trip(frame)
    pandas.testing.assert_frame_equal(loaded, frame)
    assert report.mapped > 250_000
    assert copied(report) < 5000
    changed, _, _ = round_trip(frame, private=True)
    changed.loc[0, "number"] = 7
    assert (changed["number"][0], loaded["number"][0]) == (7, 0)


def test_frames_of_polars_share_their_columns(round_trip):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "number": np.arange(10_000),
            "text": [f"row {i} is longer than what polars keeps in place" for i in range(10_000)],
            "lists": [[1.0, 2.5], None] * 5000,
            "kind": polars.Series(["a", "b"] * 5000, dtype=polars.Categorical),
            "named": polars.Series(["a", "b"] * 5000, dtype=polars.Enum(["b", "a"])),
        }
    )
    for value in (frame, frame["text"], {"inner": frame.lazy().collect()}):
        loaded, report, _ = round_trip(value)
        one, other = (loaded["inner"], value["inner"]) if isinstance(value, dict) else (loaded, value)
        assert type(one) is type(other)
        assert one.equals(other)
        assert report.mapped > 300_000
        assert copied(report) < 55_000  # codes of Categorical and Enum, which polars makes from those of Arrow
    assert round_trip(frame)[0].schema == frame.schema
    objects = polars.Series("objects", [object], dtype=polars.Object)  # which Arrow does not have
    with pytest.raises(Exception, match=r"[Oo]bject"):
        round_trip(objects)


def test_tables_of_arrow_and_sparse_matrices_share_their_buffers(round_trip):
    arrow, sparse = pytest.importorskip("pyarrow"), pytest.importorskip("scipy.sparse")
    table = arrow.table({"number": np.arange(10_000), "text": [f"row {i}" for i in range(10_000)]})
    loaded, report, _ = round_trip(table)
    assert loaded.equals(table)
    assert (report.mapped > 150_000, copied(report) < 4000) == (True, True)
    matrix = sparse.random(1000, 1000, 0.05, "csr", random_state=0)
    loaded, report, arrays = round_trip(matrix)
    assert (loaded != matrix).nnz == 0
    assert arrays == {"data": ("F64", (50_000,)), "indices": ("I32", (50_000,)), "indptr": ("I32", (1001,))}
    assert (report.mapped, copied(report) < 1000) == (604_004, True)


def test_vectors_of_gensim_are_shared_and_their_words_are_copied(round_trip):
    models = pytest.importorskip("gensim.models")
    vectors = models.KeyedVectors(100)
    vectors.add_vectors([f"word {i}" for i in range(2000)], np.random.default_rng(0).random((2000, 100), np.float32))
    loaded, report, arrays = round_trip(vectors)
    assert arrays["vectors"] == ("F32", (2000, 100))
    assert report.mapped >= 800_000
    assert loaded.most_similar("word 5") == vectors.most_similar("word 5")


@pytest.mark.parametrize(
    "options",
    [{"mode": "default"}, {"mode": "floret", "minn": 2, "maxn": 3, "hash_count": 2}],
    ids=["default", "floret"],
)
def test_vectors_of_spacy_are_shared_in_a_pipeline(round_trip, options):
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    data = np.random.default_rng(0).random((2000, 300), np.float32)
    keys = [nlp.vocab.strings.add(f"w{i}") for i in range(2000)] if options["mode"] == "default" else None
    nlp.vocab.vectors = spacy.vectors.Vectors(strings=nlp.vocab.strings, data=data, keys=keys, **options)
    loaded, report, arrays = round_trip(nlp)
    assert arrays == {"Vectors 0": ("F32", (2000, 300))}
    assert report.mapped == 2_400_000
    assert (loaded.vocab.vectors.mode, loaded.vocab.vectors.name) == (options["mode"], nlp.vocab.vectors.name)
    assert np.array_equal(loaded.vocab.vectors.data, data)
    if keys:  # pickled by itself, a pipeline of the other mode raises E018 as well
        assert np.array_equal(loaded("w7 w8").vector, nlp("w7 w8").vector)
        assert loaded("w7 w8").vector.any()


SCRIPT = """
import gc, pickle, sys, warnings
import numpy as np
import onecopy as oc
from sklearn.utils import all_estimators

warnings.simplefilter("ignore")
random = np.random.default_rng(0)
rows = np.abs(random.normal(size=(60, 4))) + 0.1
labels = (rows[:, 0] > rows[:, 0].mean()).astype(int)
fitted = []
for name, kind in all_estimators():
    options = {"n_estimators": 3, "max_iter": 5, "n_jobs": 1}
    try:
        model = kind()
        names = model.get_params()
        model.set_params(**{key: value for key, value in options.items() if key in names}).fit(rows, labels)
        buffers = []
        pickle.dumps(model, 5, buffer_callback=buffers.append)
    except Exception:  # it needs other data, or cannot be pickled
        continue
    if buffers:
        fitted.append(pickle.dumps(model))
del model, buffers
gc.collect()
gc.freeze()
for threshold in [(1, 1, 1), (2, 2, 2), (7, 3, 2), (50, 5, 5), (350, 3, 3), (700, 10, 10)]:
    gc.set_threshold(*threshold)
    for text in fitted:
        model = pickle.loads(text)
        oc.save_object(sys.argv[1], model, durable=False)
        del model
        gc.collect()
print(len(fitted))
"""


@pytest.mark.nightly
def test_every_model_of_scikit_learn_with_buffers_is_saved_and_dropped_under_any_threshold(python, tmp_path):
    """The garbage collector may run at any moment while objects of compiled classes are saved and dropped."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    assert int(python(SCRIPT, str(tmp_path / "model.oc"))) > 100
