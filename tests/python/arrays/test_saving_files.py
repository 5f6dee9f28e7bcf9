"""The file that `save` makes: what stands in its header, its rights, and that it appears whole or not at all."""

import base64
import errno
import json
import os
import stat
import struct
from pathlib import Path

import numpy as np
import pytest
from tests.support.hostile_files import crc32c
from tests.support.writing import names_in

import onecopy as oc

MIB = 1 << 20
OLD = {"old": np.arange(3)}
NEW = {"a": np.arange(10.0), "b": np.full((3, 3), 7, np.int8)}


# --- the header -------------------------------------------------------------------------------------------------------


def header_of(path: Path) -> tuple[bytes, dict]:
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return data[:end], json.loads(data[8:end])


def test_a_format_of_the_users_own_is_kept_also_at_a_relative_path(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    oc.save(path.name, NEW, {"format": "mlx"})
    assert oc.open(path).metadata == {"format": "mlx"}
    assert names_in(path.parent) == [path.name]


ZERO = np.zeros(1)
REFUSED = [
    *(({"metadata": metadata}, TypeError) for metadata in ({"a": 5}, {5: "a"})),
    *(({"align": align}, oc.FormatError) for align in (0, 96, 4 * MIB)),
    ({"metadata": {"onecopy": "x"}}, oc.FormatError),
    ({"metadata": {"a": "\ud800"}}, (TypeError, ValueError)),
    ({"arrays": {"__metadata__": ZERO}}, oc.FormatError),
    ({"arrays": {5: ZERO}}, TypeError),
    ({"arrays": {"\ud800": ZERO}}, (TypeError, ValueError)),
    ({"arrays": {"#0": ZERO}, "align": 64}, oc.FormatError),
    ({"align": -64}, ValueError),
]


@pytest.mark.parametrize(("arguments", "error"), REFUSED)
def test_what_a_header_cannot_represent_is_refused_and_the_old_file_stays(path, arguments, error):
    oc.save(path, OLD)
    before = path.read_bytes()
    with pytest.raises(error):
        oc.save(path, **({"arrays": NEW} | arguments))
    assert path.read_bytes() == before
    assert names_in(path.parent) == [path.name]


def test_the_checksums_are_those_of_the_document(path):
    oc.save(path, {"a": np.random.default_rng(1).bytes(3000)}, {"note": "x"})
    header, table = header_of(path)
    told = json.loads(table["__metadata__"]["onecopy"])["crc32c"]
    zeroed = header.replace(told["header"].encode(), b"00000000")
    assert told["block"] == 2 * MIB
    assert base64.b64decode(told["data"]) == struct.pack("<I", crc32c(path.read_bytes()[len(header) :]))
    assert told["header"] == f"{crc32c(zeroed):08x}"


def test_the_users_texts_may_look_like_our_checksum(path):
    text = '"header":"00000000"'
    for name, note in ((text, "x"), ("a", text)):
        oc.save(path, {name: np.arange(3)}, {"note": note})
        assert oc.open(path).kind == "arrays"


def test_a_file_whose_header_ends_near_a_multiple_of_2_mib_can_be_opened(path):
    # With this header the data touches two blocks of checksums, whose digits move the data by a page, where it
    # touches one block, whose digits ...
    array = np.zeros(2 * MIB, np.uint8)
    oc.save(path, {"a": array}, {"m": ""})
    needed = len(header_of(path)[0].rstrip()) - 8
    for more in range(-1, 6):
        oc.save(path, {"a": array}, {"m": "x" * (2 * MIB - 4096 - 8 - needed + more)})
        assert oc.open(path)["a"].tobytes() == array.tobytes()


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_rights_follow_the_umask(path, umask):
    before = os.umask(umask)
    try:
        oc.save(path, NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_links_in_the_place_are_followed_and_stay(tmp_path):
    (tmp_path / "store").mkdir()
    link = tmp_path / "link"
    link.symlink_to(Path("store", "second"))
    (tmp_path / "store" / "second").symlink_to("real")
    for arrays in (OLD, NEW):  # it leads nowhere at first
        oc.save(link, arrays)
        assert link.is_symlink()
        assert list(oc.open(tmp_path / "store" / "real")) == list(arrays)
        assert names_in(tmp_path / "store") == ["real", "second"]


class Lazy(dict[str, object]):
    """Arrays that are made when asked for; from the given time on something goes wrong."""

    def __init__(self, fail_at: int, failure: object) -> None:
        super().__init__(dict.fromkeys("abc"))
        self.calls, self.fail_at, self.failure = 0, fail_at, failure

    def __getitem__(self, name: str) -> object:
        self.calls += 1
        if self.calls < self.fail_at:
            return np.full((1000, 1000), ord(name), np.float32)
        if isinstance(self.failure, type):
            raise self.failure("broken")
        return self.failure


@pytest.mark.parametrize("fail_at", [1, 3, 4, 6])
@pytest.mark.parametrize(
    "failure", [RuntimeError, KeyboardInterrupt, np.zeros(1_000_000, "f4"), np.zeros((1000, 1000), "i4"), [1, 2]]
)
def test_a_save_that_fails_half_way_leaves_the_old_file_and_nothing_else(path, fail_at, failure):
    if isinstance(failure, np.ndarray):
        fail_at = max(
            fail_at, 4
        )  # an array of another shape or type than it had at first; before, it simply is the array
    for before in (b"", b"old"):
        if before:
            path.write_bytes(before)
        with pytest.raises((RuntimeError, KeyboardInterrupt, ValueError, TypeError)):
            oc.save(path, Lazy(fail_at, failure))
        assert names_in(path.parent) == ([path.name] if before else [])
    assert path.read_bytes() == before
    oc.save(path, Lazy(99, None))  # nothing is in the way of the next
    assert oc.open(path)["c"][0, 0] == ord("c")


def test_a_full_disk_is_reported_before_any_data_is_read(small_disk, in_child):
    def save_too_much() -> tuple[int, list[str]]:
        path, arrays = small_disk("tmpfs") / "model", Lazy(99, None)
        oc.save(path, OLD)
        with pytest.raises(OSError, match="No space left") as raised:
            oc.save(path, arrays)
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(path))
        assert list(oc.open(path)) == list(OLD)
        return arrays.calls, names_in(path.parent)

    # Each array is asked for once, for its type: free space is compared first, also where nothing can be reserved.
    assert in_child(save_too_much) == (3, ["model"])
