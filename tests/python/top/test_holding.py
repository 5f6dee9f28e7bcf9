"""`Holder`: what a refresh finds, reads back, and reports. The page cache is judged by mincore."""

import os
import resource
import shutil

import pytest
from tests.support.kernel import is_root
from tests.support.shards import write_set

import onecopy as oc
from onecopy.base.text import size
from onecopy.memory import proc
from onecopy.run import holder
from onecopy.run.holder import Change, Holder

MIB = 1 << 20
PAGE = resource.getpagesize()


def whats(changes) -> list[str]:
    return [change.what for change in changes]


def news(hold: Holder) -> list[Change]:
    """Refresh; without files that the kernel reclaimed meanwhile, as it may of those that are not locked."""
    return [change for change in hold.refresh() if change.what != "warmed"]


def drop(hold: Holder, number: int = 0) -> None:
    """Take a file out of memory as the kernel does when memory is short: out of the mapping that holds it, too."""
    mapping = hold._files[number].mapping
    assert mapping is not None
    oc.evict(mapping)


@pytest.fixture
def two_files(cold_file):
    return cold_file(4 * MIB, "a.bin"), cold_file(2 * MIB, "b.bin")


def test_the_first_look_brings_everything_in_and_the_second_finds_nothing_to_do(two_files, cached):
    with Holder([*two_files, str(two_files[0])], pin=0) as hold:  # a path that is given twice counts once
        changes = hold.refresh()
        assert [(c.path, c.what, c.filled, c.resident) for c in changes] == [
            (str(path), "held", path.stat().st_size, path.stat().st_size) for path in two_files
        ]
        assert [cached(path) for path in two_files] == [4 * MIB, 2 * MIB]
        assert (hold.files, hold.wanted, hold.resident, hold.locked) == (2, 6 * MIB, 6 * MIB, 0)
        assert news(hold) == []
    assert (hold.files, hold.refresh()) == (0, [])
    with pytest.raises(FileNotFoundError) as raised:
        Holder([*two_files, two_files[0].with_name("missing")])
    assert raised.value.filename == str(two_files[0].with_name("missing"))
    with pytest.raises(TypeError, match="a list of paths"):
        Holder(two_files[0])


@pytest.mark.parametrize(("budget", "held"), [(0, 0), (PAGE - 1, 0), (5 * MIB + 1, 5 * MIB)])
def test_the_budget_is_for_all_files_in_their_order(two_files, cached, budget, held):
    with Holder(two_files, max_bytes=budget, pin=0) as hold:
        first, second = news(hold)
        assert (first.what, second.what, second.wanted) == (("held", "short", MIB) if held else ("short", "short", 0))
        assert second.reason == f"the budget of {size(budget)} is used up"
        assert (hold.wanted, hold.locked) == (held, 0)
        assert cached(two_files[0]) == min(held, 4 * MIB)
        assert cached(two_files[1]) >= max(held - 4 * MIB, 0)
        assert news(hold) == []


def test_a_replaced_file_is_held_and_the_old_one_let_go(two_files, cold_file, cached):
    new = cold_file(3 * MIB, "new.bin")
    with Holder(two_files, pin=0) as hold:
        hold.refresh()
        new.replace(two_files[0])
        assert [(change.what, change.filled) for change in news(hold)] == [("replaced", 0), ("held", 3 * MIB)]
        assert cached(two_files[0]) == 3 * MIB
        assert not any(region.path.endswith("(deleted)") for region in proc.maps(os.getpid()) if "a.bin" in region.path)


def test_a_file_that_shrinks_leaves_its_part_of_the_budget_to_the_next(two_files, cold_file):
    with Holder(two_files, max_bytes=5 * MIB, pin=0) as hold:
        assert whats(news(hold)) == ["held", "short"]
        cold_file(MIB, "new.bin").replace(two_files[0])
        assert whats(hold.refresh()) == ["replaced", "held", "warmed"]
        assert hold.wanted == 3 * MIB


def test_a_truncated_file_is_reported_once_and_the_others_stay(two_files):
    path, other = two_files
    with Holder(two_files, pin=0) as hold:
        hold.refresh()
        os.truncate(path, MIB)
        (change,) = news(hold)
        assert (change.path, change.what) == (str(path), "lost")
        assert change.reason == f"truncated from {4 * MIB} to {MIB} bytes"
        drop(hold, 1)
        changes = hold.refresh()  # the truncated one is at rest
        assert {change.path: change.what for change in changes} == {str(path): "held", str(other): "warmed"}
        os.truncate(path, 0)
        assert whats(news(hold)) == ["lost"]
        assert [change.what for _ in range(4) for change in news(hold)] == ["lost"]  # reported once as empty


def test_a_file_that_was_written_in_place_is_held_when_it_is_at_rest(two_files):
    path = two_files[0]
    with Holder(two_files, pin=0) as hold:
        hold.refresh()
        with path.open("ab") as file:
            file.write(bytes(MIB))
        assert [(c.what, c.reason) for c in news(hold)] == [("lost", "modified in place")]
        with path.open("ab") as file:
            file.write(bytes(MIB))
        assert news(hold) == []
        (change,) = news(hold)
        assert (change.what, change.size) == ("held", 6 * MIB)


def test_a_removed_file_is_reported_once_and_held_when_it_is_back(two_files, tmp_path):
    path = two_files[0]
    with Holder(two_files, pin=0) as hold:
        hold.refresh()
        path.rename(tmp_path / "away")
        (change,) = news(hold)
        assert (change.what, change.reason) == ("lost", "No such file or directory")
        assert (change.size, change.wanted, change.resident, change.locked) == (0, 0, 0, 0)
        assert news(hold) == []
        shutil.copy(tmp_path / "away", path)
        assert whats([*news(hold), *news(hold)]) == ["held"]
        path.unlink()
        path.mkdir()
        assert [(c.what, c.reason) for c in news(hold)] == [("lost", "open: Is a directory")]
        path.rmdir()
        os.mkfifo(path)
        assert [change.what for _ in range(4) for change in news(hold)] == ["lost"]


def locked() -> int | None:
    return proc.status(os.getpid()).vm_lck


def test_pages_are_locked_until_the_end(two_files):
    before = locked()
    if before is None:
        pytest.skip("the kernel does not tell what is locked")
    with Holder(two_files, pin=4 * MIB + 3 * PAGE) as hold:
        changes = news(hold)
        if not hold.locked:
            pytest.skip("this process may lock nothing")
        assert [change.locked for change in changes] == [4 * MIB, 3 * PAGE]
        hold.refresh()
        assert locked() == before + hold.locked == before + 4 * MIB + 3 * PAGE
    assert locked() == before


def test_no_more_is_locked_than_the_budget_when_a_file_leaves_less_of_it_to_the_next(two_files, cold_file):
    with Holder(two_files, max_bytes=6 * MIB) as hold:
        hold.refresh()
        if hold.locked != 6 * MIB:
            pytest.skip("this process may not lock so much")
        before = locked()
        cold_file(5 * MIB, "new.bin").replace(two_files[0])
        hold.refresh()
        assert (hold.wanted, hold.locked, locked()) == (6 * MIB, 6 * MIB, before)


def test_as_much_is_locked_as_the_limit_allows(two_files, in_child, monkeypatch):
    monkeypatch.chdir(two_files[0].parent)  # only root may walk the way to it
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if resource.RLIM_INFINITY != most < MIB:
        pytest.skip(f"the limit of what may be locked is {most} bytes, and cannot be raised")

    def refreshed() -> list[int]:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (MIB, MIB))
        with Holder(path.name for path in two_files) as hold:
            return [change.locked for change in news(hold)]

    if is_root():  # root may lock everything, whatever the limit
        for path in (*two_files, two_files[0].parent):
            path.chmod(0o755)
        assert in_child(refreshed) == [4 * MIB, 2 * MIB]
        assert in_child(refreshed, uid=65534) == [MIB, 0]
    else:
        assert in_child(refreshed) == [MIB, 0]


def test_the_folder_of_a_model_is_held_as_the_files_of_its_weights(tmp_path):
    index = write_set(tmp_path)
    shards = sorted(str(path) for path in tmp_path.glob("*.safetensors"))
    broken = tmp_path / "model.onnx"  # has the name of a model, and is none
    broken.write_bytes(b"\xff" * PAGE)
    with Holder([tmp_path, shards[0], broken], pin=0) as hold:
        assert sorted(change.path for change in hold.refresh()) == sorted([str(index), *shards, str(broken)])
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        Holder([tmp_path.parent])


def test_half_of_the_memory_is_the_budget_where_none_is_given(two_files, monkeypatch):
    monkeypatch.setattr(holder, "available_memory", lambda: 10 * MIB)
    with Holder(two_files, pin=0) as hold:
        assert hold.max_bytes == 5 * MIB
        assert whats(news(hold)) == ["held", "short"]
        assert repr(hold) == "<onecopy.Holder 2 files, 5.24 MB of 5.24 MB in memory>"
    monkeypatch.setattr(holder, "available_memory", lambda: None)
    with Holder(two_files, pin=0) as hold:
        assert whats(news(hold)) == ["held", "held"]


def test_a_truncation_that_no_look_saw_coming_is_a_change_and_no_signal(two_files, monkeypatch):
    with Holder(two_files, pin=0) as hold:
        monkeypatch.setattr(holder, "_compared", lambda _: None)  # it comes right after the comparison
        os.truncate(two_files[0], 0)
        assert whats(news(hold)) == ["lost", "held"]
