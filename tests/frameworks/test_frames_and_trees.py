"""Frames and trees in several processes: what each holds privately, beside the frame or model that all use."""

import sys

import pytest
from tests.support.children import finished

PROGRAM = """
import multiprocessing as mp, os, sys, functools
import numpy as np
import onecopy as oc
{imports}
from onecopy.memory import proc
def private():
    return proc.rollup(os.getpid()).anonymous
{functions}
def work(_):
    barrier.wait()
    before = private()
    value = load()
    result = use(value)
    used = private() - before
    barrier.wait()
    return result, used
if __name__ == "__main__":
    {before}
    barrier = mp.get_context("fork").Barrier(4)
    with mp.get_context("fork").Pool(4) as pool:
        found = pool.map(work, range(4), 1)
    assert len({{result for result, _ in found}}) == 1, found
    print(max(used for _, used in found))
"""
MAKE = "n = 500_000; columns = {'x': np.arange(n) / 7, 'id': np.arange(n), 'text': [f't{i % 997}' for i in range(n)]}"
PANDAS = """
def build(path):
    return pd.read_pickle(path)
def use(frame):
    return float(frame["x"].sum()), int(frame["id"].iloc[-1]), frame["text"].iloc[3]
"""
SHARE = "def load():\n    return oc.share_object(functools.partial(build, 'f'), oc.file_key('f'), store='store')\n"
CACHED = "def load():\n    return oc.cached(codec='object', store='store')(build)('f')\n"
FRAMES = {
    "pandas": ("import pandas as pd", PANDAS + SHARE, "pd.DataFrame(columns).to_pickle('f')"),
    "pandas, cached": ("import pandas as pd", PANDAS + CACHED, "pd.DataFrame(columns).to_pickle('f')"),
    "pyarrow": (
        "import pyarrow as pa, pyarrow.feather, pyarrow.compute as pc",
        "def build(path):\n    return pa.feather.read_table(path, memory_map=False)\n"
        "def use(table):\n    return pc.sum(table['id']).as_py(), table['text'][3].as_py()\n" + SHARE,
        "pa.feather.write_feather(pa.table(columns), 'f')",
    ),
}


def most_private(folder, imports, functions, before):
    """Return the most private bytes that one of four processes needs to load and use something."""
    (folder / "program.py").write_text(PROGRAM.format(imports=imports, functions=functions, before=before))
    return int(finished([sys.executable, "program.py"], cwd=folder))


@pytest.mark.parametrize("name", FRAMES)
def test_processes_that_load_a_frame_hold_its_columns_once(tmp_path, name):
    for module in ("pandas", "pyarrow"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    imports, functions, write = FRAMES[name]
    once = f"{MAKE}; {write}; os.waitpid(pid, 0) if (pid := os.fork()) else (load(), os._exit(0))"
    assert most_private(tmp_path, imports, functions, once) < 5 << 20  # the columns: 12 MB and more


def test_processes_that_forked_from_one_that_loaded_a_forest_hold_its_nodes_once(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    imports = "import joblib\nfrom sklearn.ensemble import ExtraTreesRegressor"
    use = "def use(model):\n    return float(model.predict([[0.5]])[0])\n"
    make = (
        "x = np.random.default_rng(0).random((100_000, 1));"
        "joblib.dump(ExtraTreesRegressor(4, random_state=0).fit(x, x[:, 0]), 'f'); model = joblib.load('f')"
    )
    alone = most_private(tmp_path, imports, use + "def load():\n    return joblib.load('f')\n", make)
    forked = most_private(tmp_path, imports, use + "def load():\n    return model\n", make)
    assert alone > 40 << 20  # 4 trees of 200,000 nodes of 72 bytes
    assert forked < 5 << 20
