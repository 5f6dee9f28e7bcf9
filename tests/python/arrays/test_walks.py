"""How many functions of Python a call goes through, of those that programs call often. Counted, not timed."""

import sys

import numpy as np
import pytest

import onecopy as oc


@pytest.fixture
def frames():
    """Return the names of the functions that a call runs, without its own."""

    def run(call) -> list[str]:
        call()  # what the first call loads
        names: list[str] = []

        def note(frame, event, argument):
            if event == "call":
                names.append(frame.f_code.co_name)

        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
        return names[1:]

    return run


@pytest.fixture
def path(tmp_path):
    oc.save(tmp_path / "model.safetensors", {"w": np.zeros(1000)})
    return str(tmp_path / "model.safetensors")


def test_opening_warming_and_getting_an_array_run_at_most_eight_functions_each(frames, path):
    with oc.open(path) as file:
        for call in (lambda: oc.open(path), file.warm, lambda: file["w"]):
            assert len(frames(call)) <= 8
