"""`onnxruntime.InferenceSession` with `onecopy.auto`: the answers of ONNX Runtime alone, whatever the options hold."""

import json

import pytest
from packages.onnxruntime.tests.sessions import from_store
from tests.support.onnx_models import IDS, save_external, save_inline, save_ort

onnxruntime = pytest.importorskip("onnxruntime")

PROGRAM = """
import contextlib, hashlib, io, json, os, sys, tempfile
import numpy as np
folder, how = sys.argv[1:]
if how == "auto":
    import onecopy.auto
    from onecopy_onnxruntime import sessions
    sessions.MIN_TO_PREPACK = 1
import onnxruntime as ort

CPU = ["CPUExecutionProvider"]
INSIDE, OUTSIDE = f"{folder}/inside.onnx", f"{folder}/outside.onnx"
IDS = {"ids": np.arange(7)}
zeros = ort.OrtValue.ortvalue_from_numpy(np.zeros((128, 128), np.float32))
weights = bytes(os.path.getsize(f"{folder}/weights.bin"))
LEVELS = ort.GraphOptimizationLevel

def options(**properties):
    made = ort.SessionOptions()
    made.log_severity_level = 3
    for name, value in properties.items():
        setattr(made, name, value)
    return made

def answers(session):
    found = hashlib.sha256(session.run(None, IDS)[0].tobytes()).hexdigest()[:8]
    used = session.get_session_options()
    properties = {n: str(getattr(used, n)) for n in dir(used) if n[0] != "_" and not callable(getattr(used, n))}
    entry = "session.model_external_initializers_file_folder_path"
    with contextlib.suppress(RuntimeError):
        properties[entry] = used.get_session_config_entry(entry)
    meta = session.get_modelmeta()
    facts = {name: getattr(meta, name) for name in dir(meta) if name[0] != "_"}
    given = session._model_path, session._enable_fallback
    is_prepacked[name] = is_prepacked.get(name, False) or hasattr(session, "_opened_by_onecopy")
    return found, session.get_inputs()[0].shape, session.get_providers(), given, facts, properties

def session(made, path=INSIDE, **more):
    return ort.InferenceSession(path, made, providers=CPU, **more)

def after(call, path=INSIDE, **properties):
    def program():
        made = options(**properties)
        call(made)
        return answers(session(made, path))
    return program

def entry(name, value):
    return after(lambda made: made.add_session_config_entry(name, value))

def the_optimized_model():
    with tempfile.TemporaryDirectory() as other:
        path = other + "/optimized.onnx"
        session(options(optimized_model_filepath=path))
        return answers(ort.InferenceSession(open(path, "rb").read(), options(), providers=CPU))

def a_profile():
    with tempfile.TemporaryDirectory() as other:
        made = options(enable_profiling=True, profile_file_prefix=other + "/profile")
        found = session(made)
        found.run(None, IDS)
        events = json.load(open(found.end_profiling()))
        return len(os.listdir(other)), len(events) > 9, made.enable_profiling

def options_changed_later():
    made = options()
    first = session(made)
    made.add_initializer("w1", zeros)
    found = answers(first), answers(session(made))
    first.set_providers(CPU)
    return found, answers(first)

def options_of_a_session():
    made = options()
    made.add_external_initializers(["w1"], [zeros])
    again = session(made, OUTSIDE).get_session_options()
    return answers(session(again, OUTSIDE))

def options_of_a_session_without_settings():
    again = session(options(), OUTSIDE).get_session_options()
    model = open(OUTSIDE, "rb").read()
    os.chdir(folder)
    return answers(session(again, OUTSIDE)), answers(ort.InferenceSession(model, again, providers=CPU))[0]

def a_subclass():
    class Options(ort.SessionOptions):
        __eq__ = lambda self, other: False
    made = Options()
    made.add_initializer("w1", zeros)
    return answers(session(made))

def of_the_default(path):
    return lambda: answers(ort.InferenceSession(path))

PROGRAMS = {
    "no options": of_the_default(INSIDE),
    "no options, external data": of_the_default(OUTSIDE),
    "no options, an .ort model": of_the_default(f"{folder}/model.ort"),
    "options": lambda: answers(session(options(intra_op_num_threads=1))),
    "add_initializer": after(lambda made: made.add_initializer("w1", zeros)),
    "add_external_initializers": after(lambda made: made.add_external_initializers(["w1"], [zeros]), OUTSIDE),
    "add_external_initializers of weights inside": after(lambda made: made.add_external_initializers(["w1"], [zeros])),
    "add_external_initializers_from_files_in_memory": after(lambda made:
        made.add_external_initializers_from_files_in_memory(["weights.bin"], [weights], [len(weights)]), OUTSIDE),
    "add_free_dimension_override_by_name": after(lambda made: made.add_free_dimension_override_by_name("batch", 7)),
    "add_free_dimension_override_by_denotation":
        after(lambda made: made.add_free_dimension_override_by_denotation("DATA_BATCH", 7)),
    "add_provider": after(lambda made: made.add_provider("CPUExecutionProvider", {})),
    "set_provider_selection_policy":
        after(lambda made: made.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)),
    "set_load_cancellation_flag": after(lambda made: made.set_load_cancellation_flag(True)),
    "register_custom_ops_library": after(lambda made: made.register_custom_ops_library("/none.so")),
    "optimized_model_filepath": the_optimized_model,
    "profiling": a_profile,
    "options changed later": options_changed_later,
    "options of a session": options_of_a_session,
    "options of a session without settings": options_of_a_session_without_settings,
    "a subclass of the options": a_subclass,
    "an unknown entry": entry("session.of_a_later_version", "1"),
    "prepacking off": entry("session.disable_prepacking", "1"),
    "denormals": entry("session.set_denormal_as_zero", "1"),
    "another format": entry("session.load_model_format", "ORT"),
    "spinning": entry("session.intra_op.allow_spinning", "0"),
    **{f"level {level}": after(lambda made: None, graph_optimization_level=getattr(LEVELS, level))
        for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")},
    **{f"{name}={value}": after(lambda made: None, **{name: value}) for name, value in (
        ("enable_cpu_mem_arena", False), ("enable_mem_pattern", False), ("enable_mem_reuse", False),
        ("execution_mode", ort.ExecutionMode.ORT_PARALLEL), ("execution_order", ort.ExecutionOrder.PRIORITY_BASED),
        ("inter_op_num_threads", 1), ("log_verbosity_level", 1), ("logid", "words"),
        ("use_deterministic_compute", True))},
    "disabled_optimizers": lambda: answers(session(options(), disabled_optimizers=["MatMulAddFusion"])),
    "disabled_optimizers of no list": lambda: answers(session(options(), disabled_optimizers=7)),
    "no fallback": lambda: answers(session(options(), enable_fallback=0)),
    "read_config_from_model": lambda: answers(session(options(), read_config_from_model=1)),
    "a path of bytes": lambda: answers(session(options(), INSIDE.encode())),
    "no such model": lambda: answers(session(options(), "/none.onnx")),
}
found, is_prepacked = {}, {}
for name, program in PROGRAMS.items():
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found[name] = program()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {str(error)[:100]}"
shared = sum(call.shared for call in onecopy.auto.calls()) if how == "auto" else 0
known = [name for name in dir(ort.SessionOptions) if name[0] != "_"]
print(json.dumps([found, shared, known, is_prepacked]))
"""
COVERED = {
    "add_provider_for_devices": "as add_provider, for devices of plugins",
    "clear_ep_context_data_read_func": "for models compiled by another provider",
    "set_ep_context_data_read_func": "for models compiled by another provider",
    "set_provider_selection_policy_delegate": "as set_provider_selection_policy",
    "use_per_session_threads": "needs an environment with global threads",
    "enable_profiling": "in 'profiling'",
    "profile_file_prefix": "in 'profiling'",
    "graph_optimization_level": "in the levels",
    "intra_op_num_threads": "in 'options'",
    "log_severity_level": "in all programs",
    "add_session_config_entry": "in the entries",
    "get_session_config_entry": "changes nothing",
    "has_providers": "changes nothing",
}
"""Settings of `SessionOptions` that no name of a program has, with the reason."""
READ = {
    "a subclass of the options",
    "add_external_initializers",
    "add_external_initializers_from_files_in_memory",
    "add_free_dimension_override_by_denotation",
    "add_free_dimension_override_by_name",
    "add_initializer",
    "an unknown entry",
    "optimized_model_filepath",
    "options of a session",
    "options of a session without settings",
    "prepacking off",
    "read_config_from_model",
}
"""Programs whose options may hold more than prepacked weights know of: ONNX Runtime reads their models."""


def test_every_setting_of_the_options_has_the_effect_that_it_has_alone(tmp_path, monkeypatch, python):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    save_inline(tmp_path / "inside.onnx", aligned=True, rows=4000, layers=9)
    save_external(tmp_path / "outside.onnx", rows=4000, layers=9)
    save_ort(tmp_path / "model.ort", rows=4000, layers=9)
    alone, _, settings, _ = json.loads(python(PROGRAM, tmp_path, "alone"))
    ours, shared, _, is_prepacked = json.loads(python(PROGRAM, tmp_path, "auto"))
    assert ours == alone
    assert shared > 2 << 20
    assert is_prepacked == {name: name not in READ for name in is_prepacked}
    assert alone["no options, an .ort model"][4]["graph_description"] == "rows by number"
    assert alone["add_initializer"][0] != alone["options"][0] != alone["options changed later"][1][0]
    unmentioned = [name for name in settings if name not in COVERED and not any(name in key for key in alone)]
    assert not unmentioned


def test_weights_of_options_that_were_made_before_are_used(tmp_path, monkeypatch, python):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    save_inline(tmp_path / "model.onnx", aligned=True, rows=4000)
    python(
        """
        import sys, numpy as np, onnxruntime
        before = onnxruntime.SessionOptions()
        zeros = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((128, 128), np.float32))
        before.add_initializer("w1", zeros)
        import onecopy.auto
        from onecopy_onnxruntime import sessions
        sessions.MIN_TO_PREPACK = 1
        path, ids = f"{sys.argv[1]}/model.onnx", {"ids": np.arange(7)}
        session = onnxruntime.InferenceSession(path, before, providers=["CPUExecutionProvider"])
        assert (session.run(None, ids)[0] == 1).all()
        assert "before onecopy.auto" in onecopy.auto.calls()[-1].reason
        """,
        tmp_path,
    )


def test_a_session_that_fails_on_prepacked_weights_is_made_from_the_file_and_own_ones_are_left_alone(
    tmp_path, monkeypatch, python
):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    save_inline(tmp_path / "model.onnx", aligned=True, rows=4000, layers=9)
    python(
        """
        import os, sys, numpy as np
        import onecopy as oc, onecopy.auto, onnxruntime
        from onecopy_onnxruntime import sessions
        from onecopy.memory import proc

        def fails(_):
            raise RuntimeError("no numbers")

        path, ids = f"{sys.argv[1]}/model.onnx", {"ids": np.arange(7)}
        expected = oc.onnxruntime.session(path, "read").run(None, ids)[0]
        assert onecopy.auto.calls() == ()
        sessions.MIN_TO_PREPACK, sessions.mapped_files = 1, fails
        session = onnxruntime.InferenceSession(path)
        assert (session.run(None, ids)[0] == expected).all()
        (call,) = onecopy.auto.calls()
        assert call.reason == "cannot create a session on prepacked weights: no numbers", call
        assert call.copied == os.path.getsize(path)
        assert not [region for region in proc.maps(os.getpid()) if f"{sys.argv[1]}/cache" in region.path]
        """,
        tmp_path,
    )


@pytest.mark.parametrize("mode", ["prepacked", "direct", "auto"])
@pytest.mark.parametrize("kind", ["inside", "outside", "misaligned"])
def test_weights_in_memory_are_used_in_every_mode(mode, kind, tmp_path, store, worth_it):
    import numpy as np

    import onecopy as oc

    ids, options = {"ids": np.arange(7)}, onnxruntime.SessionOptions()
    zeros = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((128, 128), np.float32))
    if kind == "outside":
        path = save_external(tmp_path / "model.onnx")
        data = bytes((tmp_path / "weights.bin").stat().st_size)
        options.add_external_initializers_from_files_in_memory(["weights.bin"], [data], [len(data)])
    else:
        path = save_inline(tmp_path / "model.onnx", aligned=kind == "inside")
        options.add_initializer("w1", zeros)
    expected = onnxruntime.InferenceSession(path, options).run(None, ids)[0]
    for _ in range(2):
        session = oc.onnxruntime.session(path, mode, sess_options=options, store=store, wait=True)
        assert (session.run(None, ids)[0] == expected).all()


def test_a_model_that_options_write_stands_alone(tmp_path, store):
    import onecopy as oc

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 3, str(tmp_path / "optimized.onnx")
    path = save_inline(tmp_path / "model.onnx", aligned=True)
    for mode in ("prepacked", "direct"):
        session = oc.onnxruntime.session(path, mode, sess_options=options, store=store, wait=True)
        assert session.onecopy.mode == "read"
        assert "optimized model" in session.onecopy.reason
        assert (tmp_path / "optimized.onnx").stat().st_size > path.stat().st_size // 2


def test_a_file_that_changes_while_it_is_prepacked_is_not_kept_as_what_it_was(tmp_path, store, monkeypatch):
    import onecopy as oc
    from onecopy_onnxruntime import prepacking

    path, weights, save = save_external(tmp_path / "model.onnx"), tmp_path / "weights.bin", prepacking._save
    before = weights.read_bytes()
    expected = onnxruntime.InferenceSession(path).run(None, {"ids": IDS})[0]
    with monkeypatch.context() as patched:
        changes = lambda *given: (weights.write_bytes(bytes(len(before))), save(*given))[1]  # noqa: E731
        patched.setattr(prepacking, "_save", changes)
        patched.setattr(prepacking, "_in_child", prepacking.write)
        session = oc.onnxruntime.session(path, "prepacked", wait=True, store=store)
        assert "changed while" in session.onecopy.reason
        assert (session.run(None, {"ids": IDS})[0] == 1).all()
    weights.write_bytes(before)
    session = oc.onnxruntime.session(path, "prepacked", wait=True, store=store)
    assert session.onecopy.mode == "prepacked"
    assert (session.run(None, {"ids": IDS})[0] == expected).all()


def test_files_that_are_overwritten_in_place_change_no_session(tmp_path, monkeypatch, python):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    save_inline(tmp_path / "inside.onnx", aligned=True)
    save_external(tmp_path / "outside.onnx")
    python(
        """
        import os, sys, numpy as np
        import onecopy.auto, onnxruntime
        from onecopy_onnxruntime import sessions
        from onecopy.memory import proc
        sessions.MIN_TO_PREPACK, ids = 1, {"ids": np.arange(7)}
        sessions = [onnxruntime.InferenceSession(f"{sys.argv[1]}/{name}.onnx") for name in ("inside", "outside")]
        assert all(session._opened_by_onecopy.mode == "prepacked" for session in sessions)
        expected = [session.run(None, ids)[0] for session in sessions]
        for name in ("inside.onnx", "outside.onnx", "weights.bin"):
            path = f"{sys.argv[1]}/{name}"
            assert path not in {region.path for region in proc.maps(os.getpid())}
            with open(path, "r+b") as file:
                file.write(bytes(os.path.getsize(path)))
                file.truncate(5)
        for session, before in zip(sessions, expected):
            assert (session.run(None, ids)[0] == before).all()
        """,
        tmp_path,
    )


def test_each_list_of_disabled_optimizers_is_prepacked_on_its_own(tmp_path, monkeypatch, python):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    save_inline(tmp_path / "model.onnx", aligned=True, rows=4000)
    python(
        """
        import sys, onecopy.auto, onnxruntime
        from onecopy_onnxruntime import sessions
        sessions.MIN_TO_PREPACK = 1
        for disabled in (None, [], ["MatMulAddFusion"], ["MatMulAddFusion", "ConstantFolding"]):
            onnxruntime.InferenceSession(sys.argv[1], disabled_optimizers=disabled)
        """,
        tmp_path / "model.onnx",
    )
    assert len(from_store(tmp_path / "cache")) == 3
