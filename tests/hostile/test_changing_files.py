"""Files that another process changes while they are read: some value or an error, never other memory."""

import json
import mmap
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onecopy as oc
import onecopy.records

COUNT = 1 << 16
SECONDS = 2


def place_of_offsets(path: Path) -> int:
    """Return where the offsets of the one list begin: two numbers of four bytes."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8 : 8 + size])
    offsets = next(entry for name, entry in entries.items() if name.endswith("offsets"))
    assert offsets["dtype"] == "I32"
    return 8 + size + int(offsets["data_offsets"][0])


def flip(path: Path, at: int, ends: Event) -> None:
    """Change the first offset between 0 and the last item, again and again."""
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 0) as memory:
        good, bad = memory[at : at + 4], (COUNT - 1).to_bytes(4, "little")
        while not ends.is_set():
            for _ in range(1000):
                memory[at : at + 4] = bad
                memory[at : at + 4] = good
        memory[at : at + 4] = good
    os.close(fd)


def answers(path: Path, rows: list[Any], ask: Callable[[Any], Any]) -> set[Any]:
    """Return what a function of rows has answered while another process changed the offsets of their list."""
    onecopy.records.save(path, rows)
    context = multiprocessing.get_context("spawn")
    ends = context.Event()
    writer = context.Process(target=flip, args=(path, place_of_offsets(path), ends))
    writer.start()
    found = set()
    with oc.open_records(path) as opened:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                found.add(ask(opened))
            except (IndexError, oc.FormatError):
                found.add("an error")
    ends.set()
    writer.join()
    return found


@pytest.mark.slow
def test_an_item_of_a_lazy_list_is_in_the_list_while_its_offsets_change(tmp_path):
    rows = [{"a": [{"v": i} for i in range(COUNT)]}]
    found = answers(tmp_path / "rows", rows, lambda opened: opened.lazy[0]["a"][COUNT - 1]["v"])
    assert COUNT - 1 in found
    assert found <= {COUNT - 1, "an error"}


@pytest.mark.slow
def test_the_items_that_are_taken_are_those_of_the_list_while_its_offsets_change(tmp_path):
    whole = np.arange(COUNT, dtype=float)
    whole[0] = np.nan
    good = {"all": whole, "the last one": whole[-1:]}

    def taken(opened: Any) -> str:
        values = opened.take([0])["a"].values
        return next((name for name, one in good.items() if np.array_equal(one, values, equal_nan=True)), "other memory")

    found = answers(tmp_path / "rows", [{"a": [None, *range(1, COUNT)]}], taken)
    assert "all" in found
    assert found <= {*good, "an error"}
