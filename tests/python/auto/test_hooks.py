"""The start of a process of `onecopy run`, and the import of frameworks."""

import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path

from tests.support.children import CHILD_SECONDS, run_python
from tests.support.same_answers import run_shared

import onecopy

OURS = {"onecopy", "onecopy.auto", "onecopy.base", "onecopy.base.lazy", "onecopy.run", "onecopy.run.hooks"}
STARTUP = Path(onecopy.__file__).parent / "run/startup"


def python(code, *, executable=sys.executable, **environment):
    settings = {"capture_output": True, "text": True, "timeout": CHILD_SECONDS}
    command = [executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, check=False, env={"PYTHONPATH": str(STARTUP), **environment}, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_process_loads_six_modules_and_no_framework_and_has_the_same_path():
    code = "import sys; print(*sys.path, sep=':'); print(*sys.modules)"
    plain_path, plain = python(code, ONECOPY_AUTO="0", PYTHONPATH="").splitlines()
    path, modules = python(code).splitlines()
    more = set(modules.split()) - set(plain.split())
    assert (path, {name for name in more if name.startswith("onecopy")}) == (plain_path, OURS)
    assert not more & {"numpy", "torch", "typing", "dataclasses", "json", "re", "click", "onecopy._core"}


def test_numpy_and_small_files_load_no_module_that_maps_or_reports(tmp_path):
    code = f"""
    import os, sys, numpy
    os.chdir({str(tmp_path)!r})
    numpy.savez("small.npz", a=numpy.arange(3))
    numpy.arange(3).tofile("small")
    assert numpy.fromfile("small", int)[1] == numpy.load("small.npz")["a"][1]
    print(*sys.modules)
    """
    plain = set(python(code, ONECOPY_AUTO="0", PYTHONPATH="").split())
    names = ("base.run_constants", "frameworks", "frameworks.hooks", "frameworks.hooks.numpy")
    python_has = {"sitecustomize", "__future__"}  # Debian's interpreters have one, which ours loads; Python's own
    assert set(python(code).split()) - plain == OURS | {f"onecopy.{name}" for name in names} | python_has - plain


def test_functions_are_replaced_when_their_module_is_imported(tmp_path):
    code = """
    import copy, importlib.util, inspect, pickle, sys
    spec = importlib.util.find_spec("numpy")  # as transformers does, to see what is installed
    assert spec.origin.endswith("__init__.py") and "numpy" not in sys.modules
    assert type(spec.loader) is type(importlib.util.find_spec("json").loader)
    import numpy, onecopy.auto
    assert numpy.fromfile.replaced_by_onecopy
    assert numpy.__loader__ is numpy.__spec__.loader and "exec_module" not in vars(numpy.__loader__)
    assert inspect.getsource(numpy)
    assert "offset" in numpy.fromfile.__doc__ and "offset" in str(inspect.signature(numpy.fromfile))
    assert pickle.loads(pickle.dumps(numpy.fromfile)) is copy.deepcopy(numpy.fromfile) is numpy.fromfile
    assert repr(numpy.fromfile) == "<built-in function fromfile>"
    class Reader:
        read = numpy.fromfile  # a function in C, which gets no object
    numpy.arange(1 << 18).tofile(sys.argv[1])
    assert Reader().read(sys.argv[1], int).sum() == sum(range(1 << 18))
    assert onecopy.auto.calls()[-1].shared
    """
    run_shared(code, tmp_path / "x")


def test_functions_are_replaced_also_if_their_module_is_imported_already_and_a_variable_switches_that_off():
    run_python("import numpy, onecopy.auto; import onecopy.auto as again; assert numpy.fromfile.replaced_by_onecopy")
    python("import sys, numpy; assert not hasattr(numpy.fromfile, 'replaced_by_onecopy')", ONECOPY_AUTO="0")


def test_a_module_that_is_missing_stays_missing():
    code = """
    import importlib.util, onecopy.auto
    from onecopy.run import hooks
    hooks.FRAMEWORKS["no_such_module"] = "_numpy"
    assert importlib.util.find_spec("no_such_module") is None
    try:
        import no_such_module
    except ModuleNotFoundError as error:
        print(error.name)
    """
    assert run_python(code) == "no_such_module\n"


def test_a_framework_whose_functions_are_missing_is_left_alone_also_in_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("joblib.py", "def load(path): return path\n")
        archive.writestr("other.py", "")
    code = """
    import importlib.util, sys
    sys.path.insert(0, sys.argv[1])
    import onecopy.auto
    importlib.util.find_spec("joblib")
    import other
    assert onecopy.auto.calls() == ()
    import joblib  # its loader was asked for twice
    assert joblib.load("a") == "a"
    (call,) = onecopy.auto.calls()
    assert call.function == "import joblib" and call.reason.startswith("AttributeError")
    """
    run_python(code, tmp_path / "archive.zip")


def test_a_framework_whose_hook_is_in_a_missing_distribution_runs_as_always_and_is_reported(tmp_path, onecopy_process):
    (tmp_path / "onnxruntime.py").write_text("def InferenceSession(path): return path\n")
    code = """
    import sys
    sys.modules["onecopy_onnxruntime"] = None  # as where it is not installed
    sys.path.insert(0, sys.argv[1])
    import onnxruntime
    print(onnxruntime.InferenceSession("model.onnx"))
    """
    done = onecopy_process("run", "--", sys.executable, "-c", textwrap.dedent(code), tmp_path)
    assert (done.returncode, done.stdout) == (0, "model.onnx\n")
    title, line = done.stderr.splitlines()
    assert title == "onecopy: not shared:"
    assert "import onnxruntime: its models are not shared" in line
    assert line.endswith("pip install onecopy-onnxruntime")


def test_the_sitecustomize_of_the_environment_is_run(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.customized = __file__\n")
    own = str(tmp_path / "sitecustomize.py")
    code = f"import sys; assert customized == {own!r} == sys.modules['sitecustomize'].__file__"
    python(code, PYTHONPATH=f"{STARTUP}:{tmp_path}")


def test_an_environment_without_onecopy_runs_as_always(tmp_path):
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    code = "import sys, importlib.util; print(importlib.util.find_spec('onecopy'), sys.meta_path[0].__name__)"
    out = python(code, executable=str(tmp_path / "venv/bin/python"))
    assert out == "None BuiltinImporter\n"


def test_a_step_that_fails_leaves_the_value_the_error_and_its_context_and_reporting_raises_nothing():
    code = """
    import onecopy.auto
    from onecopy.run import call_log, hooks

    class Owner:
        @staticmethod
        def load(path):
            if path is None:
                raise ValueError("theirs")
            return [path]

    def fails(*args):
        raise KeyError("ours")

    for replacing in (hooks.call_before, hooks.replace_where_shared):
        replacing(Owner, "load", fails)
        assert Owner.load("x") == ["x"]
        try:
            Owner.load(None)
        except ValueError as error:
            assert error.__context__ is None
        Owner.load = staticmethod(Owner.load.__wrapped__)
    assert (hooks.guarded("Owner.save", fails), hooks.guarded("Owner.save", len, "x")) == (None, 1)
    found = [(call.function, call.reason) for call in onecopy.auto.calls()]
    assert found == [("Owner.load", "KeyError: 'ours'"), ("Owner.save", "KeyError: 'ours'")]
    class Error(Exception):
        def __str__(self):
            raise RuntimeError

    for path in (b"bytes", "\\udcff\\0", 5, None):
        call_log.note("f", path, copied=1 << 21, reason="x")
        call_log.note_read("f", path, "x")
    call_log.note_failure("f", Error())
    call_log.append({"a": object()})
    seen = []
    hooks.call_before(Owner, "load", lambda *args: seen.append(args))
    assert (Owner.load("x"), seen) == (["x"], [("x",)])
    """
    run_shared(code)


def test_with_few_mappings_or_descriptors_left_files_are_read_as_always(tmp_path):
    code = """
    import ctypes, os, resource, sys
    import numpy as np
    import onecopy.auto
    np.save(sys.argv[1], np.arange(1 << 18))
    right = np.load(sys.argv[1], mmap_mode="r").sum()

    def reason():
        assert np.load(sys.argv[1]).sum() == right
        return onecopy.auto.calls()[-1].reason

    assert reason() == ""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    opened = [os.open("/", os.O_RDONLY) for _ in range(50)]
    assert "three quarters of the 64 files" in reason()
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)

    most = int(open("/proc/sys/vm/max_map_count").read())
    pages = most * 3 // 4
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    start = libc.mmap(None, ctypes.c_size_t(pages * 4096), 0, 0x22, -1, ctypes.c_long(0))
    for page in range(0, pages, 2):
        assert libc.mprotect(ctypes.c_void_p(start + page * 4096), ctypes.c_size_t(4096), 1) == 0
    onecopy.run.mapped._mappings._due = 0
    assert "three quarters of the %d mappings" % most in reason()
    """
    run_shared(code, tmp_path / "x.npy")
