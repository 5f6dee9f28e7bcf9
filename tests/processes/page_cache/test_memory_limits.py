"""Memory limits: what does not fit into a control group is an error with the numbers, and no process is ever killed."""

import contextlib
import errno
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import ChildAnswerError, ChildKilledError
from tests.support.limited_program import MIB, NUMBERS, Run, write_files
from tests.support.memory_group import NoMemoryGroupError, enter, limited, memory_groups
from tests.support.rounds import rounds

import onecopy as oc
from onecopy.errors import NotEnoughMemory
from onecopy.memory import container
from onecopy.memory.cgroup import kills
from onecopy.page_cache import expect_memory
from onecopy.scratch_arrays import alloc

pytestmark = pytest.mark.processes

LIMITS = (32, 48, 64)
SIZES = [8, 16, 32, 48, 64, 96, 128, 192, 256]
"""MiB of the files: an eighth of a limit to four times."""
FIRST_SEED = int(os.environ.get("ONECOPY_FIRST_SEED", "0"))


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[int, Path]:
    return write_files(tmp_path_factory.mktemp("files"), SIZES)


@contextlib.contextmanager
def group_of(limit: int) -> Iterator[Path]:
    try:
        with limited(limit) as group:
            yield group
    except NoMemoryGroupError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_random_sequence_of_operations_in_a_small_group_is_killed(files, tmp_path, in_child, monkeypatch) -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    killed = []
    for seed in range(FIRST_SEED, FIRST_SEED + rounds(20)):
        limit = random.Random(seed).choice(LIMITS) * MIB
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setenv("ONECOPY_CACHE", str(folder / "cache"))
        with group_of(limit) as group:
            run = Run(seed, files, folder, limit)
            try:
                found = in_child(lambda group=group, run=run: (enter(group), run.all())[1])
            except (ChildKilledError, ChildAnswerError) as error:
                found = []
                killed.append(f"seed {seed}, limit {limit}: {error}: {run.log.read_text()}")
            except Exception as error:
                error.add_note(f"seed {seed}, limit {limit}: {run.log.read_text()}")
                raise
            if found and kills(group) != 0:
                killed.append(f"seed {seed}, limit {limit}: a child: {found}")
        shutil.rmtree(folder)
        outcomes.update((operation, outcome) for operation, outcome, _ in found)
    print(*(f"{count:6} {operation} {outcome}" for (operation, outcome), count in sorted(outcomes.items())), *killed, sep="\n")
    assert not killed
