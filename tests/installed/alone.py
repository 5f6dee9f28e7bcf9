"""What an installed wheel of onecopy-core must do with its own dependencies alone.

Run it as a program, with the interpreter that the wheel is installed in:

    python tests/installed/alone.py

It needs no other file of the checkout and no test tool. A step is a sentence; the first that does not hold ends it with
status 1 and a traceback. `make check-dist` and cibuildwheel run it before they install anything else.
"""

import importlib.metadata
import importlib.util
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import onecopy as oc
from onecopy.memory import proc

MIB = 1 << 20
WEIGHTS = {"encoder.weight": np.arange(4 * MIB, dtype=np.float32).reshape(-1, 1024), "bias": np.full(7, 0.5)}
SCRIPT = Path(sys.executable).with_name("onecopy")


def raises(kind: type[Exception], call) -> Exception:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def the_package_is_the_installed_one(folder: Path) -> None:
    assert oc.__version__ == importlib.metadata.version("onecopy-core")
    home = Path(oc.__file__).parent
    assert home.is_relative_to(sys.prefix), f"{home} is not of this environment: a checkout is in the way"
    for name in ("py.typed", "_core.pyi"):
        assert (home / name).is_file(), f"{name} is missing"
    files = importlib.metadata.files("onecopy-core") or []
    assert any("licenses/LICENSE" in str(file) for file in files), "the licence is missing"


def what_is_saved_opens_as_views_that_cannot_be_written(folder: Path) -> None:
    path = folder / "model.safetensors"
    oc.save(path, WEIGHTS)
    with oc.open(path, verify=True) as model:
        for name, array in WEIGHTS.items():
            assert np.array_equal(model[name], array)
            assert not model[name].flags.writeable
        report = model.warm(verify=True)
        assert report.verified == sum(array.nbytes for array in WEIGHTS.values()), report
        assert model.residency().cached in (None, report.bytes)


def damage_is_told(folder: Path) -> None:
    path = folder / "damaged.safetensors"
    oc.save(path, WEIGHTS)
    data = bytearray(path.read_bytes())
    data[-100 * 4096] ^= 1
    path.write_bytes(data)
    error = raises(oc.ChecksumError, lambda: oc.open(path, verify=True))
    assert "encoder.weight" in str(error)
    path.write_bytes(data[: len(data) // 2])
    raises(oc.FormatError, lambda: oc.open(path))
    assert raises(FileNotFoundError, lambda: oc.open(folder / "none")).filename == str(folder / "none")


def _sum(model: oc.ArrayFile, connection) -> None:
    connection.send(float(model["encoder.weight"].sum(dtype=np.float64)))
    connection.recv()


def processes_hold_one_copy(folder: Path) -> None:
    path = folder / "shared.safetensors"
    oc.save(path, WEIGHTS)
    model = oc.open(path)
    expected = float(WEIGHTS["encoder.weight"].sum(dtype=np.float64))
    for method in ("forkserver", "spawn", "fork"):
        context = multiprocessing.get_context(method)
        pipes = [context.Pipe() for _ in range(2)]
        workers = [context.Process(target=_sum, args=(model, theirs)) for _, theirs in pipes]
        for worker in workers:
            worker.start()
        assert [ours.recv() for ours, _ in pipes] == [expected] * 2, method
        for worker in workers:
            mapped = proc.of_file(proc.smaps(worker.pid), (path.stat().st_dev, path.stat().st_ino), str(path))
            assert mapped, method
            assert sum(region.memory.anonymous for region in mapped) == 0, method
        for (ours, _), worker in zip(pipes, workers, strict=True):
            ours.send("end")
            worker.join(60)
            assert worker.exitcode == 0, method


def one_builds_for_all(folder: Path) -> None:
    store = oc.Store(folder / "store")
    for expected in (True, False):
        artefact = store.get_or_build("seven", lambda path: oc.save(path, {"w": np.arange(7)}))
        assert artefact.built is expected
        assert oc.open(artefact.path)["w"].tolist() == list(range(7))
    for _ in range(2):
        assert oc.share_object(lambda: {"names": ["a", "b"]}, "names", store=store) == {"names": ["a", "b"]}


def scratch_is_written_sealed_and_named(folder: Path) -> None:
    try:
        scratch = oc.scratch((512, 1024), "f4", folder, anywhere=True)
    except OSError as error:  # a file system that cannot reserve, a container without much of a disk
        print(f"skipped: {error}")
        return
    with scratch:
        scratch.array[:] = 3
        scratch.save(folder / "scratch.safetensors")
    with oc.open(folder / "scratch.safetensors") as file:
        assert all((array == 3).all() for array in file.values())


def memory_is_explained(folder: Path) -> None:
    assert f"Process {os.getpid()}" in str(oc.explain(os.getpid()))


def rows_are_in_another_distribution(folder: Path) -> None:
    if importlib.util.find_spec("onecopy_records") is None:
        error = raises(ModuleNotFoundError, lambda: oc.share(["a"]))
        assert "pip install onecopy-records" in str(error), error


def the_command_runs(folder: Path) -> None:
    done = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"onecopy {oc.__version__}\n"), done.stderr
    path = folder / "command.safetensors"
    oc.save(path, WEIGHTS)
    for verb in ("ls", "warm", "verify", "evict"):
        ran = subprocess.run([SCRIPT, verb, path], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{verb}: {ran.stderr}"
    for verb, package in (("fetch", "onecopy-remote"), ("import", "onecopy-records"), ("top", "onecopy-monitor")):
        if importlib.util.find_spec(package.replace("-", "_")) is None:
            ran = subprocess.run([SCRIPT, verb], capture_output=True, text=True, check=False)
            assert (ran.returncode, f"pip install {package}" in ran.stderr) == (2, True), ran.stderr


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for step in (
            the_package_is_the_installed_one,
            what_is_saved_opens_as_views_that_cannot_be_written,
            damage_is_told,
            processes_hold_one_copy,
            one_builds_for_all,
            scratch_is_written_sealed_and_named,
            memory_is_explained,
            rows_are_in_another_distribution,
            the_command_runs,
        ):
            print(step.__name__.replace("_", " "), flush=True)
            step(Path(name))
    print(f"onecopy {oc.__version__} of {Path(oc.__file__).parent} works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
