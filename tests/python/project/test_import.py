"""What importing loads, in fresh processes; and which names there are."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from tests.support.places import GOLDEN

import onecopy as oc
import onecopy.arrays
import onecopy.errors
import onecopy.files.mapping
import onecopy.records

HEAVY = ["numpy", "ml_dtypes", "safetensors", "torch", "jax", "tensorflow", "pandas", "click", "rich"]


@pytest.fixture
def loaded(python):
    """Run lines in a fresh process; tell which modules of the package, and which heavy ones, it then has."""

    def run(code: str, *arguments: object) -> tuple[set[str], set[str]]:
        told = python(f"import sys\n{code}\nprint(*sys.modules)", *arguments).split()
        return {name for name in told if name.split(".")[0] == "onecopy"}, {name for name in HEAVY if name in told}

    return run


def test_importing_the_package_loads_nothing_else(loaded):
    assert loaded("import onecopy") == ({"onecopy", "onecopy.base", "onecopy.base.lazy"}, set())


def test_numpy_comes_with_the_first_array(loaded, tmp_path):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"w": np.zeros(3)})
    mapping = "with oc.Mapping(sys.argv[1]) as m: oc.warm(m), oc.evict(m), oc.files.pin(m), m.view()[0]"
    look = "f = oc.open(sys.argv[1]); f.warm(['w']); list(f), f.entries, 'w' in f, repr(f)"
    look = f"import onecopy as oc\n{mapping}\n{look}"
    assert loaded(look, path)[1] == set()
    assert loaded(f"{look}; f['w']", path)[1] == {"numpy"}


def test_the_first_open_beside_numpy_loads_what_a_safetensors_file_needs(python, tmp_path):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"w": np.zeros(3)})
    code = """
        import sys, numpy, atexit, errno, importlib.util
        before = set(sys.modules)
        import onecopy as oc
        oc.open(sys.argv[1])["w"][0]
        print(*sorted(set(sys.modules) - before))
    """
    needed = "_core arrays.entries arrays.file arrays.open_mode arrays.opening base.lazy base.text"
    modules = {*needed.split(), "files.mapping", "store.location"}
    folders = {name.partition(".")[0] for name in modules if "." in name}  # tables of names
    found = python(textwrap.dedent(code), path).split()
    assert found == sorted(["onecopy", *(f"onecopy.{name}" for name in modules | folders)])


def test_public_names_are_those_of_their_modules_and_listed_before_they_are_used(python):
    assert len(oc.__all__) == len(set(oc.__all__)) <= 32
    assert all(getattr(oc, name) is not None for name in oc.__all__)
    homes = {"open": onecopy.arrays, "Mapping": onecopy.files.mapping, "DataLost": onecopy.errors}
    assert all(getattr(oc, name) is getattr(home, name) for name, home in homes.items())
    names = sorted((*oc.__all__, "images", "onnxruntime", "ray", "torch", "transformers"))
    assert dir(oc) == python("import onecopy; print(*dir(onecopy))").split() == names
    python("torch = 1\nfrom onecopy import *\nassert torch == 1 and share")  # a star leaves frameworks alone
    with pytest.raises(AttributeError, match="module 'onecopy' has no attribute 'opne'"):
        oc.opne  # noqa: B018
    with pytest.raises(ImportError, match="opne"):
        exec("from onecopy import opne")
    assert not hasattr(oc, "__wrapped__")


IN_PICKLES = """
onecopy.arrays.file.OneFile onecopy.arrays.several_files.of_index onecopy.arrays.several_files.of_url
onecopy.frameworks.ray.Handle onecopy.holding.Change onecopy.images.image.Image onecopy.remote.origin.Version
onecopy.objects.made.array onecopy.objects.made.tensor onecopy.page_cache.WarmReport onecopy.records.rows.attach
onecopy.records.schema.Schema onecopy.records.types.Unloaded onecopy.reports.LoadReport onecopy.scratch_arrays._attach
onecopy.scratch_arrays.HeapArray onecopy.shuffle.Shuffle onecopy.data.shuffle.Shuffle onecopy.sources.How
onecopy.store.Artefact onecopy.store.reopened
"""


@pytest.mark.parametrize("name", IN_PICKLES.split())
def test_what_pickles_of_0_1_0_name_is_found(python, name):
    module, _, attribute = name.rpartition(".")
    pickled = f"c{module}\\n{attribute}\\n."  # protocol 0
    assert attribute in python(f"import pickle; print(pickle.loads(b'{pickled}'))").replace("OpenMode", "How")


def test_local_files_and_objects_need_no_other_distribution(python, tmp_path):
    oc.save(tmp_path / "model.safetensors", {"w": np.arange(3)})
    onecopy.records.save(tmp_path / "rows.oc", ["a"])
    code = """
    import pathlib, sys
    sys.modules["onecopy_remote"] = sys.modules["onecopy_records"] = None
    import onecopy as oc
    from onecopy.cli import main
    folder = pathlib.Path(sys.argv[1])
    model = folder / "model.safetensors"
    assert [int(oc.open(name)["w"][2]) for name in (str(model), folder, model.as_uri())] == [2, 2, 2]
    shared = oc.share_object(lambda: {"weights": list(range(5))}, "a key", store=folder / "store")
    @oc.cached(codec="object", store=folder / "store")
    def squares():
        return [number**2 for number in range(4)]
    print(shared, squares(), main(["ls", str(folder / "rows.oc"), "--arrays"]))
    """
    assert python(code, tmp_path).endswith("{'weights': [0, 1, 2, 3, 4]} [0, 1, 4, 9] 0\n")


NEEDED = {
    "images": """
        oc.images
        import onecopy.images
        import onecopy.images.codecs
        from onecopy import images
        from onecopy.images import open
        pickle.load(open(golden + "/images/names.pickle", "rb"))""",
    "onnxruntime": """
        oc.onnxruntime
        import onecopy.frameworks.onnxruntime
        from onecopy import onnxruntime""",
    "remote": """
        oc.remote
        oc.ray
        import onecopy.remote
        import onecopy.remote.origin
        import onecopy.frameworks.ray
        from onecopy.remote import fetch
        oc.open("https://host/model.safetensors")
        oc.open("s3://bucket/model.safetensors", names=["weight"])
        oc.open_records("gs://bucket/rows.oc")""",
    "records": """
        oc.records
        oc.share([1])
        oc.open_records(rows)
        oc.torch.share_dataset(None)
        oc.cached(function)()
        from onecopy.records import List
        import onecopy.data.rows
        pickle.load(open(golden + "/records/names.pickle", "rb"))
        with redirect_stderr(sys.stdout): main(["ls", rows])""",
}
"""By the name of a distribution: statements that need it."""
STATEMENTS = [(name, line.strip()) for name, lines in NEEDED.items() for line in lines.splitlines() if line.strip()]


@pytest.mark.parametrize(("name", "statement"), STATEMENTS)
def test_a_distribution_that_is_missing_is_named_with_what_to_install(python, tmp_path, name, statement):
    """All else works, and a cached function is not called in vain."""
    onecopy.records.save(tmp_path / "rows.oc", ["a"])
    code = f"""
        import pickle, sys
        from contextlib import redirect_stderr
        golden, rows, missing = sys.argv[1:]
        sys.modules[f"onecopy_{{missing}}"] = None  # as where it is not installed
        import onecopy as oc
        from onecopy.cli import main
        def function():
            print("called")
        if missing != "records":  # in which some public names are
            assert missing not in dir(oc) and all(hasattr(oc, each) for each in oc.__all__)
        try:
            {statement}
        except ModuleNotFoundError as error:
            print(error.name, error, sep=", ")
    """
    said = python(textwrap.dedent(code), GOLDEN, tmp_path / "rows.oc", name)
    needed = f"onecopy.{name} needs another package: pip install onecopy-{name}\n"
    assert said in (f"onecopy_{name}, {needed}", f"onecopy: {needed}")


def test_a_program_whose_thread_holds_a_file_to_the_end_ends_silently(tmp_path):
    code = """
import sys, threading, time
import onecopy as oc
def serve():
    file = oc.Mapping(sys.argv[1])
    ready.set()
    time.sleep(100)
ready = threading.Event()
threading.Thread(target=serve, daemon=True).start()
ready.wait(20)
"""
    (tmp_path / "data.bin").write_bytes(b"data")
    command = [sys.executable, "-c", code, tmp_path / "data.bin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("call", ["load('a.safetensors')", "load_into(None, 'a.safetensors')"])
def test_torch_that_is_missing_is_named_with_what_to_install(call):
    """Also before the file is looked for."""
    program = f"import sys; sys.modules['torch'] = None; import onecopy; onecopy.torch.{call}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: oc.torch requires PyTorch: pip install torch"
