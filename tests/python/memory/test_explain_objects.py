"""What `explain` says of files and arrays: private bytes where they are, and none where not."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.shards import shard_of, write_set

import onecopy as oc
from onecopy import arrays

MIB = 1 << 20


def test_a_file_opened_in_each_mode_and_an_array_by_its_address_are_explained(tmp_path):
    path = tmp_path / "a.safetensors"
    oc.save(path, {"x": np.ones(MIB, np.uint8), "y": np.ones(MIB, np.uint8)})
    with oc.open(path) as mapped:
        assert mapped["x"].sum() == MIB
        told, of_array, of_copy = oc.explain(mapped), oc.explain(mapped["x"][4096:]), oc.explain(mapped["x"].copy())
    assert (told.findings[0].kind, told.private) == (of_array.findings[0].kind, of_array.private) == ("shared", 0)
    assert told.shared >= 2 * MIB
    assert f"{path}: " in str(told)
    assert "once for all processes" in str(told)
    assert "charged to" in str(told)
    assert of_array.findings[0].path == str(path)
    assert (of_copy.findings[0].kind, of_copy.private) == ("heap", MIB)
    assert str(of_copy).startswith("ndarray uint8[1048576]: 0 B in pages of files")
    with oc.open(path, mode="copy") as copied:
        told = oc.explain(copied)
    assert (told.findings[0].kind, told.findings[0].advice) == ("heap", "oc.open(path, mode='map')")
    assert told.private >= 2 * MIB
    assert told.saves == told.private
    with pytest.raises(ValueError, match="closed"):
        oc.explain(copied)
    with arrays.open_arrays(path, private=True) as file, memoryview(file.memory_of("x").view).cast("B") as view:
        view[5] = 7
        told = oc.explain(file)
    assert (told.findings[0].kind, 4096 <= told.private < MIB) == ("written", True)


def test_pages_dropped_since_this_process_warmed_a_file_are_reported(tmp_path):
    path = tmp_path / "a.safetensors"
    oc.save(path, {"x": np.ones(4 * MIB, np.uint8)})
    with oc.open(path) as file:
        oc.evict(file)
        if not (report := file.warm()).complete or not report.filled:
            pytest.skip("the kernel drops pages at once")
        assert "(100 %) were dropped since" not in str(oc.explain(file))
        oc.evict(file)
        if file.residency().cached is None:
            pytest.skip("this kernel does not report what is cached")
        assert "(100 %) were dropped since this process warmed it" in str(oc.explain(file))
    oc.save(path, {"x": np.zeros(4 * MIB, np.uint8)})
    with oc.open(path) as replaced:
        oc.evict(replaced)
        replaced.warm(["x"])  # a part of it
        oc.evict(replaced)
        assert "were dropped since" not in str(oc.explain(replaced))


def test_several_files_are_explained_one_by_one(tmp_path):
    with oc.open(write_set(tmp_path)) as several:
        told = oc.explain(several)
    assert sorted(Path(one.path).name for one in told.findings) == [shard_of(at) for at in range(3)]


@pytest.mark.parametrize("target", ["text", True, 1.5, [], [1.5]])
def test_what_cannot_be_explained_is_refused(target):
    with pytest.raises(TypeError, match="expected process ids, a session, a module, an opened file or an array"):
        oc.explain(target)
    with pytest.raises(ValueError, match=r"look_in applies to processes only, not to a "):
        oc.explain(target, look_in=["/"])


def test_records_are_explained(tmp_path):
    with oc.share([{"id": number} for number in range(1000)], "rows", store=tmp_path / "store") as rows:
        explained = oc.explain(rows)
        assert explained.target == f"Table of 1000 rows in {rows.path}"
        assert (explained.findings[0].kind, explained.private) == ("shared", 0)
