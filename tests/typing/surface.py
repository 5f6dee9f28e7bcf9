"""What type checkers see; never run. `revealed` and `refused` are compared by test_types.py."""

import os
from pathlib import Path
from typing import reveal_type

import numpy as np

import onecopy as oc
import onecopy.arrays
import onecopy_monitor
from onecopy.arrays.scratch import alloc
from onecopy_monitor import assert_shared
from onecopy_records.shuffle import Shuffle

file = oc.open("model.safetensors")
mapping = oc.Mapping(Path("data.bin"), 5, length=10, mode="copy")

# Opening and looking.
reveal_type(file)  # revealed: onecopy.arrays.file.ArrayFile
reveal_type(file["w"])  # revealed: numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]
reveal_type(file.get("w"))  # revealed: numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]] | None
reveal_type(list(file))  # revealed: list[str]
reveal_type(file.shard("w", 0, 2, axis=1))  # revealed: numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]
reveal_type(file.entries[0].dtype)  # revealed: str
reveal_type(file.entry("w").shape)  # revealed: tuple[int, ...]
reveal_type(file.metadata)  # revealed: dict[str, str]
reveal_type(file.mode)  # revealed: Literal['map'] | Literal['copy'] | Literal['snapshot']
reveal_type(mapping.view())  # revealed: memoryview[int]
reveal_type(mapping.identity)  # revealed: tuple[int, int, int, int]
reveal_type(mapping.address)  # revealed: int
reveal_type(oc.Mapping.from_descriptor(3))  # revealed: onecopy.files.mapping.Mapping
reveal_type(file.path_of("w"))  # revealed: str
reveal_type(file.memory_of("w").strides)  # revealed: tuple[int, ...]
reveal_type(oc.open("x", align=64))  # revealed: onecopy.arrays.file.ArrayFile
reveal_type(onecopy.arrays.open_arrays("x"))  # revealed: onecopy.arrays.file.ArrayFile
with file as entered:
    reveal_type(entered)  # revealed: onecopy.arrays.file.ArrayFile

# Residency.
reveal_type(oc.warm(file))  # revealed: onecopy._core.WarmReport
reveal_type(oc.warm("data.bin", [(0, 5)], wait=True))  # revealed: onecopy._core.WarmReport
reveal_type(oc.warm(mapping, wait=False))  # revealed: onecopy.files.page_cache.WarmJob
reveal_type(file.warm(["w", ("w", slice(0, 5))]))  # revealed: onecopy._core.WarmReport
reveal_type(file.warm(wait=False))  # revealed: onecopy.files.page_cache.WarmJob
reveal_type(oc.warm(mapping, wait=False).wait(2.5))  # revealed: onecopy._core.WarmReport
reveal_type(oc.warm(mapping, wait=False).progress)  # revealed: tuple[int, int]
reveal_type(oc.warm(mapping).cached_after)  # revealed: int | None
reveal_type(oc.warm(mapping).huge_share)  # revealed: float | None
reveal_type(oc.warm(mapping).mechanism)  # revealed: str
reveal_type(oc.warm(mapping).complete)  # revealed: bool
reveal_type(oc.evict(Path("data.bin")))  # revealed: onecopy._core.EvictReport
reveal_type(oc.residency(mapping).share)  # revealed: float | None
reveal_type(file.residency(["w"]))  # revealed: onecopy._core.Residency
reveal_type(oc.files.pin(mapping).pinned)  # revealed: int

reveal_type(oc.explain())  # revealed: onecopy.memory.explaining.Explanation
reveal_type(oc.explain(file).private)  # revealed: int
reveal_type(oc.explain([4711, 4712], seconds=0.5).bad)  # revealed: tuple[onecopy.memory.explaining.Cause, ...]
reveal_type(oc.file_key("x", version="2"))  # revealed: str
oc.explain(file, 5)  # refused: call-overload

# The store.
store = oc.Store("folder", where="here", durable=False, timeout=5, on_wait=None)
reveal_type(store.get_or_build("key", print, source="x").path)  # revealed: pathlib.Path
reveal_type(store.find("key"))  # revealed: onecopy.store.store.Artefact | None
reveal_type(store.with_options(timeout=1))  # revealed: onecopy.store.store.Store
reveal_type(store.prune(max_bytes="20 GiB").removed)  # revealed: list[onecopy.store.store.Artefact]
oc.Store(where="there")  # refused: arg-type
oc.share([1], store=5)  # refused: call-overload
oc.share([1], "key", store=store, progress=lambda done, total: print(done / total))
oc.images.open("slide.ndpi", store=store)

# Records.
reveal_type(oc.open_records("x"))  # revealed: onecopy_records.rows.List[Any] | onecopy_records.rows.Dict[Any, Any]
reveal_type(oc.open_records("x", oc.records.Table))  # revealed: onecopy_records.rows.Table[Any]
reveal_type(oc.open_records("x", oc.records.Dict))  # revealed: onecopy_records.rows.Dict[Any, Any]
reveal_type(oc.open(oc.Store().get_or_build("x", print)))  # revealed: onecopy.arrays.file.ArrayFile
oc.open_records("x", list)  # refused: type-var
reveal_type(oc.share(["a", "b"]))  # revealed: onecopy_records.rows.List[str]
reveal_type(oc.share(lambda: [{"id": 1}], key="k")[0])  # revealed: dict[str, int]
reveal_type(oc.share(["a"])[0])  # revealed: str
reveal_type(oc.share(["a"])[:1])  # revealed: onecopy_records.rows.List[str]
reveal_type(oc.share({"a": 1.5}))  # revealed: onecopy_records.rows.Dict[str, float]
reveal_type(oc.share(lambda: {"a": 1}, key="k")["a"])  # revealed: int

# Images.
reveal_type(oc.images.open("slide.ndpi", level=1).array)  # revealed: numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]
reveal_type(oc.images.open("slide.ndpi").artefact)  # revealed: onecopy.store.store.Artefact | None
reveal_type(oc.images.decode("slide.ndpi"))  # revealed: onecopy.arrays.scratch.Scratch
reveal_type(oc.images.codecs.read_facts("slide.ndpi").levels)  # revealed: tuple[tuple[int, ...], ...]
reveal_type(oc.images.register(["a.tif", np.zeros((3, 3))], (1, 2)).guessed)  # revealed: tuple[int, ...]
whole = oc.images.mosaic([lambda: np.zeros((3, 3))], [(0, 0)], "a.oc")
reveal_type(whole)  # revealed: onecopy_images.pasting.Mosaic

# Sampling.
reveal_type(Shuffle(10)[3])  # revealed: int
reveal_type(Shuffle(10)[::2])  # revealed: onecopy_records.shuffle.Shuffle
reveal_type(list(Shuffle(10).shard(1, 2).batches(3)))  # revealed: list[list[int]]

# Workers.
reveal_type(oc.torch.share_dataset([1], "1MB", key="k"))  # revealed: list[int]
reveal_type(assert_shared(file, [1, 2]).pss)  # revealed: int

# Saving takes any mapping to anything; None comes back.
oc.save("x", {"a": np.zeros(3), "b": b"abc"}, {"step": "1"}, align=64, checksum=False)
oc.save(Path("x"), file)

oc.save("x", {}, progress=lambda done, total: print(done / total))

# What a checker must refuse.
oc.open("x", align="64")  # refused: arg-type
oc.images.open("x", "1")  # refused: arg-type
oc.images.mosaic([5], [(0, 0)])  # refused: list-item
oc.open("x", mode="mapped")  # refused: arg-type
oc.open("x", "map", True)  # refused: call-arg
oc.Mapping("x", mode="x")  # refused: arg-type
oc.Mapping("x", 0, None, "copy")  # refused: call-arg
oc.warm(mapping, mechanism="magic")  # refused: call-overload
oc.warm(mapping, wait=False, progress=print)  # refused: call-overload
oc.files.pin("data.bin")  # refused: arg-type
oc.save("x", {1: np.zeros(3)})  # refused: dict-item
oc.save("x", {}, {"step": 1})  # refused: dict-item
Shuffle("10")  # refused: arg-type
file["w"] = np.zeros(3)  # refused: index
mapping.nbytes = 5  # refused: misc
oc.warm(mapping).bytes = 5  # refused: misc
os.fspath(file)  # refused: call-overload

# Scratch arrays.
canvas = oc.scratch((3, 4), "u2", Path("folder"), max_resident="64 MiB")
reveal_type(canvas)  # revealed: onecopy.arrays.scratch.Scratch
reveal_type(canvas.array)  # revealed: numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]
reveal_type(canvas.release((slice(0, 5), ..., 3)))  # revealed: onecopy._core.ReleaseReport
reveal_type(canvas.prefetch(0))  # revealed: onecopy._core.WarmReport
reveal_type(canvas.memory().over)  # revealed: int | None
reveal_type(canvas.seal())  # revealed: onecopy.arrays.scratch.SealedArray
reveal_type(canvas.save("x").copied)  # revealed: bool
reveal_type(np.asarray(canvas))  # revealed: numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]
small = alloc(1000, np.float32, "1 MiB")
reveal_type(small)  # revealed: onecopy.arrays.scratch.Scratch
reveal_type(oc.warm(canvas.seal()))  # revealed: onecopy._core.WarmReport
with canvas as entered_canvas:
    reveal_type(entered_canvas)  # revealed: onecopy.arrays.scratch.Scratch

# Memory of a block.
with onecopy_monitor.watch([1], children=False, interval=0.05) as watched:
    reveal_type(watched)  # revealed: onecopy_monitor.watching.Watch
reveal_type(watched.peak.anonymous.bytes)  # revealed: int
reveal_type(watched.series.total.numbers("real"))  # revealed: list[float]
watched.assert_peak(anonymous="200 MiB", real=10**9)
watched.assert_peak(rss="1 GB")  # refused: call-arg
onecopy_monitor.watch(interval="10")  # refused: arg-type

# Objects and cached functions.


@oc.cached(inputs=["a.json"])
def cached_rows(limit: int) -> list[dict[str, int]]:
    return [{"a": limit}]


@oc.cached(inputs=lambda folder: [folder], codec="object", store=store)
def cached_object(folder: str) -> dict[str, float]:
    return {folder: 1.5}


reveal_type(cached_rows(5))  # revealed: onecopy_records.rows.List[dict[str, int]]
reveal_type(cached_object("a"))  # revealed: dict[str, float]
reveal_type(cached_object.key("a"))  # revealed: str
cached_rows("5")  # refused: arg-type
oc.cached(inputs=5)  # refused: call-overload
reveal_type(oc.share_object(lambda: 1.5, "k"))  # revealed: float
reveal_type(oc.load_object("a.oc", trusted=True))  # revealed: Any
oc.load_object("a.oc")  # refused: call-arg
oc.Store(max_bytes=1.5)  # refused: arg-type
