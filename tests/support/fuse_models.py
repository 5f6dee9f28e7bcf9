"""A model on a FUSE disk, for the tests of files that a server delays, fails or shortens."""

import errno
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import call_in_child
from tests.support.fuse_disk import Faults, fuse_disk

import onecopy as oc

MIB = 1 << 20
NAME = "model.safetensors"
ARRAYS = {f"a{i}": np.random.default_rng(i).integers(1, 256, MIB, np.uint8) for i in range(8)}  # no zeros


@functools.cache
def saved_model() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        oc.save(path, ARRAYS)
        return path.read_bytes()


def call_on_fuse(folder: Path, work: Callable[[Path, Faults], Any], **options: Any) -> Any:
    """Return work(path of the model, faults), called in a child with a `fuse_disk` mounted on `folder`."""

    def child() -> Any:
        with fuse_disk(folder, {NAME: saved_model()}, **options) as faults:
            return work(folder / NAME, faults)

    return call_in_child(child)


def skip_without_fuse(folder: Path) -> None:
    """Skip the test where no FUSE file system can be mounted."""
    try:
        served = call_on_fuse(folder, lambda path, _: path.read_bytes())
    except OSError as error:
        pytest.skip(f"no FUSE file system can be mounted here: {error}")
    assert served == saved_model()


def wrong_bytes(file: oc.ArrayFile) -> int:
    """Count the bytes that are not those that were saved."""
    assert set(file) == set(ARRAYS)
    return sum(int((file[name] != array).sum()) for name, array in ARRAYS.items())


def error_of(call: Callable[[], object]) -> tuple[type, int | None, str] | None:
    """Return type, errno and file name of the OSError that a call raises; None where it returns."""
    try:
        call()
    except OSError as error:
        return type(error), error.errno, str(error.filename)
    return None


def lost(path: str) -> tuple[type, int, str]:
    """Return what `error_of` gives for a call that reports lost data."""
    return oc.DataLost, errno.EIO, path
