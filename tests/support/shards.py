"""Sets of shards as Hugging Face writes them."""

import json
from pathlib import Path

import numpy as np

import onecopy as oc

ARRAYS = {f"layer.{i}": np.arange(i, i + 600, dtype=np.float32).reshape(20, 30) for i in range(6)}
INDEX = "model.safetensors.index.json"


def shard_of(number: int) -> str:
    return f"model-{number + 1:05}-of-00003.safetensors"


def write_set(folder: Path, arrays: dict[str, np.ndarray] = ARRAYS, **save: object) -> Path:
    """Write two arrays a shard, and the index as Hugging Face writes it."""
    places = {name: shard_of(at // 2) for at, name in enumerate(arrays)}
    for file in set(places.values()):
        oc.save(folder / file, {name: arrays[name] for name in places if places[name] == file}, **save)
    index = folder / INDEX
    index.write_text(json.dumps({"metadata": {"total_size": 14400, "by": "us"}, "weight_map": places}, indent=2))
    return index
