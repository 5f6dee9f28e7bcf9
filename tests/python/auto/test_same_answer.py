"""Programs return the same under `onecopy run`: values, types, ownership, positions of files, errors.

All cases are run by two processes, each case in a fork of its own.
"""

import textwrap
from importlib.util import find_spec

import numpy as np
import pytest
from tests.support.same_answers import PRELUDE, same_answer, same_answers

pytestmark = pytest.mark.timeout(600)  # the first test runs all cases
LOADS = {
    "float64": "np.arange(210_000.0).reshape(700, 300)",
    "Fortran order": "np.asfortranarray(np.arange(210_000, dtype='>i8').reshape(700, 300))",
    "structured": "np.zeros(100_000, [('a', 'f8'), ('b', 'u1'), ('c', 'S7')])",
    "texts": "np.array([f'text {i}' for i in range(50_000)])",
    "booleans": "np.ones((3, 1 << 20), bool)",
    "one dimension": "np.arange(300_000)",
    "no dimension": "np.array(b'x' * (2 << 20))",
    "many fields": "np.zeros(20_000, [(f'name {i}' * 9, 'u1') for i in range(90)])",
}


HELPERS = (
    PRELUDE
    + """
def attempt(call, *args, **settings):
    try:
        print(described(call(*args, **settings)))
    except Exception as error:
        print(type(error).__name__, error)
"""
)
ARRAYS = """
    x = {}
    np.save("x.npy", x)
    y, z = np.load("x.npy"), np.load("x.npy")
    print(described(y), described(np.load(open("x.npy", "rb"))), described(np.load(open("x.npy", "rb", buffering=0))))
    y[...] = y[..., ::-1] if y.ndim else y
    print(described(y), described(z), described(np.load("x.npy")))
    """
ARCHIVES = {
    "aligned": "np.savez('x.npz', array_0000=large, array_0001=fortran, small=small)",
    "not aligned": "np.savez('x.npz', a=large, bb=large, ccc=fortran, small=small)",
    "compressed": "np.savez_compressed('x.npz', a=large)",
}
ARCHIVE = """
    large, small = np.arange(210_000.0).reshape(700, 300), np.arange(3)
    fortran = np.asfortranarray(large)
    {}
    with np.load("x.npz") as z:
        for key in [*z, *(f"{{key}}.npy" for key in z)]:
            print(key, described(z[key]))
        z[next(iter(z))][...] = 0
        print({{key: described(z[key]) for key in z}})
        attempt(z.__getitem__, "none")
    with open("x.npz", "rb") as file:
        print([described(x) for x in np.load(file).values()], file.tell())
    """
DAMAGED = {
    "truncated": "os.truncate('x.npy', 1_200_000)",
    "a wrong header": "open('x.npy', 'r+b').write(b'\\x93NUMPY\\x01\\x00\\xff\\xff{')",
    "objects": "np.save('x.npy', np.array([{'a': i} for i in range(200_000)], object))",
    "a pickle": "open('x.npy', 'wb').write(b'\\x80\\x04N.' + bytes(2 << 20))",
    "empty": "open('x.npy', 'wb')",
    "missing": "os.unlink('x.npy')",
    "a folder": "os.unlink('x.npy'), os.mkdir('x.npy')",
    "a bad archive": "(np.savez('x.npz', array_0000=np.ones(1 << 18)), os.replace('x.npz', 'x.npy'),"
    " opened := os.open('x.npy', os.O_WRONLY), os.pwrite(opened, b'x', 90_000), os.close(opened))",
    "another keyword": "more.update(nonsense=1)",
}
ERRORS = """
    more = {{}}
    np.save("x.npy", np.zeros(1 << 18))
    {}
    def load(**settings):
        found = np.load("x.npy", **settings, **more)
        return found["array_0000"] if hasattr(found, "files") else found
    for settings in {{}}, {{"allow_pickle": True}}, {{"mmap_mode": "r"}}, {{"max_header_size": 10}}:
        attempt(load, **settings)
    """
OTHERS = {
    "several arrays": """
        with open("x.npy", "wb") as file:
            for x in (np.arange(200_000.0), np.ones(3), np.zeros(200_000)):
                np.save(file, x)
            file.write(b"end")
        with open("x.npy", "rb") as file:
            print([(described(np.load(file)), file.tell()) for _ in range(3)], file.read())
        with open("x.npy", "rb") as file:
            print(described(np.fromfile(file, "f8", 150_000, offset=128)), file.tell(), file.read(5))
        print(described(np.fromfile("x.npy", "u1")), described(np.fromfile("x.npy", "f8", offset=128)))""",
    "fromfile": """
        import pathlib
        open("x.npy", "wb").write(bytes(range(256)) * 8000 + b"end")
        open("x.txt", "w").write("7 " * 600_000)
        print(described(np.fromfile("x.txt", int, sep=" ")), described(np.fromfile("x.txt", int, 3, " ")))
        for given in (
            dict(dtype="2f4", count=200_000), dict(dtype="<i4"), dict(dtype="S0"), dict(count=1 << 20),
            dict(dtype=object, count=200_000), dict(dtype="f8", count=200_000), dict(dtype="f8", count=0),
            dict(dtype="f8", count=-7), dict(dtype="O,f8"), dict(dtype="u1", offset=5), dict(dtype="f8", offset=3),
            dict(dtype="u1", offset=-5), dict(dtype="f8,u1"), dict(dtype="u1", like=np.ones(1)),
            dict(dtype="u1", offset=1 << 40), dict(dtype="u1", nonsense=1),
        ):
            with open("x.npy", "rb") as file:
                file.seek(8)
                for place in ("x.npy", pathlib.Path("x.npy"), b"x.npy", file):
                    attempt(np.fromfile, place, **given)
                print(file.tell())""",
    "safetensors": """
        import json
        import safetensors.numpy as st
        from safetensors import safe_open
        large = np.arange(210_000.0).reshape(700, 300)
        arrays = {"b": large, "h": large.astype("f2"), "a": np.arange(5, dtype="i2"), "e": np.zeros((0, 3))}
        st.save_file(arrays, "x", metadata={"step": "7"})
        found = st.load_file("x")
        print([(name, described(found[name])) for name in found])
        found["b"][:] = 0
        print({name: described(value) for name, value in st.load_file(filename="x").items()})
        with safe_open("x", "np") as file:
            print(type(file) is safe_open, isinstance(file, safe_open), issubclass(type(file), safe_open))
            print(file.metadata(), described(file.get_tensor("b")), described(file.get_slice("b")[2:5, 1:]))
        whole = open("x", "rb").read()
        length = int.from_bytes(whole[:8], "little")
        with open("spaced", "wb") as file:  # onecopy refuses such a header
            file.write((length + 1).to_bytes(8, "little") + b" " + whole[8:])
        print({name: described(value) for name, value in st.load_file("spaced").items()})
        for kind, size in ("F64", 8), ("BF16", 2), ("F8_E4M3", 1), ("C64", 8), ("U8", 1):
            for first in 8, 3:
                end = first + (size << 20)
                header = json.dumps({"a": {"dtype": "U8", "shape": [first], "data_offsets": [0, first]},
                                     "b": {"dtype": kind, "shape": [1 << 20], "data_offsets": [first, end]}})
                header += " " * (-len(header) % 8)
                data = (bytes(range(256)) * 40_000)[:end]
                open("y", "wb").write(len(header).to_bytes(8, "little") + header.encode() + data)
                for name in "ab":
                    attempt(lambda: st.load_file("y")[name])
        for damage in (1_000_000, 100, 0):
            os.truncate("x", damage)
            attempt(st.load_file, "x")
        for wrong in (dict(), dict(filename="none"), dict(filename=3), dict(filename="x", nonsense=1)):
            attempt(st.load_file, **wrong)""",
    "parts": """
        import multiprocessing as mp
        def fill(i):
            m = np.load("x.npy", mmap_mode="r+"); m[i * 65536 : (i + 1) * 65536] = i + 1; m.flush()
        if __name__ == "__main__":
            np.save("x.npy", np.zeros(1 << 20)); a = np.load("x.npy")
            workers = [mp.get_context("fork").Process(target=fill, args=(i,)) for i in range(16)]
            [w.start() for w in workers]; [w.join() for w in workers]
            print(sorted(set(np.fromfile("x.npy", offset=128).tolist())), described(a))""",
    "one copy": """
        import multiprocessing as mp, time
        def load(i):
            x = np.load("x.npy"); barrier.wait(); total = x.sum()
            time.sleep(2)  # the run looks at its processes every quarter of a second, and less often if that takes long
            barrier.wait()
            return float(total)
        if __name__ == "__main__":
            np.save("x.npy", np.ones(1 << 20))
            context = mp.get_context("fork")
            barrier = context.Barrier(3)
            with context.Pool(3) as pool:
                print(pool.map(load, range(3)))""",
    "open for writing": """
        np.save("x.npy", np.zeros(1 << 18))
        file = open("x.npy", "r+b")
        a = np.load("x.npy")
        file.seek(128 + 8); file.write(b"\\xff" * 1_000_000); file.flush()
        print(described(a), described(np.load("x.npy")))""",
}
OF_JOBLIB = {
    "joblib": """
        import joblib
        large = np.arange(210_000.0).reshape(700, 300)
        class Sub(np.ndarray):
            pass
        values = {
            "a": large, "f": np.asfortranarray(large), "swapped": large.astype(">f8"), "sub": large.view(Sub),
            "o": np.array([1, None, "x"] * 50_000, object), "memmap": None, "n": [large[:3], "text", 7],
            "s": np.zeros(100_000, [("a", "f8"), ("b", "u1")]), "0": np.array(3.5), "empty": np.zeros((0, 5)),
        }
        joblib.dump(values, "x")
        found = joblib.load("x")
        print({key: described(found[key]) for key in found})
        found["a"][:] = found["f"][:] = 0
        with open("x", "rb") as file:
            print({key: described(value) for key, value in joblib.load(file).items()}, file.tell())
        joblib.dump(values, "z", compress=3)
        print({key: described(value) for key, value in joblib.load("z").items()})
        print(type(joblib.load("x", mmap_mode="r")["a"]))
        for damage in (1_000_000, 100, 0):
            os.truncate("x", damage)
            attempt(lambda: joblib.load("x").keys())""",
    "old joblib": """
        import joblib
        from joblib.numpy_pickle import NumpyPickler
        make = NumpyPickler._create_array_wrapper
        def as_before_1_2(self, array):
            made = make(self, array)
            made.numpy_array_alignment_bytes = None
            return made
        NumpyPickler._create_array_wrapper = as_before_1_2
        for length in range(9):
            joblib.dump(["x" * length, np.arange(200_000.0)], "x")
            print(described(joblib.load("x")[1]))""",
    "nested": """
        import joblib
        class Ensemble:
            def __setstate__(self, state):
                self.__dict__.update(state, base=joblib.load("base"))
        class Copying:
            def __setstate__(self, state):
                self.weights = state["weights"].copy()
        whole, copying = Ensemble(), Copying()
        whole.weights = copying.weights = np.ones(1 << 18)
        joblib.dump(np.zeros(1 << 18), "base"); joblib.dump([whole, np.ones(1 << 18)], "top")
        found, last = joblib.load("top")
        print(described(found.base), described(found.weights), described(last))
        joblib.dump(copying, "copied")
        print(described(joblib.load("copied").weights))""",
}
WRAPPERS = {
    "a file that decodes": """
        class Decoding:
            def __init__(self, file): self.file = file
            def read(self, n=-1): return bytes(b ^ 1 for b in self.file.read(n))
            def seek(self, *a): return self.file.seek(*a)
            def tell(self): return self.file.tell()
            def readline(self): return self.file.readline()
            name, mode = "x.npy", "rb"
            def fileno(self): return self.file.fileno()
        open("y.npy", "wb").write(bytes(b ^ 1 for b in open("x.npy", "rb").read()))
        print(described(np.load(Decoding(open("y.npy", "rb")))))""",
    "a subclass, gzip and bytes": """
        import gzip, io
        class Own(io.BufferedReader):
            pass
        with gzip.open("x.npy.gz", "wb") as file: file.write(open("x.npy", "rb").read())
        for file in Own(io.FileIO("x.npy")), gzip.open("x.npy.gz", "rb"), io.BytesIO(open("x.npy", "rb").read()):
            print(described(np.load(file)))""",
    "a temporary file": """
        import tempfile
        with tempfile.NamedTemporaryFile() as file:
            np.save(file, np.zeros(1 << 18)); file.seek(0); a = np.load(file)
            file.seek(0); np.save(file, np.ones(1 << 18)); file.flush()
            print(described(a))""",
    "one handle": """
        file = open("x.npy", "w+b")
        history = []
        for step in range(3):
            file.seek(0); np.save(file, np.full(1 << 18, float(step))); file.flush(); file.seek(0)
            history.append(np.load(file))
        print([described(a) for a in history])""",
    "no descriptor": """
        arrays = [np.load("x.npy") for _ in range(30)]
        print(len(os.listdir("/proc/self/fd")), len(arrays))""",
    "in memory": """
        x = f"/dev/shm/onecopy-test-{os.getpid()}.npy"
        np.save(x, np.zeros(1 << 18)); b = np.load(x)
        m = np.load(x, mmap_mode="r+"); m[:] = 9; m.flush(); os.unlink(x)
        print(described(b))""",
}
CASES = {
    **{name: ARRAYS.format(value) for name, value in LOADS.items()},
    **{name: ARCHIVE.format(save) for name, save in ARCHIVES.items()},
    **{name: ERRORS.format(damage) for name, damage in DAMAGED.items()},
    **{name: f'np.save("x.npy", np.arange(1 << 18))\n{textwrap.dedent(code)}' for name, code in WRAPPERS.items()},
    **OTHERS,
    **(OF_JOBLIB if find_spec("joblib") else {}),
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Give what a case did under `onecopy run`, which is what it does as a plain program."""
    return same_answers(CASES, tmp_path_factory.mktemp("cases"), prelude=HELPERS)


@pytest.mark.parametrize("name", LOADS)
def test_arrays_of_numpy(done, name):
    assert done(name).shared == {"x.npy": eval(LOADS[name]).nbytes}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_of_numpy(done, name):
    outcome = done(name)
    assert bool(outcome.shared) == (name != "compressed")
    assert ("not aligned in the file" in outcome.reasons) == (name == "not aligned")
    assert any("compressed" in reason for reason in outcome.reasons) == (name == "compressed")


def test_objects_of_joblib(done):
    pytest.importorskip("joblib", reason="joblib is not installed")
    assert done("joblib").shared["x"] > 2 * 210_000 * 8
    assert "in another byte order" in done("joblib").reasons
    assert "not aligned in the file: saved by joblib before 1.2" in done("old joblib").reasons
    assert done("old joblib").shared
    assert done("nested").shared == {"base": 8 << 18, "top": 16 << 18}
    assert done("nested").reasons == {"arrays that the loaded object copied"}


def test_files_of_safetensors(done):
    assert done("safetensors").shared["x"] >= 210_000 * 8
    assert done("safetensors").shared["y"] == 8 << 20
    assert done("safetensors").reasons == {"not aligned in the file"}


@pytest.mark.parametrize("name", [*DAMAGED, *WRAPPERS])
def test_damaged_files_and_file_objects(done, name):
    assert done(name).status == 0


def test_a_file_that_is_open_for_writing_is_read_by_the_original(done):
    assert not done("open for writing").shared
    assert any("open for writing" in reason for reason in done("open for writing").reasons)


@pytest.mark.parametrize("name", ["fromfile", "several arrays", "parts"])
def test_arrays_of_a_file_and_of_several_processes_are_shared(done, name):
    assert done(name).shared


def test_arrays_of_several_processes_are_one_copy(done):
    (group,) = done("one copy").report["shared"]
    assert len(group["pids"]) == 3
    assert group["saved"] <= 2 * group["bytes"]


def test_a_file_that_cannot_be_written_is_mapped_itself(tmp_path):
    code = """
    np.save("x.npy", np.arange(1 << 18))
    a = np.load("x.npy")
    a[0] = 7
    print(described(a), described(np.load("x.npy")))
    with open("x.npy", "ab", buffering=0) as file:
        file.seek(0)
        attempt(np.fromfile, file)
    """
    outcome = same_answer(code, tmp_path, prelude=HELPERS, options=("--map", str(tmp_path)))
    assert outcome.shared == {"x.npy": np.arange(1 << 18).nbytes}
    assert not outcome.reasons
