"""A model of Triton's Python backend, which ignores PYTHONPATH, so that `onecopy run` needs the import of onecopy."""

import json
import os
import sys

import numpy as np
import triton_python_backend_utils as triton

import onecopy.auto  # noqa: F401

sys.path.append(os.environ["PROGRAMS"])
import model


class TritonPythonModel:
    def initialize(self, _):
        self.model = model.load()

    def execute(self, requests):
        text = json.dumps(model.answer(self.model)).encode()
        answer = triton.Tensor("answer", np.array([text], object))
        return [triton.InferenceResponse([answer]) for _ in requests]
