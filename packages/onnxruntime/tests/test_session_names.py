"""The package has the names that it had as a part of the core, and is loaded when it is used."""

import textwrap

import pytest

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("first", ["onecopy_onnxruntime", "onecopy"])
def test_all_names_are_one_package_whichever_is_imported_first(python, first):
    code = f"""
        import pickle, sys
        import {first}
        import onecopy as oc
        import onecopy_onnxruntime.sessions, onecopy.frameworks.onnxruntime.sessions
        from onecopy import onnxruntime
        from onecopy.frameworks.onnxruntime._prepacking import main
        assert oc.onnxruntime is onnxruntime is onecopy.frameworks.onnxruntime is onecopy_onnxruntime
        assert oc.onnxruntime.Report is onecopy_onnxruntime.sessions.Report
        assert onecopy.frameworks.onnxruntime.sessions is onecopy_onnxruntime.sessions
        assert main is sys.modules["onecopy_onnxruntime.prepacking"].main
        report = pickle.loads(b"conecopy.frameworks.onnxruntime._sessions\\nReport\\n.")  # as in an older pickle
        assert report is oc.onnxruntime.Report
        assert [name for name in oc.onnxruntime.__all__ if not hasattr(oc.onnxruntime, name)] == []
    """
    python(textwrap.dedent(code))


def test_under_run_no_session_is_loaded_before_a_program_opens_a_model(python):
    code = """
        import sys
        import onecopy.auto, onnxruntime
        assert onnxruntime.InferenceSession.__init__.replaced_by_onecopy
        print(*sorted(name for name in sys.modules if name.startswith("onecopy_onnxruntime")))
    """
    assert python(code).split() == ["onecopy_onnxruntime", "onecopy_onnxruntime.hook"]


def test_a_model_behind_a_url_says_what_to_install_where_onecopy_remote_is_missing(python):
    code = """
        import sys
        sys.modules["onecopy_remote"] = None  # as where it is not installed
        import onecopy as oc
        try:
            oc.onnxruntime.session("az://container/model.onnx")
        except ModuleNotFoundError as error:
            print(error)
    """
    needed = "onecopy.remote needs another package: pip install onecopy-remote"
    assert python(textwrap.dedent(code)) == f"{needed}\n"
