"""A file that is cut while it is mapped: an error that can be caught, where a touch would be the end (SIGBUS)."""

import errno
import os
from pathlib import Path

import pytest

import onecopy as oc
from onecopy.files.page_cache import residency

pytestmark = pytest.mark.processes

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(MIB) * 8)
    return path


def cut(path: Path, **options) -> oc.Mapping:
    mapping = oc.Mapping(path, **options)
    os.truncate(path, 5 * MIB + 1)
    return mapping


@pytest.mark.parametrize("mechanism", ["auto", "populate", "read"])
@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"huge": False}, {"ranges": [(6 * MIB, 5)]}])
def test_warming_lost_bytes_is_data_lost(path, in_child, mechanism, options):
    with pytest.raises(oc.DataLost, match="truncated") as raised:
        in_child(lambda: oc.warm(cut(path), mechanism=mechanism, **options))
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, str(path))


def test_waiting_for_a_job_that_met_lost_bytes_is_data_lost(path, in_child):
    def wait() -> bool:
        job = oc.warm(cut(path), wait=False)
        with pytest.raises(oc.DataLost):
            job.wait()
        with pytest.raises(oc.DataLost):
            job.wait()  # again
        return job.done

    assert in_child(wait)


def test_what_is_left_can_still_be_warmed(path, in_child):
    assert in_child(lambda: oc.warm(cut(path), [(0, 5 * MIB)]).complete)


@pytest.mark.parametrize("call", [residency, oc.evict, oc.files.pin])
def test_asking_about_lost_bytes_is_data_lost(path, in_child, call):
    with pytest.raises(oc.DataLost):
        in_child(lambda: call(cut(path)) and None)


@pytest.mark.parametrize("call", [oc.files.unpin, oc.Mapping.changed, repr, oc.Mapping.close])
def test_no_call_dies_of_lost_bytes(path, in_child, call):
    def survive() -> str:
        try:
            call(cut(path))
        except oc.DataLost:
            return "raised"
        return "alive"

    assert in_child(survive) in {"raised", "alive"}
