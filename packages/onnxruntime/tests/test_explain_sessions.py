"""What `explain` and `assert_shared` say of sessions: private bytes where they are, and none where not."""

import dataclasses
import os

import pytest
from tests.support.onnx_models import save_inline

import onecopy as oc
from onecopy.base.text import size
from onecopy.store.fork import trim_heap
from onecopy_monitor import assert_shared

MIB = 1 << 20


def test_a_session_that_reads_is_reported_what_prepacking_would_save(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=20_000, width=256)
    trim_heap()  # else the session takes what former tests have freed, and the process does not grow
    explained = oc.explain(oc.onnxruntime.session(model))
    assert explained.private > model.stat().st_size
    assert "session(path, 'prepacked', wait=True) prepacks once per machine" in str(explained)
    assert explained.saves == explained.private


def test_what_a_session_grew_by_and_what_the_file_has_are_distinguished(tmp_path):
    """And no part is larger than what it is a part of."""
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=8_000, width=128)
    session = oc.onnxruntime.session(model, "auto", store=tmp_path / "store")
    weights = session.onecopy.weights
    session.onecopy = dataclasses.replace(session.onecopy, private=3 * weights)
    explained = oc.explain(session)
    assert {one.name: one.private for one in explained.findings} == {"weights": 2 * weights, "engine": weights}
    assert f"grew by {size(3 * weights)} with the session, for {size(weights)} of weights in the file" in str(explained)
    assert explained.saves == 2 * weights
    assert all(one.private <= one.bytes for one in explained.findings)


def test_growth_that_is_not_known_is_not_zero(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=8_000, width=128)
    session = oc.onnxruntime.session(model)
    session.onecopy = dataclasses.replace(session.onecopy, private=None)
    explained = oc.explain(session)
    assert explained.private == model.stat().st_size
    assert "the process grew by an unknown amount" in str(explained)


def test_prepacking_is_not_advised_for_next_to_nothing(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=50, width=64)
    session = oc.onnxruntime.session(model)
    session.onecopy = dataclasses.replace(session.onecopy, private=200_000)
    explained = oc.explain(session)
    assert "too small to be worth prepacking" in str(explained)
    assert explained.saves == 0


def test_a_direct_session_is_shared_but_for_what_is_copied(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=40_000)
    session = oc.onnxruntime.session(model, "direct")
    explained = oc.explain(session)
    assert {one.name: one.kind for one in explained.findings}[str(model)] == "shared"
    assert {one.name: one.reason for one in explained.findings}["bias"] == "smaller than 1024 bytes"
    assert explained.shared > model.stat().st_size - MIB
    assert explained.saves == 0
    sharing = assert_shared(session, [os.getpid()])
    assert [str(path) for path in sharing.paths] == [str(model)]


def test_a_session_of_its_own_copies_has_nothing_to_share(tmp_path):
    session = oc.onnxruntime.session(save_inline(tmp_path / "model.onnx", aligned=True))
    with pytest.raises(TypeError, match="this Session has no shared files"):
        assert_shared(session, [os.getpid()])
