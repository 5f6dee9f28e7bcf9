"""The table of small actions on the public functions: its rows, the files that they work on, and what they raise."""

import importlib.util
import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import onecopy as oc
import onecopy.records

DOTTED = re.compile(r"\b(?:oc|onecopy)((?:\.\w+)+)")
USUAL_TIMES = 200
"""Times that an action runs in one measured loop; an action that takes more than a few milliseconds says less."""


class World:
    """A folder with the files that actions open: good ones, hostile ones, and space for what they write."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.arrays = {"a": np.arange(600, dtype=np.float32).reshape(20, 30), "b": np.arange(5), "c": np.zeros((0, 2))}
        more = {"x": 1, "y": None}
        self.rows = [{"id": i, "name": f"row {i}", "box": [0.5] * (i % 4), "more": more | {"x": i}} for i in range(50)]
        self.pairs = {f"key {i}": (i, [b"x", 2.5, None]) for i in range(50)}
        self.model, self.misaligned, self.hostile, self.missing, self.damaged, self.unchecked = (
            folder / f"{name}.safetensors" for name in ("model", "plain", "hostile", "missing", "damaged", "unchecked")
        )
        self.list, self.table, self.dict, self.damaged_rows = (
            folder / f"{name}.oc" for name in ("list", "table", "dict", "damaged_rows")
        )
        self.index, self.bytes = folder / "model.safetensors.index.json", folder / "data.bin"
        self.json, self.jsonl, self.csv = folder / "rows.json", folder / "rows.jsonl", folder / "rows.csv"
        self.out.mkdir()
        self.store = oc.Store(folder / "store")
        (self.store.folder / "views").mkdir()  # as after a remote file: swept by each prune
        self._write_arrays()
        self._write_rows()

    def _write_arrays(self) -> None:
        oc.save(self.model, self.arrays, {"step": "12"}, align=64)
        oc.save(self.misaligned, {"a": np.zeros(3, "u1"), "b": np.arange(5)})
        oc.save(self.unchecked, self.arrays, checksum=False)
        weight_map = {name: f"shard-{number}.safetensors" for number, name in enumerate("xy", 1)}
        for name, file in weight_map.items():
            oc.save(self.folder / file, {name: np.arange({"x": 9, "y": 7}[name])})
        self.index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        self.bytes.write_bytes(bytes(range(256)) * 800)
        self.hostile.write_bytes(b"\xff" * 200)
        content = bytearray(self.model.read_bytes())
        content[-70] ^= 1
        self.damaged.write_bytes(content)

    def _write_rows(self) -> None:
        onecopy.records.save(self.list, ["a", None, 1, 2.5, b"x", (1, 2), [3], {"k": np.arange(3)}, 2**70, -1])
        onecopy.records.save(self.table, self.rows)
        onecopy.records.save(self.dict, self.pairs)
        self.json.write_text(json.dumps({"rows": self.rows, "pairs": {"a": 1, "b": 2}}))
        self.jsonl.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows))
        self.csv.write_text("a,b\n" + "1,x\n2,y\n" * 20)
        content = bytearray(self.table.read_bytes())
        content[4096:5400] = b"\xff" * 1304
        self.damaged_rows.write_bytes(content)


class Action(NamedTuple):
    name: str
    run: Callable[[World], object]
    times: int
    needs: tuple[str, ...]
    """Packages without which it cannot run."""

    @property
    def covers(self) -> set[str]:
        """The public names that its code uses, without "oc." or "onecopy.": "records.save" and also "records"."""
        found = {match[1].removeprefix(".") for match in DOTTED.finditer(inspect.getsource(self.run))}
        return {".".join(name.split(".")[:end]) for name in found for end in range(1, name.count(".") + 2)}

    @property
    def lacking(self) -> list[str]:
        """The packages of `needs` that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


ACTIONS: dict[str, Action] = {}
"""All actions, by their names."""


def action(times: int = USUAL_TIMES, needs: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Put a function into the table, by its name."""

    def put(function: Callable[[World], object]) -> Callable[[World], object]:
        assert function.__name__ not in ACTIONS
        ACTIONS[function.__name__] = Action(function.__name__, function, times, needs)
        return function

    return put


def refused(
    errors: type[BaseException] | tuple[type[BaseException], ...],
    call: Callable[..., object],
    *arguments: Any,
    **named: Any,
) -> None:
    """Call what has to raise one of some errors; AssertionError where it does not."""
    try:
        call(*arguments, **named)
    except errors:
        return
    raise AssertionError(f"{call} raised nothing")


def use_folder(folder: Path) -> World:
    """Make a world in a folder, which becomes the home of this process too: no default folder is the user's."""
    os.environ["HOME"] = str(folder / "home")
    for name in ("XDG_CACHE_HOME", "ONECOPY_CACHE", "ONECOPY_SCRATCH"):
        os.environ.pop(name, None)
    return World(folder)
