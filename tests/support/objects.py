"""Objects that tests save: a model of two layers, and one whose unpickling runs code; and the content of a file."""

import dataclasses
import pickle
from typing import Any

import numpy as np

RAN: list[str] = []


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = ""


@dataclasses.dataclass
class Model:
    layers: list[Layer]
    labels: dict[str, int]


def run() -> None:
    RAN.append("ran")


class Runs:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return run, ()


def model() -> Model:
    layers = [Layer(np.arange(12_000.0).reshape(60, 200) + i, np.ones(7, np.float32), f"layer {i}") for i in range(2)]
    return Model(layers, {"cat": 0, "dog": 1})


ABOUT = {"version": 1, "type": "builtins.list", "arrays": ["a"], "python": "3.11", "packages": {}}
ARRAYS = {
    "object.pickle": np.frombuffer(pickle.dumps([1]), np.uint8),
    "object.buffers": np.array([[1, 0, 24, 0]]),
    "object.small": np.zeros(16, np.uint8),
    "a": np.zeros(3),
}
"""What a file of the list [1] holds: its description, in JSON as metadata, and its arrays."""
