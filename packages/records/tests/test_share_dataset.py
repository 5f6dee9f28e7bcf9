"""Datasets as people have them: what is moved, what stays and why, and that their workers share it."""

import copy
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.datasets import Bag, Part, Pictures, moved, stays

import onecopy as oc
from onecopy_records.torch_datasets import estimated_bytes

MB = 1_000_000


def test_a_dataset_gives_the_same_items_as_before():
    before, dataset = Pictures(), Pictures()
    assert oc.torch.share_dataset(dataset, "100kB") is dataset
    assert list(moved(dataset)) == ["samples", "targets", "boxes"]
    assert len(dataset) == len(before)
    for i in (0, 1, 777, -1):
        sample, target, boxes = dataset[i]
        assert (sample, target) == (before.samples[i], before.targets[i])
        assert (type(sample), type(sample[0]), type(target)) == (tuple, str, int)
        assert type(boxes) is np.ndarray
        assert np.array_equal(boxes, before.boxes[i])
    assert list(dataset.samples) == before.samples


def test_what_is_small_stays_the_very_object():
    dataset = Pictures()
    classes, samples = dataset.classes, dataset.samples
    oc.torch.share_dataset(dataset, "1GB")
    assert dataset.classes is classes
    assert dataset.samples is samples
    assert dataset.onecopy_report.attributes == ()
    assert str(dataset.onecopy_report) == "no attribute of the dataset is large"


def test_one_object_under_two_names_is_one_afterwards():
    dataset = oc.torch.share_dataset(Pictures())
    assert dataset.imgs is dataset.samples
    assert len([name for name in moved(dataset) if name in ("imgs", "samples")]) == 1


def test_datasets_in_datasets_are_looked_into():
    pictures = Pictures()
    both = Bag(datasets=[Part(pictures, list(range(200_000))), Pictures()], again=pictures)
    both.itself = both
    oc.torch.share_dataset(both)
    assert {"datasets[0].dataset.samples", "datasets[0].indices", "datasets[1].boxes"} <= set(moved(both))
    assert not any(name.startswith("again") for name in moved(both))
    assert isinstance(pictures.samples, oc.records.List)
    assert both.datasets[0][19_999][0] == ("images/00019999.jpg", 9)


def test_the_report_is_a_table_and_its_figures_are_right():
    dataset = oc.torch.share_dataset(Pictures(100_000))
    boxes = moved(dataset)["boxes"]
    assert (boxes.kind, boxes.rows, boxes.bytes_before, boxes.bytes_after) == (
        "ndarray float32", 100_000, 12_800_000, 12_800_000,
    )  # fmt: skip
    samples = moved(dataset)["samples"]
    exact = sum(sys.getsizeof(pair) + sys.getsizeof(pair[0]) for pair in dataset.samples) + 8 * 100_000
    assert 0.7 * exact < samples.bytes_before < 1.3 * exact
    assert 0 < samples.bytes_after == dataset.samples.nbytes < samples.bytes_before
    lines = str(dataset.onecopy_report).splitlines()
    assert lines[0].split() == ["attribute", "type", "rows", "before", "after"]
    assert lines[3].split() == ["boxes", "ndarray", "float32", "100,000", "~12.8", "MB", "12.8", "MB", "now", "a",
                                "MappedArray", "float32"]  # fmt: skip


def test_sharing_again_changes_nothing():
    dataset = oc.torch.share_dataset(Pictures())
    first = dict(vars(dataset))
    oc.torch.share_dataset(dataset)
    assert all(vars(dataset)[name] is value for name, value in first.items() if name != "onecopy_report")


class Slotted:
    __slots__ = ("samples",)


def test_an_object_without_attributes_is_an_error():
    with pytest.raises(TypeError, match="attributes of a Slotted: it has no __dict__"):
        oc.torch.share_dataset(Slotted())
    with pytest.raises(ValueError, match="is not a size"):
        oc.torch.share_dataset(Pictures(3), "big")


def test_a_frozen_class_and_a_property_do_not_stand_in_the_way():
    class Guarded(Bag):
        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError("frozen")

    dataset = oc.torch.share_dataset(Guarded(names=["name"] * 300_000), "1kB")
    assert isinstance(dataset.names, oc.records.List)


def test_a_dict_is_found_by_its_keys_as_before():
    boxes = {f"{i:06}.jpg": [i, 2.5] for i in range(30_000)}
    by_number = {i * 7: f"name {i}" for i in range(30_000)}
    dataset = oc.torch.share_dataset(Bag(boxes=boxes, by_number=by_number), "100kB")
    assert set(moved(dataset)) == {"boxes", "by_number"}
    assert (dataset.boxes["000007.jpg"], dataset.by_number[77], 78 in dataset.by_number) == ([7, 2.5], "name 11", False)
    assert dataset.boxes == boxes
    assert list(dataset.by_number.items()) == list(by_number.items())
    with pytest.raises(TypeError, match="'Dict' object does not support item assignment: shared data is read-only"):
        dataset.boxes["x"] = 1
    with pytest.raises(AttributeError, match=r"no attribute 'update': shared data is read-only: .* dict\(data\)"):
        dataset.boxes.update(x=1)


class Names(list[str]):
    """More than a list, perhaps."""


STAY = {
    "set": (set(range(50_000)), "a set cannot be shared: convert it to a sorted list or a dict"),
    "subclass": (
        Names(f"{i}" for i in range(50_000)),
        "the class Names may behave differently from its base class: convert",
    ),
    "objects": (np.array([None] * 200_000), "an array of Python objects cannot be shared: convert it to a list"),
    "contents": (
        np.array([{"n": i} for i in range(20_000)]),
        "an array of Python objects cannot be shared: convert it to a list",
    ),
    "text": ("x" * 2_000_000, "a str cannot be shared"),
    "lambda": ([*range(100_000), lambda: 3], r"[100000]: "),
    "bag": (Bag(rows=[str(i) for i in range(50_000)]), "call oc.torch.share_dataset to share its attributes"),
}


@pytest.mark.parametrize("kind", STAY)
def test_what_cannot_be_moved_stays_and_the_reason_is_reported(kind):
    value, reason = STAY[kind]
    dataset = oc.torch.share_dataset(Bag(value=value, names=[str(i) for i in range(50_000)]))
    assert dataset.value is value
    assert stays(dataset)["value"].startswith("not shared: ")
    assert reason in stays(dataset)["value"]
    assert isinstance(dataset.names, oc.records.List)


def test_a_memory_map_stays(tmp_path):
    np.arange(1_000_000.0).tofile(tmp_path / "raw")
    dataset = oc.torch.share_dataset(Bag(raw=np.memmap(tmp_path / "raw", float, "r")))
    assert "mapped" in stays(dataset)["raw"]


def test_writing_to_what_was_shared_raises_with_what_to_do():
    dataset = oc.torch.share_dataset(Pictures())
    assert not hasattr(dataset.samples, "append")
    with pytest.raises(AttributeError, match=r"no attribute 'append': shared data is read-only: .* list\(data\)"):
        dataset.samples.append(("x", 1))
    with pytest.raises(TypeError, match="does not support item assignment: shared data is read-only"):
        dataset.samples[0] = ("x", 1)
    with pytest.raises(TypeError, match="does not support item deletion: shared data is read-only"):
        del dataset.samples[0]
    with pytest.raises(AttributeError, match=r"'List' object has no attribute 'shape'$"):
        dataset.samples.shape  # noqa: B018


def test_an_array_that_is_written_to_changes_for_nobody_else():
    dataset = oc.torch.share_dataset(Pictures())
    handle = pickle.dumps(dataset.boxes)
    dataset.boxes[0] = 7
    box = dataset.boxes[1]
    box /= 2
    assert (dataset.boxes[0, 0, 0], dataset.boxes[1, 0, 1]) == (7, 16.5)
    assert np.array_equal(pickle.loads(handle), Pictures().boxes)


@pytest.mark.parametrize("dumps", [pickle.dumps, ForkingPickler.dumps, copy.copy], ids=["pickle", "processes", "copy"])
def test_what_was_written_to_an_array_is_in_every_copy_of_it(dumps):
    boxes = oc.torch.share_dataset(Pictures()).boxes
    boxes[7] = 5
    again = dumps(boxes) if dumps is copy.copy else pickle.loads(dumps(boxes))
    assert np.array_equal(again, boxes)
    assert (again[7] == 5).all()


@pytest.mark.parametrize(
    "value",
    [
        [f"name {i}" for i in range(30_000)],
        [{"id": i, "box": [float(i), 2.5 * i], "name": str(i)} for i in range(5_000)],
        {f"key {i}": (float(i), i + 1000) for i in range(5_000)},
        [["one object"]] * 10_000,
        [],
    ],
    ids=["texts", "dicts", "dict", "same", "empty"],
)
def test_an_estimate_is_near_what_is_counted(value):
    seen: set[int] = set()

    def counted(part: Any) -> int:
        if id(part) in seen:
            return 0
        seen.add(id(part))
        children = [*part, *part.values()] if isinstance(part, dict) else part if isinstance(part, list | tuple) else []
        return sys.getsizeof(part) + sum(map(counted, children))

    exact = counted(value)
    assert 0.8 * exact <= estimated_bytes(value) <= 1.3 * exact


ARRAYS = {
    "float": np.arange(20.0).reshape(4, 5),
    "fortran": np.asfortranarray(np.arange(20.0).reshape(4, 5)),
    "strided": np.arange(40)[::2],
    "text": np.array(["a", "bcd", "ä"]),
    "bytes": np.array([b"a", b"bcd"]),
    "date": np.array(["2026-01-01", "2027-02-03"], "M8[D]"),
    "structured": np.array([(1, 2.5), (3, 4.5)], "i4,f8"),
    "complex": np.arange(5) * 1j,
    "bool": np.array([True, False]),
    "big endian": np.arange(5, dtype=">i4"),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "scalar": np.array(7.5),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_every_type_are_the_same_afterwards_also_elsewhere(kind):
    before = ARRAYS[kind]
    ours = oc.torch.share_dataset(Bag(array=before), 0).array
    handle = bytes(ForkingPickler.dumps(ours))
    for after in (ours, pickle.loads(handle), copy.copy(ours), copy.deepcopy(ours)):
        assert isinstance(after, np.ndarray)
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        assert after.tobytes() == before.tobytes()
    assert ours.flags.writeable
    assert ours.flags.aligned


def test_an_array_travels_as_a_handle_and_its_parts_as_themselves():
    array = oc.torch.share_dataset(Bag(array=np.arange(1_000_000)), 0).array
    assert len(ForkingPickler.dumps(array)) < 400
    assert len(pickle.dumps(array)) > array.nbytes  # it outlives this process
    for part in (
        array[5:10],
        array.reshape(-1, 10)[3],
        array.view(np.int64),
        array + 1,
        next(iter(array.reshape(10, -1))),
    ):
        again = pickle.loads(pickle.dumps(part))
        assert type(again) is np.ndarray
        assert np.array_equal(again, part)
    assert type(array[3:]) is type(array * 2) is type(array.copy()) is np.ndarray
    assert array.sum() == np.arange(1_000_000).sum()
    assert isinstance(array[3], np.int64)


def test_with_a_key_processes_that_know_nothing_of_each_other_share(tmp_path, python, monkeypatch):
    code = """
        import sys
        import onecopy as oc

        class Names:
            def __init__(self):
                self.names = [f"name {i}" for i in range(100_000)]
                self.numbers = list(range(100_000))

        names = oc.torch.share_dataset(Names(), key="names 1")
        for part in names.onecopy_report.parts:
            print(part.path, part.file.identity)
        print(names.names[7], names.numbers[7])
    """
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    said = [python(code).splitlines() for _ in range(2)]
    assert said[0] == said[1]
    assert said[0][2] == "name 7 7"
    assert len(set(said[0])) == 3
    assert sorted(artefact.key for artefact in oc.Store().ls()) == ["names 1 names", "names 1 numbers"]


def test_a_key_that_does_not_say_all_is_an_error(tmp_path):
    def names(n: int) -> Bag:
        return Bag(names=[f"name {i}" for i in range(n)], numbers=np.arange(n))

    options: Any = {"key": "names 1", "store": tmp_path / "cache"}
    first = oc.torch.share_dataset(names(200_000), **options)
    again = oc.torch.share_dataset(names(200_000), **options)
    assert [part.path for part in first.onecopy_report.parts] == [part.path for part in again.onecopy_report.parts]
    with pytest.raises(ValueError, match="key 'names 1 names' refers to data with 200000 rows, but `data` has"):
        oc.torch.share_dataset(names(300_000), **options)
    longer = oc.torch.share_dataset(Bag(numbers=np.arange(300_000)), **options)  # type and shape are in an array's key
    assert longer.numbers[-1] == 299_999
