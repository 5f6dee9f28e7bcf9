"""A file that is cut while it is mapped: an error that can be caught, where a touch would be the end (SIGBUS)."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
from tests.support.children import in_a_child

import onecopy as oc
from onecopy.files.page_cache import residency

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


@in_a_child
def test_waiting_for_a_job_that_met_lost_bytes_is_data_lost_and_the_rest_can_be_warmed(path):
    mapping = cut(path)
    job = oc.warm(mapping, wait=False)
    for _ in range(2):
        with pytest.raises(oc.DataLost):
            job.wait()
    assert job.done
    assert oc.warm(mapping, [(0, 5 * MIB)]).complete


@pytest.mark.parametrize("part", [{}, {"offset": 4 * MIB}], ids=["a file", "its end"])
@pytest.mark.parametrize("call", [residency, oc.evict, oc.files.pin])
@in_a_child
def test_asking_about_lost_bytes_is_data_lost(path, call, part):
    with pytest.raises(oc.DataLost):
        call(cut(path, **part))


@pytest.mark.parametrize("call", [oc.files.unpin, oc.Mapping.changed, repr, oc.Mapping.close])
@in_a_child
def test_no_call_dies_of_lost_bytes(path, call):
    with contextlib.suppress(oc.DataLost):
        call(cut(path))
