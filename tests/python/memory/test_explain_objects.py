"""What `explain` says of sessions, files and arrays: private bytes where they are, and none where not."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

import onecopy as oc
from onecopy import arrays
from onecopy.base.text import size
from onecopy.store.fork import trim_heap
from onecopy_monitor import assert_shared

MIB = 1 << 20


def test_a_session_that_reads_is_reported_what_prepacking_would_save(tmp_path, save_inline):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=20_000, width=256)
    trim_heap()  # else the session takes what former tests have freed, and the process does not grow
    told = oc.explain(oc.onnxruntime.session(model))
    assert told.private > model.stat().st_size
    assert "session(path, 'prepacked', wait=True): prepacked once per machine" in str(told)
    assert told.saves == told.private


def test_what_a_session_grew_by_and_what_the_file_has_are_distinguished(tmp_path, save_inline):
    """And no part is larger than what it is a part of."""
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=8_000, width=128)
    session = oc.onnxruntime.session(model, "auto", store=tmp_path / "store")
    weights = session.onecopy.weights
    session.onecopy = dataclasses.replace(session.onecopy, private=3 * weights)
    told = oc.explain(session)
    assert {one.name: one.private for one in told.findings} == {"weights": 2 * weights, "engine": weights}
    assert f"grew by {size(3 * weights)} with the session, for {size(weights)} of weights in the file" in str(told)
    assert told.saves == 2 * weights
    assert all(one.private <= one.bytes for one in told.findings)


def test_growth_that_is_not_known_is_not_zero(tmp_path, save_inline):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=8_000, width=128)
    session = oc.onnxruntime.session(model)
    session.onecopy = dataclasses.replace(session.onecopy, private=None)
    told = oc.explain(session)
    assert told.private == model.stat().st_size
    assert "the growth of the process is unknown" in str(told)


def test_prepacking_is_not_advised_for_next_to_nothing(tmp_path, save_inline):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=50, width=64)
    session = oc.onnxruntime.session(model)
    session.onecopy = dataclasses.replace(session.onecopy, private=200_000)
    told = oc.explain(session)
    assert "too small to be worth prepacking" in str(told)
    assert told.saves == 0


def test_an_opened_file_is_explained(tmp_path):
    path = tmp_path / "a.safetensors"
    oc.save(path, {"x": np.ones(MIB, np.uint8), "y": np.ones(MIB, np.uint8)})
    with oc.open(path) as mapped:
        assert mapped["x"].sum() == MIB
        told = oc.explain(mapped)
    assert (told.findings[0].kind, told.private) == ("shared", 0)
    assert told.shared >= 2 * MIB
    assert f"{path}: " in str(told)
    assert "once for all processes" in str(told)
    with oc.open(path, mode="copy") as copied:
        told = oc.explain(copied)
    assert (told.findings[0].kind, told.findings[0].advice) == ("heap", "oc.open(path, mode='map')")
    assert told.private >= 2 * MIB
    assert told.saves == told.private
    with pytest.raises(ValueError, match="closed"):
        oc.explain(copied)


def test_pages_of_an_opened_file_that_were_written_to_are_private(tmp_path):
    path = tmp_path / "a.safetensors"
    oc.save(path, {"x": np.ones(MIB, np.uint8)})
    with arrays.open_arrays(path, private=True) as file:
        view = memoryview(file.memory_of("x").view).cast("B")
        view[5] = 7
        told = oc.explain(file)
        assert (told.findings[0].kind, 4096 <= told.private < MIB) == ("written", True)
        view.release()


def test_pages_dropped_since_this_process_warmed_a_file_are_reported(tmp_path):
    path = tmp_path / "a.safetensors"
    oc.save(path, {"x": np.ones(4 * MIB, np.uint8)})
    with oc.open(path) as file:
        oc.evict(file)
        if not (report := file.warm()).complete or not report.filled:
            pytest.skip("the kernel drops pages at once")
        assert "(100 %) were dropped since" not in str(oc.explain(file))
        oc.evict(file)
        if file.residency().cached is None:
            pytest.skip("this kernel does not report what is cached")
        assert "(100 %) were dropped since this process warmed it" in str(oc.explain(file))
    with oc.open(path) as file:
        file.warm(["x"])
        oc.evict(file)
    oc.save(path, {"x": np.zeros(4 * MIB, np.uint8)})
    with oc.open(path) as replaced:
        oc.evict(replaced)
        assert "were dropped since" not in str(oc.explain(replaced))


def test_several_files_are_explained_one_by_one(tmp_path):
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name, key in zip(names, "ab", strict=True):
        oc.save(tmp_path / name, {key: np.ones(MIB, np.uint8)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict(zip("ab", names, strict=True))}))
    with oc.open(index) as several:
        told = oc.explain(several)
    assert sorted(Path(one.path).name for one in told.findings) == names


def test_a_direct_session_is_shared_but_for_what_is_copied(tmp_path, save_inline):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=40_000)
    session = oc.onnxruntime.session(model, "direct")
    told = oc.explain(session)
    assert {one.name: one.kind for one in told.findings}[str(model)] == "shared"
    assert {one.name: one.reason for one in told.findings}["bias"] == "smaller than 1024 bytes"
    assert told.shared > model.stat().st_size - MIB
    assert told.saves == 0
    sharing = assert_shared(session, [os.getpid()])
    assert [str(path) for path in sharing.paths] == [str(model)]


def test_a_session_of_its_own_copies_has_nothing_to_share(tmp_path, save_inline):
    session = oc.onnxruntime.session(save_inline(tmp_path / "model.onnx", aligned=True))
    with pytest.raises(TypeError, match="this Session has no shared files"):
        assert_shared(session, [os.getpid()])


@pytest.mark.parametrize("target", ["text", True, 1.5, [], [1.5]])
def test_what_cannot_be_explained_is_refused(target):
    with pytest.raises(TypeError, match="expected process ids, a session, a module, an opened file or an array"):
        oc.explain(target)


def test_options_of_processes_are_refused_for_objects():
    with pytest.raises(ValueError, match=r"look_in applies to processes only, not to a str"):
        oc.explain("text", look_in=["/"])


def test_an_array_is_explained_by_its_address(tmp_path):
    oc.save(tmp_path / "a.safetensors", {"x": np.ones(MIB, np.uint8)})
    with oc.open(tmp_path / "a.safetensors") as file:
        mapped = oc.explain(file["x"][4096:])
        assert (mapped.findings[0].kind, mapped.private) == ("shared", 0)
        assert mapped.findings[0].path == str(tmp_path / "a.safetensors")
        copied = oc.explain(file["x"].copy())
    assert (copied.findings[0].kind, copied.private) == ("heap", MIB)
    assert str(copied).startswith("ndarray uint8[1048576]: 0 B on pages of files")


def test_records_are_explained(tmp_path):
    with oc.share([{"id": number} for number in range(1000)], "rows", store=tmp_path / "store") as rows:
        explained = oc.explain(rows)
        assert explained.target == f"Table of 1000 rows in {rows.path}"
        assert (explained.findings[0].kind, explained.private) == ("shared", 0)
