"""Programs made from a seed, which load files and write to them: python -m tests.support.write_programs.

Each runs in a folder of its own and returns a line for each of its steps: what it loaded, read or caught. The same
program must return the same lines under `onecopy run`.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import pickle
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from safetensors import numpy as st

try:
    import torch
except ImportError:  # the fast tier has no torch
    torch = None  # type: ignore[assignment]

ITEMS = (150_000, 200_000, 300_000)
"""Elements of the arrays of files, each more than 1 MiB in float64."""
KINDS = ("npy", "npy", "npz", "joblib", "safetensors", *(("pt",) if torch else ()))


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def described(value: Any) -> Any:
    """Return what can be seen of a loaded value: its type, what it owns, and its bytes."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        owner = "" if value.base is None else type(value.base).__name__
        facts = (flags.owndata, flags.writeable, flags.c_contiguous, flags.aligned)
        return type(value).__name__, str(value.dtype), value.shape, facts, owner, digest(value.tobytes())
    if torch is not None and isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        facts = (value.is_shared(), storage.resizable(), storage.nbytes())
        return type(value).__name__, str(value.dtype), tuple(value.shape), facts, digest(value.detach().numpy())
    if isinstance(value, dict):
        return {name: described(part) for name, part in value.items()}
    return repr(value)


class Program:
    """One program; `run` returns what its steps returned. A step that has nothing to work on returns an IndexError."""

    def __init__(self, seed: int, way: str = "") -> None:
        self.random = random.Random(seed)
        self.kinds = {name: self.random.choice(KINDS) for name in ("a", "b")}
        self.handles, self.maps, self.loaded, self.models = list[Any](), list[Any](), list[Any](), list[Any]()
        self.way = way
        """How the folder is reached to read files: "" is the working folder itself, or a mount of it."""

    def run(self) -> list[Any]:
        names = self.random.choices(list(STEPS), list(STEPS.values()), k=self.random.randint(5, 13))
        lines = [self.step(self.save, name) for name in self.kinds]
        lines += [self.step(getattr(self, name)) for name in ("load", "open", *names, "look_at_all")]
        for each in self.handles:
            each.close()
        return lines

    def step(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        return [function.__name__, result]

    # --- files ------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        return self.random.choice(list(self.kinds))

    def save(self, name: str | None = None, target: str | None = None) -> None:
        name = name or self.name()
        values = np.random.default_rng(self.random.randrange(1 << 30)).random(self.random.choice(ITEMS))
        array = values.reshape(2, -1) if self.random.random() < 0.5 else values.reshape(-1, 2).T
        in_order = np.ascontiguousarray(array)
        with open(target or name, "wb") as file:  # noqa: PTH123
            if self.kinds[name] == "npy":
                np.save(file, array)
            elif self.kinds[name] == "npz":
                np.savez(file, array_0000=array)
            elif self.kinds[name] == "joblib":
                joblib.dump({"x": array, "n": 7}, file)
            elif self.kinds[name] == "safetensors":
                file.write(st.save({"w": in_order, "v": np.arange(3)}))
            else:
                torch.save({"weight": torch.from_numpy(in_order)}, file)

    def load(self) -> Any:
        name = self.name()
        how = self.random.choice(["path", "path", "new handle", "handle"])
        if how == "path":
            value = self.loaded_from(self.way + name, self.kinds[name])
        elif how == "new handle":
            with open(self.way + name, "rb") as file:  # noqa: PTH123
                value = self.loaded_from(file, self.kinds[name])
        else:
            file = self.random.choice(self.handles)
            file.seek(0)
            value = self.loaded_from(file, self.kinds[file.name])
        self.loaded.append(value)
        return described(value)

    def loaded_from(self, file: Any, kind: str) -> Any:
        if kind == "npy":
            return np.fromfile(file, np.float64, offset=128) if self.random.random() < 0.5 else np.load(file)
        if kind == "npz":
            with np.load(file) as archive:
                return dict(archive)
        if kind == "joblib":
            return joblib.load(file)
        if kind == "safetensors":
            return st.load_file(file if isinstance(file, str) else file.name)
        return torch.load(file)

    def state_dict(self) -> Any:
        state = self.random.choice([each for each in self.loaded if isinstance(each, dict) and "weight" in each])
        model = torch.nn.Linear(state["weight"].shape[1], state["weight"].shape[0], bias=False, dtype=torch.float64)
        model.load_state_dict(state)
        self.models.append(model)
        return described(model.weight)

    # --- writers ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        name, mode = self.name(), self.random.choice(["r+b", "r+b", "rb", "ab"])
        self.handles.append(open(name, mode, buffering=self.random.choice([-1, 0])))  # noqa: PTH123, SIM115

    def map(self) -> None:
        with open(self.name(), "r+b") as file:  # noqa: PTH123
            self.maps.append(mmap.mmap(file.fileno(), 0))

    def place(self, nbytes: int) -> tuple[int, bytes]:
        at = self.random.randrange(4096, max(nbytes - 4096, 4097))
        return at, self.random.randbytes(self.random.choice([8, 3000]))

    def write(self) -> Any:
        handle = self.random.choice(self.handles)
        at, data = self.place(os.fstat(handle.fileno()).st_size)
        if self.random.random() < 0.5:
            return os.pwrite(handle.fileno(), data, at)
        handle.seek(at)
        written = handle.write(data)
        handle.flush()
        return written

    def write_map(self) -> Any:
        mapped = self.random.choice(self.maps)
        if mapped.size() < len(mapped):
            return "would end the process"
        at, data = self.place(len(mapped))
        mapped[at : at + len(data)] = data
        if self.random.random() < 0.3:
            mapped.flush()
        return at

    def write_path(self, name: str | None = None) -> Any:
        """Open a file by a descriptor of its folder, write, and close it."""
        name = name or self.name()
        at, data = self.place(os.path.getsize(name))  # noqa: PTH202
        folder = os.open(".", os.O_RDONLY)
        file = os.open(name, os.O_WRONLY, dir_fd=folder)
        try:
            return os.pwrite(file, data, at)
        finally:
            os.close(file)
            os.close(folder)

    def truncate(self) -> None:
        if self.maps:
            return
        name = self.name()
        size = max(os.path.getsize(name) + self.random.choice([-100_000, -8, 4096, 1 << 20]), 0)  # noqa: PTH202
        if self.handles and self.random.random() < 0.5:
            self.random.choice(self.handles).truncate(size)
        else:
            os.truncate(name, size)

    def replace(self) -> None:
        name = self.name()
        self.save(name, "new")
        os.replace("new", name)  # noqa: PTH105

    def link(self) -> Any:
        name = self.name()
        os.link(name, "link")
        self.write_path("link")
        same = os.path.samefile(name, "link")  # noqa: PTH121
        os.unlink(self.random.choice(["link", name]))  # noqa: PTH108
        with contextlib.suppress(FileNotFoundError):
            os.replace("link", name)  # noqa: PTH105
        return same

    def tool(self) -> int:
        name, other = self.random.sample(list(self.kinds), 2)
        command = f"dd of={name} if=/dev/zero bs=1000 seek=40 count=50 conv=notrunc status=none"
        if not self.maps and self.random.random() < 0.5:
            command = f"cp {other} {name}"
            self.kinds[name] = self.kinds[other]
        return subprocess.run(command.split(), check=False).returncode

    def child(self) -> Any:
        name = self.name()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                for value in self.loaded[-1:]:
                    if isinstance(value, np.ndarray):
                        value[...] = -1
                self.write_path(name)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def lock(self) -> Any:
        name = self.name()
        with open(name, "r+b") as one, open(name, "r+b") as two:  # noqa: PTH123
            fcntl.flock(one, fcntl.LOCK_EX)
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def times(self) -> None:
        name = self.name()
        facts = os.stat(name)  # noqa: PTH116
        self.write_path(name)
        os.utime(name, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    # --- what was loaded ---------------------------------------------------------------------------------------------

    def change(self) -> Any:
        array = self.random.choice([each for each in self.loaded if isinstance(each, np.ndarray) and each.size])
        array[..., self.random.randrange(array.shape[-1])] += 1
        return described(array)

    def copy(self) -> Any:
        return described(pickle.loads(pickle.dumps(self.random.choice(self.loaded), protocol=5)))

    def resize(self) -> Any:
        """Resize a loaded array, which must own its memory."""
        value = self.random.choice(self.loaded)
        if isinstance(value, np.ndarray):
            value.resize((5, 7), refcheck=False)
        return described(value)

    def look(self) -> Any:
        return described(self.random.choice(self.loaded))

    def look_at_all(self) -> Any:
        return (
            [described(value) for value in self.loaded],
            [described(model.weight) for model in self.models],
            {name: digest(Path(name).read_bytes()) for name in sorted(os.listdir())},  # noqa: PTH208
        )


STEPS = {"save": 2, "load": 5, "open": 2, "map": 2, "write": 4, "write_map": 3, "write_path": 2, "truncate": 1}
STEPS |= {"replace": 1, "link": 1, "tool": 1, "child": 1, "lock": 1, "change": 2, "copy": 1, "resize": 1, "look": 3}
STEPS |= {"times": 1, "state_dict": 1}
"""How often each step is taken."""


def main() -> None:
    """Run programs, each in an empty folder, and print their lines as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--count", type=int, default=1, help="number of programs")
    parser.add_argument("--folder", required=True, help="where the programs write")
    parser.add_argument("--read-through", help="a mount of that folder, through which they read")
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.count):
        folder = Path(options.folder, str(seed))
        folder.mkdir()
        with contextlib.chdir(folder):
            way = "" if options.read_through is None else f"{options.read_through}/{seed}/"
            print(json.dumps([seed, Program(seed, way).run()]), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
