"""What goes wrong with models and with what was prepacked of them: an error, or a reason, and nothing stays mapped."""

import errno
import os
import re
import resource
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from packages.onnxruntime.tests.sessions import MODES, answer, from_store, is_mapped, make
from tests.support.onnx_models import IDS, words_model

import onecopy as oc
from onecopy.errors import FormatError
from onecopy_onnxruntime import prepacking, sessions
from onecopy_onnxruntime.prepacking import Prepacked


@pytest.mark.parametrize("mode", MODES)
def test_what_onnx_runtime_refuses_it_refuses_itself_and_nothing_stays_mapped(mode, tmp_path, store):
    path = tmp_path / "model.onnx"
    with pytest.raises(Exception, match=r"model\.onnx") as missing:
        oc.onnxruntime.session(path, mode, wait=True, store=store)
    assert type(missing.value).__module__.startswith("onnxruntime")
    model = words_model()
    model.graph.node[1].op_type = "NoSuchOperator"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(Exception, match="NoSuchOperator"):
        oc.onnxruntime.session(path, mode, wait=True, store=store)
    path.write_bytes(b"this is no model" * 100)
    with pytest.raises(Exception, match=r"(?i)protobuf|parse"):
        oc.onnxruntime.session(path, mode, wait=True, store=store)
    assert not is_mapped(path)


@pytest.mark.parametrize("mode", ["direct", "prepacked"])
def test_external_data_that_is_cut_is_refused(mode, tmp_path, store):
    model = make("external", tmp_path)
    os.truncate(tmp_path / "weights.bin", 1000)
    with pytest.raises(Exception, match="out of bounds") as refused:
        oc.onnxruntime.session(model, mode, wait=True, store=store)
    (note,) = refused.value.__notes__
    assert "model.onnx: 'words' needs bytes [0, 256000) of weights.bin, which has 1000 bytes" in note
    assert not is_mapped(tmp_path / "weights.bin")


def test_a_model_that_cannot_be_prepacked_is_not_tried_again(tmp_path, store, monkeypatch):
    model = make("aligned", tmp_path)

    def refuse(recipe, data, saved):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(prepacking, "_save", refuse)
    monkeypatch.setattr(prepacking, "_in_child", prepacking.write)
    for _ in range(2):
        session = oc.onnxruntime.session(model, "prepacked", wait=True, store=store)
        assert session.onecopy.mode == "read"
        assert session.onecopy.reason == (
            "mode 'prepacked' is unavailable: ONNX Runtime cannot save prepacked weights of this model: no such kernel"
        )
        monkeypatch.setattr(prepacking, "_in_child", None)


@pytest.mark.parametrize(
    ("errors", "mode"),
    [
        ([RuntimeError("bad allocation")], "read"),
        ([OSError(errno.EIO, "no device")], "read"),
        ([RuntimeError("no such kernel"), OSError(errno.EIO, "no device")], "read"),
        ([RuntimeError("no such kernel")], "prepacked"),
    ],
    ids=["memory", "disk", "changing", "passing"],
)
def test_short_memory_and_errors_of_the_disk_are_not_remembered_as_the_models(
    errors, mode, tmp_path, store, monkeypatch
):
    model, save, left = make("aligned", tmp_path), prepacking._save, iter(errors)

    def fail(*given):
        for error in left:
            raise type(error)(*error.args)
        return save(*given)

    with monkeypatch.context() as patched:
        patched.setattr(prepacking, "_save", fail)
        patched.setattr(prepacking, "_in_child", prepacking.write)
        session = oc.onnxruntime.session(model, "prepacked", wait=True, store=store)
    assert session.onecopy.mode == mode
    assert "of this model" not in session.onecopy.reason
    assert list(Path(store).glob(".onecopy-*")) == []
    assert oc.onnxruntime.session(model, "prepacked", wait=True, store=store).onecopy.mode == "prepacked"
    assert from_store(store)[0].stat().st_size < 1_000_000  # what was reserved between two attempts is freed


def test_a_model_that_another_process_is_prepacking_is_read(tmp_path, store):
    model, sessions_there = make("aligned", tmp_path), []
    oc.onnxruntime.session(model, "prepacked", wait=True, store=store).close()
    artefacts = oc.Store(store, where="here")
    (key,) = [one.key for one in artefacts.ls() if one.key.startswith("packed weights")]
    artefacts.prune(keys=[key])

    def build(path):
        sessions_there.append(oc.onnxruntime.session(model, "prepacked", store=store))
        path.write_bytes(b"no weights")

    artefacts.get_or_build(key, build)
    assert "another process is prepacking the weights" in sessions_there[0].onecopy.reason


def test_a_digest_that_cannot_be_written_leaves_nothing_and_names_the_file(tmp_path, in_child):
    model = make("aligned", tmp_path)
    recipe = prepacking.Recipe(str(model), (str(model),), {}, (), str(tmp_path))

    def write() -> tuple[str, int]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        with pytest.raises(OSError, match=re.escape(str(tmp_path / "digest.oc"))) as refused:
            recipe._write_digest(tmp_path / "digest.oc")
        return refused.value.errno

    assert in_child(write) == errno.EFBIG
    assert list(tmp_path.glob(".onecopy-*")) == []


def test_a_mode_that_fails_becomes_read_with_the_reason(tmp_path, store):
    """Of an artefact whose model is not one: the session is ONNX Runtime's own."""
    model = make("aligned", tmp_path)
    oc.onnxruntime.session(model, "prepacked", wait=True, store=store).close()
    (artefact,) = from_store(store)
    facts = artefact.stat()
    content = artefact.read_bytes()
    model_size, facts_size = (int.from_bytes(content[at : at + 8], "little") for at in (-32, -24))
    told = content[-32 - facts_size : -32]
    odd = bytes(model_size) + told
    ends = content[-32:-16] + crc32(odd).to_bytes(8, "little") + content[-8:]
    artefact.write_bytes(content[: -32 - facts_size - model_size] + odd + ends)
    os.utime(artefact, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    session = oc.onnxruntime.session(model, "prepacked", wait=True, store=store)
    assert session.onecopy.mode == "read"
    assert "mode 'prepacked' failed: " in session.onecopy.reason
    assert np.array_equal(session.run(None, {"ids": IDS})[0], answer(model))


def test_no_cut_and_no_flip_of_an_artefacts_end_does_harm(tmp_path, store):
    oc.onnxruntime.session(make("aligned", tmp_path), "prepacked", wait=True, store=store).close()
    whole = from_store(store)[0].read_bytes()
    path = tmp_path / "artefact"
    for cut in [*range(1, 200), *range(200, len(whole), 50_000), len(whole)]:
        path.write_bytes(whole[:-cut])
        with pytest.raises(FormatError, match="artefact"):
            Prepacked.read(path)
    for at in range(1, 600):
        path.write_bytes(whole[:-at] + bytes([whole[-at] ^ 0x41]) + whole[len(whole) - at + 1 :])
        with pytest.raises(FormatError, match="artefact"):
            Prepacked.read(path)


def test_no_room_on_the_disk_is_a_reason(tmp_path, monkeypatch, worth_it):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sessions, "free_on", lambda _: 1000)
    session = oc.onnxruntime.session(make("aligned", tmp_path), "auto", wait=True)
    assert session.onecopy.mode == "read"
    assert "has 1.00 kB free" in session.onecopy.reason
