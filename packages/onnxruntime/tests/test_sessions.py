"""The ladder: every rung gives ONNX Runtime's own numbers, says what it is, and the kernel agrees."""

import contextlib
import itertools
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from packages.onnxruntime.tests.sessions import MODES, PREPACKING_OFF, answer, from_store, is_mapped, make
from tests.support.onnx_models import IDS, save_inline
from tests.support.places import DATA, needs

import onecopy as oc
from onecopy.base.text import size
from onecopy_onnxruntime import options as session_options, prepacking, sessions

onnxruntime = pytest.importorskip("onnxruntime")

REAL = DATA / "onnx"


@pytest.mark.parametrize("mode", MODES)
def test_every_rung_gives_the_numbers_of_onnx_runtime(model, mode, store, worth_it):
    with oc.onnxruntime.session(model, mode, wait=True, store=store) as session:
        assert session.onecopy.requested == mode
        assert session.onecopy.mode == {"auto": "prepacked"}.get(mode, mode)
        prepacked = session.onecopy.mode != "direct"
        assert np.array_equal(
            session.run(None, {"ids": IDS})[0], answer(model, **({} if prepacked else {PREPACKING_OFF: "1"}))
        )


def test_the_usual_mode_is_onnx_runtime_untouched(model):
    session = oc.onnxruntime.session(model)
    assert isinstance(session, onnxruntime.InferenceSession)
    assert session.onecopy.mode == "read"
    assert session.onecopy.reason.startswith("the default: ONNX Runtime works as usual")
    assert "mode='auto' shares weights that were prepacked once per machine" in str(session.onecopy)
    assert oc.onnxruntime.session(model, "read").onecopy.reason == "as requested"
    with pytest.raises(RuntimeError, match="does not have"):
        session.get_session_options().get_session_config_entry(PREPACKING_OFF)


@pytest.mark.parametrize("kind", ["aligned", "external", "ort"])
def test_direct_maps_the_file_until_it_is_closed(kind, tmp_path):
    model = make(kind, tmp_path)
    holder = tmp_path / "weights.bin" if kind == "external" else model
    session = oc.onnxruntime.session(model, "direct")
    assert str(holder) in [file.path for file in session.onecopy.mapped]
    assert is_mapped(holder)
    wanted = session.run(None, {"ids": IDS})[0]
    session.close()
    session.close()
    assert not is_mapped(holder)
    assert wanted.sum() != 0
    with pytest.raises(ValueError, match="closed"):
        session.run(None, {"ids": IDS})


@pytest.mark.parametrize("width", [128, 255, 256])
def test_direct_reports_what_is_copied(tmp_path, width):
    session = oc.onnxruntime.session(save_inline(tmp_path / "model.onnx", aligned=True, width=width), "direct")
    copied = [("bias", "smaller than 1024 bytes")] if width < 256 else []
    assert [(weight.name, weight.reason) for weight in session.onecopy.copied] == copied
    assert session.onecopy.weights == 4 * (500 * width + 3 * width * width + width)
    assert (f"bias, {size(4 * width)}: smaller than 1024 bytes" in str(session.onecopy)) == bool(copied)


def test_direct_uses_weights_in_place(tmp_path):
    """Outputs follow when the file is written to: there is no other copy."""
    model = make("aligned", tmp_path)
    with oc.Mapping(model) as mapping:
        tensors = {row[0]: row for row in oc._core.parse_onnx(mapping.core)["tensors"]}
    session = oc.onnxruntime.session(model, "direct")
    before = session.run(None, {"ids": IDS})[0]
    with model.open("r+b") as file:
        for name in ("words", "w1"):
            file.seek(tensors[name][5])
            file.write(bytes(tensors[name][6]))
    assert before.std() > 0
    assert np.array_equal(session.run(None, {"ids": IDS})[0], np.ones((7, 128), np.float32))


def test_a_few_weights_that_are_not_aligned_are_copied(tmp_path, store):
    model = save_inline(tmp_path / "model.onnx", aligned=False, rows=50, width=64)  # 60 kB
    session = oc.onnxruntime.session(model, "direct", store=store)
    assert session.onecopy.reason == "as requested"
    assert not store.exists()
    assert "begins at byte" in " ".join(weight.reason for weight in session.onecopy.copied)


def test_direct_copies_what_is_not_aligned_where_nothing_can_be_kept(tmp_path, store, worth_it, monkeypatch):
    monkeypatch.setattr(sessions, "free_on", lambda _: 1000)
    session = oc.onnxruntime.session(make("not aligned", tmp_path), "direct", store=store)
    assert session.onecopy.mode == "direct"
    assert "are misaligned in the file: prepacking needs" in session.onecopy.reason


def test_direct_of_weights_that_are_not_aligned_takes_an_aligned_copy(tmp_path, store, worth_it):
    model = make("not aligned", tmp_path)
    first = oc.onnxruntime.session(model, "direct", store=store)
    assert first.onecopy.mode == "direct"
    assert "misaligned in the file: process" in first.onecopy.reason
    assert "begins at byte" in first.onecopy.copied[0].reason
    first.close()
    assert {child.wait(60) for child in prepacking._background} == {0}
    second = oc.onnxruntime.session(model, "direct", store=store)
    assert "aligned copy" in second.onecopy.reason
    assert [file.path for file in second.onecopy.mapped] == [str(path) for path in from_store(store)]
    assert second.onecopy.copied == ()


def test_the_first_session_reads_while_a_child_prepacks_for_the_next(model, store):
    first = oc.onnxruntime.session(model, "prepacked", store=store)
    assert first.onecopy.mode == "read"
    assert "is prepacking the weights in the background" in first.onecopy.reason
    second = oc.onnxruntime.session(model, "prepacked", store=store)
    assert second.onecopy.mode in ("read", "prepacked")
    assert {child.wait(60) for child in prepacking._background} == {0}
    third = oc.onnxruntime.session(model, "prepacked", store=store)
    assert third.onecopy.mode == "prepacked"
    assert third.onecopy.reason == "as requested"
    (artefact,) = from_store(store)
    numbers = first.run(None, {"ids": IDS})[0]
    first.close()
    second.close()
    third = oc.onnxruntime.session(model, "prepacked", store=store)
    assert [file.path for file in third.onecopy.mapped] == [str(artefact)]
    assert np.array_equal(numbers, third.run(None, {"ids": IDS})[0])


def test_a_model_of_small_weights_is_read_and_not_prepacked_again(tmp_path, store):
    path = save_inline(tmp_path / "small.onnx", aligned=True, rows=4, width=4, layers=1)
    for _ in range(2):
        session = oc.onnxruntime.session(path, "prepacked", wait=True, store=store)
        assert session.onecopy.mode == "read"
        assert "1,024 bytes" in session.onecopy.reason
    assert "packed weights of" in " ".join(one.key for one in oc.Store(store).ls())


def test_another_path_with_the_same_content_is_prepacked_already(tmp_path, store):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    oc.onnxruntime.session(save_inline(tmp_path / "one/model.onnx", aligned=True), "prepacked", wait=True, store=store)
    built = from_store(store)
    second = save_inline(tmp_path / "two/model.onnx", aligned=True)
    assert oc.onnxruntime.session(second, "prepacked", wait=True, store=store).onecopy.mode == "prepacked"
    assert from_store(store) == built


def test_a_model_that_changed_and_other_options_are_prepacked_anew(tmp_path, store):
    model = make("aligned", tmp_path)
    oc.onnxruntime.session(model, "prepacked", wait=True, store=store)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    oc.onnxruntime.session(model, "prepacked", wait=True, store=store, sess_options=options)
    assert len(from_store(store)) == 2
    without = {"disabled_optimizers": ["MatMulAddFusion"]}
    assert oc.onnxruntime.session(model, "prepacked", wait=True, store=store, **without).onecopy.mode == "prepacked"
    assert len(from_store(store)) == 3
    save_inline(model, aligned=True, rows=400)
    assert oc.onnxruntime.session(model, "prepacked", wait=True, store=store).onecopy.mode == "prepacked"
    assert len(from_store(store)) == 4


@pytest.mark.parametrize("is_readable", [True, False])
def test_auto_leaves_small_models_alone_also_where_the_store_cannot_be_read(tmp_path, store, is_readable):
    if not is_readable:
        store.write_text("no folder")
    session = oc.onnxruntime.session(make("aligned", tmp_path), "auto", wait=True, store=store)
    assert session.onecopy.mode == "read"
    assert "453 kB of weights, and auto prepacks at least 16.8 MB" in session.onecopy.reason
    assert "mode='prepacked' prepacks any model" in session.onecopy.reason
    assert store.exists() == (not is_readable)


def test_auto_takes_what_was_prepacked_however_small(model, store):
    oc.onnxruntime.session(model, "prepacked", wait=True, store=store).close()
    session = oc.onnxruntime.session(model, "auto", store=store)
    assert session.onecopy.mode == "prepacked"
    assert np.array_equal(session.run(None, {"ids": IDS})[0], answer(model))


def test_growth_that_measures_nothing_is_unknown(tmp_path, monkeypatch):
    """The heap had free memory: the process does not grow, though weights are copied."""
    monkeypatch.setattr(sessions, "anonymous_memory", lambda: 5000)
    for mode in ("read", "direct"):
        report = oc.onnxruntime.session(make("aligned", tmp_path), mode).onecopy
        assert report.private is None
        assert "private memory unknown: the heap had free memory" in str(report)
    grows = itertools.count(5000, 256)  # less than the 512 bytes of the bias, which is copied
    monkeypatch.setattr(sessions, "anonymous_memory", lambda: next(grows))
    assert oc.onnxruntime.session(make("aligned", tmp_path), "direct").onecopy.private is None
    grows = itertools.count(5000, 600)
    assert oc.onnxruntime.session(make("aligned", tmp_path), "direct").onecopy.private == 600


def test_without_the_library_the_error_names_what_to_install():
    """The message of Python alone would be: No module named 'onnxruntime'."""
    program = "import sys; sys.modules['onnxruntime'] = None; import onecopy; onecopy.onnxruntime.session('a.onnx')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: oc.onnxruntime requires ONNX Runtime: pip install 'onecopy[onnxruntime]'"


# Entries that a rung sets in its copy of the options.
SET_BY_RUNGS = (
    PREPACKING_OFF,
    "session.use_external_initializer_file_buffers_directly",
    "session.use_memory_mapped_ort_model",
    "session.use_ort_model_bytes_for_initializers",
    "session.model_external_initializers_file_folder_path",
)


def some_options(folder: Path) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_free_dimension_override_by_name("batch", 7)
    return options


def everything_in(options: onnxruntime.SessionOptions) -> dict[str, object]:
    """Return all properties of options, and those entries that the user or a rung might have set."""
    names = (name for name in dir(options) if not name.startswith("_"))
    found = {name: value for name in names if not callable(value := getattr(options, name))}
    for entry in (*SET_BY_RUNGS, "session.set_denormal_as_zero"):
        with contextlib.suppress(RuntimeError):  # it was not set
            found[entry] = options.get_session_config_entry(entry)
    return found


@pytest.mark.parametrize("mode", MODES)
def test_options_are_used_and_not_changed(model, mode, store, tmp_path):
    options = some_options(tmp_path)
    before = everything_in(options)
    assert before["session.set_denormal_as_zero"] == "1"
    assert not before.keys() & set(SET_BY_RUNGS)
    session = oc.onnxruntime.session(model, mode, sess_options=options, wait=True, store=store)
    assert everything_in(options) == before
    assert session.onecopy.mode == {"auto": "read"}.get(mode, mode)

    used = everything_in(session.get_session_options())
    for name in ("intra_op_num_threads", "enable_profiling", "profile_file_prefix", "session.set_denormal_as_zero"):
        assert used[name] == before[name], name
    assert (used.get(PREPACKING_OFF) == "1") == (mode == "direct")

    same = some_options(tmp_path)
    if mode == "direct":
        same.add_session_config_entry(PREPACKING_OFF, "1")
    alone = onnxruntime.InferenceSession(model, same)
    # ONNX Runtime overrides no dimension of an .ort file; prepacked weights come with an ONNX model again.
    assert alone.get_inputs()[0].shape == (["batch"] if model.suffix == ".ort" else [7])
    assert session.get_inputs()[0].shape == ([7] if mode == "prepacked" else alone.get_inputs()[0].shape)
    assert np.array_equal(alone.run(None, {"ids": IDS})[0], session.run(None, {"ids": IDS})[0])
    profiles = [session.end_profiling(), alone.end_profiling()]
    assert sorted(profiles) == sorted(map(str, tmp_path.glob("profile*")))
    assert len(set(profiles)) == 2


@pytest.mark.parametrize("mode", ["direct", "prepacked"])
def test_io_binding_works(model, mode, store):
    session = oc.onnxruntime.session(model, mode, wait=True, store=store)
    binding = session.io_binding()
    binding.bind_cpu_input("ids", IDS)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], session.run(None, {"ids": IDS})[0])


@pytest.mark.parametrize("mode", MODES)
def test_its_file_is_brought_in_meanwhile(model, mode, store, worth_it):
    with oc.onnxruntime.session(model, mode, wait=True, store=store, warm=True) as session:
        report = session.warming.wait()
        assert report.complete
        assert report.bytes > 400_000  # the weights, wherever they are
    assert oc.onnxruntime.session(model, mode, store=store).warming is None


def test_with_prepacking_off_or_other_providers_no_weights_are_prepacked(tmp_path, store):
    off = onnxruntime.SessionOptions()
    off.add_session_config_entry(PREPACKING_OFF, "1")
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    for more, words in (
        ({"sess_options": off}, "disable prepacking"),
        ({"providers": providers}, "CPU execution provider"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # ONNX Runtime warns of the missing provider
            session = oc.onnxruntime.session(make("aligned", tmp_path), "prepacked", wait=True, store=store, **more)
        assert session.onecopy.mode == "read"
        assert words in session.onecopy.reason


OTHER_ENTRIES = (
    r"session\.(inter_op|intra_op|log_|moe|external_data_loader|resource_|optimized_model_|node_partition|execution_mode"
    r"|(collect|record|save|load|debug|use|allow|compile|fail)_|enable_(moe|cpu_mem|mem_pattern|profiling)"
    r"|disable_(cpu_ep|model_compile)|graph_optimization_level|layer_assignment|name_based|max_shape|prepack\."
    r"|strict_workspace|save_)|ep\.(context|cuda|enable)|memory\."
)
"""Entries of threads, logs, other devices and files, and the entries that the modes set themselves."""


def test_each_entry_of_the_installed_onnx_runtime_decides_the_prepacked_form_or_is_known_not_to():
    (library,) = Path(onnxruntime.__file__).parent.glob("capi/onnxruntime_pybind11_state*.so")
    names = re.findall(rb"(?<![\w.])(?:session|optimization|mlas|memory|ep)\.[a-z0-9_.]+(?=\0)", library.read_bytes())
    entries = {name.decode() for name in names}
    known = {*session_options.DECIDING, *session_options.OTHER_THAN_RESULTS}
    assert len(entries & known) >= 20
    assert {name for name in entries - known if not re.match(OTHER_ENTRIES, name)} == set()


@pytest.mark.parametrize("entry", session_options.DECIDING)
def test_each_entry_that_decides_is_part_of_what_identifies_prepacked_weights(entry):
    options = onnxruntime.SessionOptions()
    before = session_options.deciding(options)
    options.add_session_config_entry(entry, "1")
    assert session_options.deciding(options) == before | {entry: "1"}


def test_the_folder_of_a_model_is_its_onnx_file(tmp_path):
    model = make("aligned", tmp_path)
    (tmp_path / "model.safetensors").touch()
    with oc.onnxruntime.session(tmp_path, "direct") as session:
        assert session.onecopy.mode == "direct"
        assert [file.path for file in session.onecopy.mapped] == [str(model)]


def test_an_unknown_mode_is_refused(tmp_path):
    with pytest.raises(ValueError, match="mode must be one of 'read', 'direct'"):
        oc.onnxruntime.session("model.onnx", "fast")


@needs(REAL)
@pytest.mark.parametrize("mode", MODES)
def test_a_real_model_answers_alike_on_every_rung(mode, store, worth_it):
    path = REAL / "silero_vad.onnx"
    inputs = {
        "input": np.linspace(-1, 1, 512, dtype=np.float32)[None],
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000, np.int64),
    }
    wanted = onnxruntime.InferenceSession(path).run(None, inputs)
    session = oc.onnxruntime.session(path, mode, wait=True, store=store)
    for ours, theirs in zip(session.run(None, inputs), wanted, strict=True):
        assert np.allclose(ours, theirs, atol=1e-5)
