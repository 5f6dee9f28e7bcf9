"""A model as its author loads it, and what a process that answers holds of it; nothing here knows of onecopy.

The file is `$MODEL`, a torch model or an array in a .npy file. `python model.py FILE LAYERS` writes a torch model, of
4 MB a layer, and `python model.py` answers once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

IS_ARRAY = os.environ.get("MODEL", "").endswith(".npy")
WIDTH = 1024
if not IS_ARRAY:
    import torch

    torch.set_num_threads(1)


def made(layers: int) -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def load() -> torch.nn.Module | np.ndarray:
    if IS_ARRAY:
        return np.load(os.environ["MODEL"])
    state = torch.load(os.environ["MODEL"])
    model = made(len(state) // 2)
    model.load_state_dict(state)
    return model.eval()


def train(model: torch.nn.Module) -> None:
    """Do one step of training of the last layer, which is 4 MB of the weights."""
    for parameter in model.parameters():
        parameter.requires_grad = False
    for parameter in model[-1].parameters():
        parameter.requires_grad = True
    model(torch.ones(1, WIDTH)).sum().backward()
    torch.optim.SGD(model[-1].parameters(), lr=0.01).step()
    for parameter in model[-1].parameters():
        parameter.grad = None


def memory(kind: str) -> int:
    """Return bytes of this process: "Anonymous", or "Pss", in which a page counts for the processes that share it."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{kind}:")).split()[1]) << 10


def read_bytes() -> int:
    """Return what this process has read from disks; pages that were in memory do not count."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes:")).split()[1])


def is_shared(name: str, path: str) -> bool:
    """Return whether a mapping is of a file, or of a snapshot of it in a run or in the store."""
    return name == path or name.startswith(f"/memfd:onecopy:{path}") or name.endswith(".oc")


def calculated(model: torch.nn.Module | np.ndarray) -> float:
    if IS_ARRAY:
        return float(model.sum())
    with torch.no_grad():
        return model(torch.ones(1, WIDTH)).sum().item()


def answer(model: torch.nn.Module | np.ndarray) -> dict[str, float]:
    """Return what the model computes, and in bytes what this process holds, and has read for it."""
    out, private = calculated(model), memory("Anonymous")
    held = {"Rss": 0, "Anonymous": 0}
    path, name = os.path.realpath(os.environ["MODEL"]), ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, _, rest = line.partition(":")
        if key in held:
            held[key] += (int(rest.split()[0]) << 10) * is_shared(name, path)
        elif "-" in key.split(" ")[0]:
            name = line.split(maxsplit=5)[5] if line.count(" ") > 5 and "/" in line else ""
    return {
        "pid": os.getpid(),
        "out": out,
        "pss": memory("Pss"),
        "private": private,
        "grown": private - BEFORE[0],
        "read": read_bytes() - BEFORE[1],
        "mapped": held["Rss"] - held["Anonymous"],
        "written": held["Anonymous"],
    }


def together(count: int, step: str = "", text: str = "") -> None:
    """Wait until `count` processes have come here, each with its text, so that none of a pool does another's work."""
    folder = Path(os.environ["TOGETHER"] + step)
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).write_text(text)
    while len(list(folder.iterdir())) < count:
        time.sleep(0.01)


def answer_together(model: torch.nn.Module | np.ndarray, count: int = 4) -> None:
    """Write an answer into a file when so many processes hold the model."""
    calculated(model)
    together(count, "-loaded")
    together(count, "-measured", json.dumps(answer(model)))


BEFORE = memory("Anonymous"), read_bytes()
"""Before a model is loaded."""

if __name__ == "__main__":
    if len(sys.argv) > 1:
        torch.manual_seed(1)
        torch.save(made(int(sys.argv[2])).state_dict(), sys.argv[1])
    else:
        loaded = load()
        before = answer(loaded)
        train(loaded)
        print(json.dumps({**before, "out_trained": answer(loaded)["out"]}))
