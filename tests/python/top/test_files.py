"""A mapping against the file itself: open(path, "rb").read() is the judge."""

import copy
import ctypes
import errno
import fcntl
import os
import random
import resource
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import onecopy as oc
from onecopy.base.run_constants import memory_file

HUGE = 2 << 20
DATA = random.Random(7).randbytes(HUGE + 5 * 4096 + 123)
MODES = ["map", "copy"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    return path


places = st.one_of(st.integers(0, len(DATA) + 9), st.sampled_from([0, 4095, 4096, 4097, HUGE - 1, HUGE, HUGE + 1]))
far = st.sampled_from([2**63, 2**64, 2**200]).flatmap(lambda edge: st.integers(edge - 5, edge + 5))


@given(
    offset=places | far,
    length=st.none() | st.integers(0, 20_000) | far,
    mode=st.sampled_from(MODES),
    private=st.booleans(),
)
def test_a_range_is_the_slice_of_the_file_or_an_error(path, offset, length, mode, private):
    end = len(DATA) if length is None else offset + length
    if offset < end <= len(DATA):
        with oc.Mapping(path, offset, length, mode=mode, private=private) as mapping:
            assert bytes(mapping.view()) == DATA[offset:end]
            assert mapping.address % HUGE == offset % HUGE
    else:
        with pytest.raises(OSError, match="range") as raised:
            oc.Mapping(path, offset, length, mode=mode, private=private)
        assert (raised.value.errno, raised.value.filename) == (errno.EINVAL, str(path))


@given(offset=places | far, length=st.none() | places | far)
def test_a_view_is_the_slice_of_the_range_or_an_index_error(path, offset, length):
    with oc.Mapping(path, offset=100) as mapping:
        end = len(mapping) if length is None else offset + length
        if offset <= end <= len(mapping):
            assert bytes(mapping.view(offset, length)) == DATA[100:][offset:end]
        else:
            with pytest.raises(IndexError):
                mapping.view(offset, length)


@pytest.mark.parametrize("opener", [oc.Mapping, oc.open, oc.warm])
def test_no_number_of_threads_is_too_large_to_be_understood(tmp_path, opener):
    oc.save(tmp_path / "model", {"a": b"x"})
    opener(tmp_path / "model", threads=2**32)


def test_the_end_of_a_file_of_one_tebibyte_and_a_copy_that_is_larger_than_the_address_space(tmp_path, in_child):
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.seek((1 << 40) - 3)
        file.write(b"end")
    with oc.Mapping(path) as whole, oc.Mapping(path, (1 << 40) - 5) as tail:
        assert len(whole) == 1 << 40
        assert bytes(whole.view((1 << 40) - 4)) == b"\0end"
        assert bytes(tail.view()) == b"\0\0end"

    def copy_it():
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        oc.Mapping(path, mode="copy")

    with pytest.raises(OSError, match="memory") as raised:
        in_child(copy_it)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOMEM, str(path))


@pytest.mark.parametrize("mode", MODES)
def test_views_are_read_only_and_stay_so(path, mode):
    view = oc.Mapping(path, mode=mode).view()
    assert view.readonly
    with path.open("rb", buffering=0) as file:
        for write in (
            lambda: view.__setitem__(0, 0),
            lambda: ctypes.c_char.from_buffer(view),
            lambda: file.readinto(view),
        ):
            with pytest.raises(TypeError):
                write()
    array = np.frombuffer(view, np.uint8)
    assert not array.flags.writeable
    for one in (array, array[1:], array.view(np.int8)):
        with pytest.raises(ValueError, match=r"WRITEABLE|writeable"):
            one.setflags(write=True)


@pytest.mark.parametrize("mode", MODES)
def test_private_memory_is_writable_and_the_file_never_changes(path, mode):
    with oc.Mapping(path, 5, private=True, mode=mode) as mine, oc.Mapping(path) as shared:
        view = mine.view()
        assert not view.readonly
        view[:3] = b"new"
        view[-3:] = b"end"
        assert bytes(mine.view()) == b"new" + DATA[8:-3] + b"end"
        assert bytes(shared.view()) == DATA
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("state", ["written just now", "cold", "half in memory"])
@pytest.mark.parametrize(("offset", "cut"), [(0, 0), (1, 0), (4096, 1), ((8 << 20) - 1, 4095)])
def test_a_copy_is_right_whatever_is_in_memory(cold_file, threads, state, offset, cut):
    path = cold_file((20 << 20) + 77)
    expected = path.read_bytes()
    if state == "written just now":
        expected = expected[::-1]
        path.write_bytes(expected)
    else:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0 if state == "cold" else 9 << 20, os.POSIX_FADV_DONTNEED)
    end = len(expected) - cut
    with oc.Mapping(path, offset, end - offset, mode="copy", threads=threads) as mapping:
        assert bytes(mapping.view()) == expected[offset:end]


# --- descriptors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_memory_file_has_no_path_and_can_be_mapped(memfd, mode):
    os.write(memfd, DATA)
    with oc.Mapping.from_descriptor(memfd, "scratch", 7, 5000, mode=mode) as mapping:
        with open(os.devnull, "rb") as other:  # noqa: PTH123
            os.dup2(other.fileno(), memfd)  # ours is gone; the mapping has its own
        assert bytes(mapping.view()) == DATA[7:5007]
        assert os.fstat(mapping.fileno()).st_size == len(DATA)
        assert not mapping.changed()
        with pytest.raises(TypeError, match="descriptor"):
            copy.copy(mapping)


def test_an_unlinked_file_can_be_mapped_and_the_descriptor_stays_where_it_was(path):
    with path.open("rb") as file:
        path.unlink()
        assert file.read(3) == DATA[:3]
        with oc.Mapping.from_descriptor(file.fileno()):
            assert file.read(3) == DATA[3:6]
        assert file.read(3) == DATA[6:9]


def test_the_name_of_a_descriptor_stands_in_its_errors_and_a_pipe_cannot_be_mapped():
    ends = os.pipe()
    for descriptor, error in ((1_000_000, errno.EBADF), (ends[0], errno.ENODEV)):
        with pytest.raises(OSError, match=r"Bad file descriptor|regular file") as raised:
            oc.Mapping.from_descriptor(descriptor, "the weights")
        assert (raised.value.errno, raised.value.filename) == (error, "the weights")
    for descriptor in ends:
        os.close(descriptor)


# --- errors -----------------------------------------------------------------------------------------------------------


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.fspath(path))


PLACES = {
    "missing": (lambda path: path.unlink(missing_ok=True), FileNotFoundError, errno.ENOENT),
    "an empty file": (lambda path: path.touch(), OSError, errno.ENODATA),
    "a folder": (lambda path: path.mkdir(), IsADirectoryError, errno.EISDIR),
    "a FIFO": (os.mkfifo, OSError, errno.ENODEV),
    "a socket": (make_socket, OSError, errno.ENXIO),
    "a device": (lambda path: path.symlink_to("/dev/null"), OSError, errno.ENODEV),
    "a loop of links": (lambda path: path.symlink_to(path), OSError, errno.ELOOP),
    "a link to nothing": (lambda path: path.symlink_to(path.with_suffix(".no")), FileNotFoundError, errno.ENOENT),
}
OPENERS = [oc.Mapping, lambda path: oc.Mapping(path, mode="copy"), oc.open, oc.warm, oc.evict, oc.residency]


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("opener", OPENERS)
def test_what_cannot_be_mapped_is_reported_with_name_and_number(tmp_path, kind, opener):
    make, error, number = PLACES[kind]
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(error) as raised:
        opener(path)
    assert (raised.value.errno, raised.value.filename) == (number, str(path))


@pytest.mark.parametrize("opener", OPENERS)
def test_a_file_in_the_way_and_names_that_are_too_long_or_not_utf_8(path, opener):
    for name, error in (
        (path / "below", errno.ENOTDIR),
        (path.with_name("n" * 300), errno.ENAMETOOLONG),
        (path.with_name("missing\udcff"), errno.ENOENT),
    ):
        with pytest.raises(OSError, match=os.strerror(error)) as raised:
            opener(name)
        assert (raised.value.errno, raised.value.filename) == (error, str(name))


@pytest.mark.parametrize("opener", OPENERS)
def test_a_file_that_may_not_be_read_is_a_permission_error(path, nobody, in_child, opener):
    path.chmod(0o600)
    with pytest.raises(PermissionError) as raised:
        in_child(opener, path.name, uid=nobody)
    assert (raised.value.errno, raised.value.filename) == (errno.EACCES, path.name)


@pytest.mark.parametrize(
    "options",
    [{"mode": "x"}, {"mode": True}, {"threads": -1}, {"offset": -1}, {"length": -1}, {"offset": -(2**64)}],
)
def test_options_out_of_range_are_value_errors_that_name_them(path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        oc.Mapping(path, **options)


def test_options_are_keywords_and_numbers_of_numpy_are_numbers(path):
    for arguments, options in (((0, None, "copy"), {}), ((), {"writable": True})):
        with pytest.raises(TypeError, match=r"positional|unexpected"):
            oc.Mapping(path, *arguments, **options)
    assert bytes(oc.Mapping(path, np.int64(5), np.uint16(300)).view(np.int8(2), np.uint64(3))) == DATA[7:10]


def test_a_file_in_memory_can_be_sealed_and_cannot_be_executed():
    try:
        os.close(os.memfd_create("x", 0x8))  # MFD_NOEXEC_SEAL
    except OSError:
        pytest.skip("before Linux 6.3")
    with os.fdopen(memory_file("x"), "wb") as file:
        assert os.fstat(file.fileno()).st_mode & 0o111 == 0
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
