"""`open(..., pinned=True)` with a stand-in for the NVIDIA driver, and with the driver where there is a GPU."""

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from tests.support import shards
from tests.support.places import ROOT
from tests.support.refusals import os_error

import onecopy as oc

SOURCE = ROOT / "tests/support/fake_cuda.cpp"
FOLDER = ROOT / "build/tests/fake_cuda"
ARRAYS = {"a": np.arange(100_000.0), "b": np.arange(7, dtype=np.int16), "c": np.ones((300, 700), np.float32)}


@pytest.fixture(scope="module")
def driver():
    """The folder of a stand-in for libcuda.so.1."""
    library = FOLDER / "libcuda.so.1"
    if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
        FOLDER.mkdir(parents=True, exist_ok=True)
        new = FOLDER / f"new-{os.getpid()}"
        subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", SOURCE, "-o", new], check=True)
        new.replace(library)
    return FOLDER


@pytest.fixture
def path(tmp_path):
    oc.save(tmp_path / "model.safetensors", ARRAYS)
    return tmp_path / "model.safetensors"


def run(driver, path, code, **environment):
    """Run code in a process with the stand-in; return its output, and what the stand-in was asked for."""
    log = path.with_name("log")
    log.unlink(missing_ok=True)
    libraries = f"{driver}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    own = {"LD_LIBRARY_PATH": libraries, "FAKE_CUDA_LOG": str(log), "ONECOPY_CACHE": str(path.parent / "store")}
    result = subprocess.run(
        [sys.executable, "-c", f"import onecopy as oc\npath = {str(path)!r}\n{code}"],
        env={**os.environ, **own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), log.read_text().splitlines() if log.exists() else []


REGISTERED = ["retain", "register", "synchronize", "unregister", "release"]


def verbs(log):
    return [line.split()[0] for line in log]


def pages(nbytes):
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def test_the_whole_file_is_registered_until_its_last_view_is_gone(driver, path):
    code = """
file = oc.open(path, pinned=True)
print(file.residency().share, file.mode_reason.rpartition("; ")[2])
view = file["b"]
file.close()
print(view.sum(), open(path.replace("model.safetensors", "log")).read().split())
del view
"""
    out, log = run(driver, path, code)
    size = pages(path.stat().st_size)
    assert out == f"1.0 1.64 MB pinned for CUDA\n21 ['retain', '0', 'register', '{size}']"
    assert log == ["retain 0", f"register {size}", "synchronize", f"unregister {size}", "release 0"]


def test_a_selection_registers_its_own_pages_in_the_context_of_the_thread_if_it_has_one(driver, path):
    out, log = run(driver, path, "print(list(oc.open(path, pinned=True, names=['b'])))", FAKE_CUDA_CONTEXT="1")
    assert out == "['b']"
    assert verbs(log) == ["register", "synchronize", "unregister"]
    assert log[0] in (f"register {mmap.PAGESIZE}", f"register {2 * mmap.PAGESIZE}")


@pytest.mark.parametrize("mode", ["copy", "snapshot", "auto"])
def test_every_mode_can_be_pinned(driver, path, mode):
    out, log = run(driver, path, f"print(int(oc.open(path, {mode!r}, pinned=True)['b'].sum()))")
    assert out == "21"
    assert verbs(log) == REGISTERED


def test_each_file_of_a_sharded_model_is_registered(driver, tmp_path):
    index = shards.write_set(tmp_path)
    _, log = run(driver, index, "oc.open(path, pinned=True).close()")
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    assert Counter(verbs(log)) == dict.fromkeys(REGISTERED, 3)


def test_a_forked_child_gives_nothing_back_and_a_handle_in_another_process_registers_nothing(driver, path):
    code = """
import os, pickle
file = oc.open(path, pinned=True)
if os.fork() == 0:
    file.close()
    os._exit(0)
os.wait()
print(pickle.loads(pickle.dumps(file)).mode_reason)
"""
    out, log = run(driver, path, code)
    assert "pinned" not in out
    assert verbs(log) == REGISTERED


@pytest.mark.parametrize(
    ("environment", "code", "text"),
    [
        ({"FAKE_CUDA_FAIL": "init 100"}, errno.ENODEV, "CUDA error 100, no CUDA-capable device is detected"),
        ({"FAKE_CUDA_FAIL": "retain 2"}, errno.ENOMEM, "CUDA error 2"),
        ({"FAKE_CUDA_FAIL": "push 201"}, errno.EIO, "CUDA error 201"),
        ({"FAKE_CUDA_FAIL": "register 801"}, errno.EOPNOTSUPP, "CUDA error 801"),
        ({"FAKE_CUDA_FAIL": "register 712"}, errno.EBUSY, "CUDA error 712"),
        ({"FAKE_CUDA_READ_ONLY": "0"}, errno.EOPNOTSUPP, "hostRegisterReadOnlySupported is 0"),
    ],
)
def test_what_the_driver_refuses_is_an_error_and_nothing_stays(driver, path, environment, code, text):
    attempt = """
try:
    oc.open(path, pinned=True)
except OSError as error:
    print(error.errno, error.filename == path, error.strerror)
maps = open("/proc/self/maps").read()
assert path not in maps
"""
    out, log = run(driver, path, attempt, **environment)
    assert out.startswith(f"{code} True register: ")
    assert text in out
    kept = verbs(log).count("retain") - verbs(log).count("release")
    assert kept == (environment == {"FAKE_CUDA_FAIL": "retain 2"})


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="there is a driver")
def test_without_a_driver_the_error_says_what_is_missing(path):
    with os_error(errno.ENODEV, match="pinned memory requires an NVIDIA GPU and its driver"):
        oc.open(path, pinned=True)


def test_copy_on_write_pages_cannot_be_pinned(path):
    with pytest.raises(ValueError, match="`pinned` and `private` cannot be combined"):
        oc.open(path, pinned=True, private=True)


# A process with CUDA keeps descriptors, threads and mappings until it ends.
@pytest.mark.skipif(not has_driver(), reason="no NVIDIA driver")
@pytest.mark.parametrize("mode", ["map", "copy", "snapshot"])
def test_a_gpu_copies_from_pinned_pages_and_cannot_write_to_them(path, mode):
    pytest.importorskip("torch", reason="torch is not installed")
    code = f"""
import torch
torch.cuda.init()
with oc.open(path, {mode!r}, pinned=True) as file:
    for name in file:
        tensor = torch.from_numpy(file[name])
        sent = tensor.to("cuda", non_blocking=True)
        assert torch.equal(sent.cpu(), tensor)
        print(name, tensor.is_pinned())
        try:
            tensor.copy_(sent + 1)
            torch.cuda.synchronize()
        except Exception as error:
            assert "CUDA" in str(error), error
        else:
            raise AssertionError("the device wrote to the file")
        assert torch.equal(sent.cpu(), tensor)
"""
    out, _ = run(path.parent, path, code)
    assert out == "a True\nb True\nc True"
