"""The garbage collector may run at any moment while objects of compiled classes are saved and dropped."""

import pytest

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
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    assert int(python(SCRIPT, str(tmp_path / "model.oc"))) > 100
