"""What `explain` says of sessions, modules and processes: private bytes where they are, and none where not."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tests.onnx_models import save_inline

import onecopy as oc
from onecopy._building import trim_heap

MIB = 1 << 20


def test_a_session_that_reads_is_told_what_packing_would_save(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=20_000, width=256)
    trim_heap()  # else the session takes what former tests have freed, and the process does not grow
    told = oc.explain(oc.onnxruntime.session(model))
    assert told.private > model.stat().st_size
    assert "packed once per host" in str(told)
    assert told.saves == told.private


def test_a_direct_session_is_shared_but_for_what_is_copied(tmp_path):
    model = save_inline(tmp_path / "model.onnx", aligned=True, rows=40_000)
    session = oc.onnxruntime.session(model, "direct")
    told = oc.explain(session)
    assert {one.name: one.kind for one in told.findings}[str(model)] == "shared"
    assert {one.name: one.reason for one in told.findings}["bias"] == "smaller than 1024 bytes"
    assert told.shared > model.stat().st_size - MIB
    assert told.saves == 0
    sharing = oc.assert_shared(session, [os.getpid()])
    assert [str(path) for path in sharing.paths] == [str(model)]


def test_a_session_of_its_own_copies_has_nothing_to_share(tmp_path):
    session = oc.onnxruntime.session(save_inline(tmp_path / "model.onnx", aligned=True))
    with pytest.raises(TypeError, match="nothing of this Session is in a file"):
        oc.assert_shared(session, [os.getpid()])


def test_another_process_is_explained_by_its_maps(tmp_path):
    np.save(tmp_path / "data.npy", np.zeros(MIB, np.uint8))
    program = (
        "import numpy as np, sys; a = np.load(sys.argv[1], mmap_mode='c'); a[:8192] = 1;"
        "heap = np.ones(50 << 20, 'u1'); print(flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "data.npy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    told = oc.explain(child.pid)
    child.communicate(timeout=30)
    found = {one.name: one for one in told.findings}
    file = found[str(tmp_path / "data.npy")]
    assert file.kind == "written"
    assert 8192 <= file.private <= 4 * 4096
    assert found["anonymous memory"].private > 50 * MIB
    with pytest.raises(ProcessLookupError):
        oc.explain(child.pid)


@pytest.mark.parametrize("target", ["text", None, True, 1.5])
def test_what_cannot_be_explained_is_refused(target):
    with pytest.raises(TypeError, match="a session, a module or a process id"):
        oc.explain(target)
