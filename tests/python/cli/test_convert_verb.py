"""`onecopy convert` over real files, as a user runs it: in a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.places import GOLDEN
from tests.support.rows import same
from tests.support.safetensors_files import write_safetensors
from tests.support.shards import ARRAYS, write_set
from tests.support.waiting import until

import onecopy as oc
import onecopy.records

pytestmark = pytest.mark.processes


@pytest.fixture
def index(tmp_path):
    (tmp_path / "set").mkdir()
    return write_set(tmp_path / "set")


SOURCES = ["numpy/c_order.npy", "numpy/fortran.npy", "torch/state_dict.pt", "torch/slices.pt", "onnx/external.onnx"]


@pytest.mark.parametrize("source", [*SOURCES, "ort/small.ort"])
def test_any_file_becomes_an_aligned_safetensors_file(onecopy_command, tmp_path, source):
    target = tmp_path / "out.safetensors"
    done = onecopy_command("convert", GOLDEN / source, target, "--skip-unsupported")
    assert done.returncode == 0, done.stderr
    with oc.open(GOLDEN / source) as before, oc.open(target, verify=True) as after:
        assert after.container == "safetensors"
        assert set(after) <= set(before)
        for name in after:
            assert same(after[name], before[name])
            assert after.entry(name).offset % after[name].itemsize == 0
        told = {line.split(": ")[2].split(" (")[0] for line in done.stderr.splitlines()}
        unmapped = json.loads(before.metadata.get("left out", "{}")).values()
        assert told == (set(before) - set(after)).union(*unmapped)
        assert before.metadata.items() <= after.metadata.items()


def test_tied_weights_are_named_and_written_once_on_request(onecopy_command, tmp_path):
    source, target = GOLDEN / "torch/tied.pt", tmp_path / "out.safetensors"
    with oc.open(source) as before:
        first, second, *more = before
        assert np.shares_memory(before[first], before[second])
        nbytes = before[first].nbytes
    done = onecopy_command("convert", source, target)
    assert f"{second} has the same bytes as {first} in the source: written again" in done.stderr
    assert "--drop-tied" in done.stderr
    assert list(oc.open(target)) == [first, second, *more]
    facts = json.loads(onecopy_command("convert", source, target, "--drop-tied", "--force", "--json").stdout)
    assert (facts["tied"], facts["tied_nbytes"], facts["tied_dropped"]) == ({second: first}, nbytes, True)
    with oc.open(target) as file:
        assert list(file) == [first, *more]
        assert file.metadata[second] == first
    write_safetensors(source := tmp_path / "empty.safetensors", {"a": b"", "b": b"", "c": b"x"})
    facts = json.loads(onecopy_command("convert", source, target, "--drop-tied", "--force", "--json").stdout)
    assert (facts["tied"], facts["arrays"]) == ({}, 3)  # arrays without bytes share none


@pytest.fixture(params=["onnx", "npz", "pt"])
def incomplete(request, tmp_path):
    """Return a file of the array w, its other entries with reasons; each was made by the library of its format."""
    path = tmp_path / f"source.{request.param}"
    if request.param == "npz":
        np.savez(path, w=np.ones((2, 2), np.float32), o=np.array([{}], object))
        return path, {"o": "Python objects or structures"}
    if request.param == "pt":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        odd = {"c": torch.ones(2, dtype=torch.complex64).conj(), "model": {"s": torch.eye(2).to_sparse()}, "epoch": 3}
        torch.save({"w": torch.ones(2, 2), "lr": [0.1, 0.2], **odd}, path)
        plain = "numbers, texts and other values"
        lazy, sparse = "conjugated or negated", "torch._utils._rebuild_sparse_tensor"
        return path, {"c": lazy, "model.s": sparse, "epoch": plain, "lr": plain}
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import TensorProto, helper, numpy_helper

    one, at = (numpy_helper.from_array(np.ones(1, kind), "sparse") for kind in (np.float32, np.int64))
    weights = [
        numpy_helper.from_array(np.ones((2, 2), np.float32), "w"),
        helper.make_tensor("half", TensorProto.FLOAT16, [2, 2], [1.0, 2.0, 3.0, 4.0]),
        helper.make_tensor("four bits", TensorProto.INT4, [4], [1, 2, 3, 4]),
        helper.make_tensor("indices", TensorProto.INT64, [2], [1, 2]),
        numpy_helper.from_array(np.array(["cat"], object), "labels"),
    ]
    sides = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])]
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], sides, weights)
    graph.sparse_initializer.append(helper.make_sparse_tensor(one, at, [4]))
    onnx.save(helper.make_model(graph), path)
    raw = dict.fromkeys(("half", "four bits", "indices"), "not stored as raw bytes")
    return path, {**raw, "labels": "of text", "sparse": "sparse"}


def test_what_would_be_missing_is_an_error_that_names_it_or_left_out_on_request(onecopy_command, tmp_path, incomplete):
    source, missing = incomplete
    target = tmp_path / "out.safetensors"
    with oc.open(source) as file:
        assert list(file) == ["w"]
        found = json.loads(file.metadata["left out"])
        assert {name: why for why, names in found.items() for name in names} == missing
    done = onecopy_command("convert", source, target)
    assert (done.returncode, done.stdout) == (1, "")
    assert all(f"'{name}' ({why})" in done.stderr for name, why in missing.items())
    assert f"{len(missing)} of {len(missing) + 1} entries cannot be written" in done.stderr
    assert "--skip-unsupported" in done.stderr
    assert not target.exists()
    done = onecopy_command("convert", source, target, "--skip-unsupported")
    assert done.returncode == 0, done.stderr
    assert set(done.stderr.splitlines()) == {f"onecopy: left out: {name} ({why})" for name, why in missing.items()}
    assert list(oc.open(target)) == ["w"]
    done = onecopy_command("convert", source, target, "--force", "--names", "[wW]", "--json")  # all that were chosen
    assert (done.returncode, json.loads(done.stdout)["left_out"]) == (0, {})
    assert onecopy_command("convert", target, tmp_path / "again.safetensors").returncode == 0


def test_a_set_becomes_one_file(onecopy_process, tmp_path, index):
    target = tmp_path / "one.safetensors"
    done = onecopy_process("convert", index, target, "--align", "4KiB")
    assert (done.returncode, done.stderr) == (0, "")
    assert ": 6 arrays, 14.4 kB, from safetensors set in " in " ".join(done.stdout.split())
    with oc.open(target, verify=True) as file:
        assert list(file) == list(ARRAYS)
        assert all(same(file[name], array) for name, array in ARRAYS.items())
        assert all(entry.offset % 4096 == 0 for entry in file.entries)
        assert file.metadata["by"] == "us"


def test_names_choose(onecopy_command, tmp_path, index):
    target = tmp_path / "some.safetensors"
    facts = json.loads(onecopy_command("convert", index, target, "--names", "*.[12]", "--json").stdout)
    assert (facts["arrays"], facts["nbytes"], facts["left_out"]) == (2, 4800, {})
    done = onecopy_command("convert", index, target, "--force", "--names", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert "none of the 6 arrays in " in done.stderr
    assert list(oc.open(target)) == ["layer.1", "layer.2"]


def test_a_target_that_exists_is_replaced_only_with_force(onecopy_command, tmp_path, index):
    target, dangling = tmp_path / "mine", tmp_path / "dangling"
    target.write_text("mine")
    dangling.symlink_to(tmp_path / "nowhere")
    for path in (target, dangling):
        done = onecopy_command("convert", index, path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"onecopy: {path}: the file exists: use --force to replace it\n"
    assert target.read_text() == "mine"
    assert onecopy_command("convert", index, target, "--force").returncode == 0
    assert onecopy_command("convert", target, target, "--align", "2MiB", "--force").returncode == 0  # by itself
    with oc.open(target) as file:
        assert file.entry("layer.0").offset == 2 << 20
        assert same(file["layer.0"], ARRAYS["layer.0"])


UNKNOWN = {
    "gguf/small.gguf": ("q8_0", "Q8_0"),
    "onnx/small.onnx": ("i4", "INT4"),
    "numpy/complex128.npy": ("array", "<c16"),
}


@pytest.mark.parametrize("source", UNKNOWN)
def test_types_that_safetensors_has_not_are_refused_by_name_left_out_or_written_as_bytes(
    onecopy_command, tmp_path, source
):
    source, target, (name, dtype) = GOLDEN / source, tmp_path / "out", UNKNOWN[source]
    done = onecopy_command("convert", source, target)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    for said in ("entries cannot be written: ", f"'{name}' ({dtype})", "--unknown bytes"):
        assert said in done.stderr
    assert not target.exists()
    done = onecopy_command("convert", source, target, "--skip-unsupported", "--json")
    if len(oc.open(source)) == 1:
        assert (done.returncode, target.exists()) == (1, False)
        assert "1 of 1 entries cannot be written" in done.stderr
    else:
        assert json.loads(done.stdout)["left_out"][name] == dtype
        assert name not in oc.open(target)
    done = onecopy_command("convert", source, target, "--unknown", "bytes", "--skip-unsupported", "--force")
    assert done.returncode == 0, done.stderr
    with oc.open(source) as before, oc.open(target, verify=True) as after:
        assert list(after) == list(before)
        forms = json.loads(after.metadata["unknown_types"])
        assert f"{name} ({forms[name]['dtype']})" in done.stderr
        for entry in before.entries:
            if entry.name in forms:
                assert (after.entry(entry.name).dtype, after[entry.name].tobytes()) == (
                    "U8",
                    before[entry.name].tobytes(),
                )
                assert forms[entry.name] == {"dtype": entry.dtype, "shape": list(entry.shape)}
            else:
                assert same(after[entry.name], before[entry.name])


WRONG = {
    "missing out": (1, "missing: "),
    "text out": (1, "text"),
    "rows.oc out": (1, "cannot convert a file of kind 'records'"),
    "w.npy no/folder/out": (1, "no/folder"),
    "w.npy out --align 100": (1, "align"),
    "w.npy out --align many": (2, "--align"),
    "w.npy": (2, "TARGET"),
}


@pytest.mark.parametrize("arguments", WRONG)
def test_what_cannot_be_done_is_one_line(onecopy_command, tmp_path, arguments):
    (tmp_path / "text").write_text("once upon a time there was a file")
    onecopy.records.save(tmp_path / "rows.oc", ["a"])
    np.save(tmp_path / "w.npy", np.ones(3))
    status, words = WRONG[arguments]
    done = onecopy_command("convert", *arguments.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert words in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.oc", "text", "w.npy"]


@pytest.mark.slow
def test_the_heap_does_not_grow_with_the_file(tmp_path, python):
    np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float32, (75_000_000,)).flush()  # 300 MB of holes
    code = """
    import resource, sys
    resource.setrlimit(resource.RLIMIT_DATA, (200 << 20,) * 2)
    from onecopy.cli import main
    sys.exit(main(["convert", *sys.argv[1:]]))
    """
    python(code, tmp_path / "big.npy", tmp_path / "big.safetensors")
    assert (tmp_path / "big.safetensors").stat().st_size > 300_000_000


def is_writing(pid: int, folder: Path) -> bool:
    """Report whether a process has an unnamed or a hidden file open in a folder."""
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            name = str(link.readlink())
            if name.startswith(str(folder)) and (name.endswith("(deleted)") or "/." in name):
                return True
    return False


@contextlib.contextmanager
def writing(source: Path, target: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Convert a file in another process, which has begun to write in the block."""
    command = [sys.executable, "-m", "onecopy", "convert", str(source), str(target), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: process.poll() is not None or is_writing(process.pid, target.parent), "the output of the process")
        assert process.poll() is None
        yield process


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_conversion_that_is_ended_leaves_the_target_as_it_was(tmp_path, end, unnamed_files):
    source, target = tmp_path / "big.npy", tmp_path / "target"
    np.lib.format.open_memmap(source, "w+", np.float32, (250_000_000,)).flush()  # 1 GB of holes
    target.write_text("mine")
    with writing(source, target, "--force") as process:
        process.send_signal(end)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert target.read_text() == "mine"
    left = {path.name for path in tmp_path.iterdir()} - {"big.npy", "target"}
    assert not left or (end == signal.SIGKILL and not unnamed_files)  # one hidden file, which the next save sweeps


@pytest.mark.slow
def test_a_source_that_is_truncated_meanwhile_is_an_error_and_no_file_of_zeros(tmp_path):
    source, target = tmp_path / "big.npy", tmp_path / "target"
    np.save(source, np.ones(100_000_000, np.float32))
    with writing(source, target) as process:
        os.truncate(source, 4096)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "big.npy" in told
    assert not target.exists()
