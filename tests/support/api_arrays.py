"""Actions on files of arrays: opening, saving, verifying, mapping, and what of them is in memory."""

import contextlib
import json
import os
import pickle
import threading
from typing import Any

import numpy as np
from tests.support.api_table import World, action, refused

import onecopy as oc
import onecopy.arrays
import onecopy.files.mapping
import onecopy.files.page_cache
import onecopy.run.holder
from onecopy.arrays.scratch import alloc
from onecopy.run.holder import Holder


class StopError(Exception):
    """Raised by a progress function."""


def stop(*_: object) -> None:
    raise StopError


@action()
def open_map(w: World) -> None:
    with oc.open(w.model) as file:
        assert file["a"][3, 4] == 94
        assert file.slice("a", slice(1, 3)).shape == (2, 30)
        assert file.shard("a", 1, 2).shape == (10, 30)
        assert file.memory_of("b").dtype == "I64"
        assert list(file) == ["a", "b", "c"]
        assert not file.changed()
        assert repr(file)
        refused(KeyError, file.__getitem__, "missing")
        refused(ValueError, file.shard, "a", 1, 7)
    refused(ValueError, file.__getitem__, "a")
    refused(TypeError, oc.ArrayFile)
    private = oc.open(w.model, private=True)
    view = private["a"]
    private.close()
    private.close()
    view[0, 0] = 7


@action(100)
def open_copy_and_auto(w: World) -> None:
    for mode in ("copy", "auto"):
        with oc.open(w.model, mode, threads=2, warm=True, verify=True) as file:
            assert file.mode_reason
    refused(ValueError, oc.open, w.model, "other")


@action()
def open_refused(w: World) -> None:
    refused(oc.Error, oc.open, w.hostile)
    refused(FileNotFoundError, oc.open, w.missing)
    refused(IsADirectoryError, oc.open, w.out)
    refused(ValueError, oc.open, "nul\0")
    refused(oc.FormatError, onecopy.arrays.open_arrays, w.json)
    refused(oc.errors.NoChecksum, oc.open, w.unchecked, verify=True)
    broken = w.folder / "broken.index.json"
    for text, error in (("../up", oc.FormatError), ("shard-1.safetensors", FileNotFoundError)):
        broken.write_text(json.dumps({"weight_map": {"x": text, "y": "missing"}}))
        refused(error, oc.open, broken)


@action()
def open_pickled(w: World) -> None:
    with oc.open(w.model) as file:
        text = pickle.dumps(file)
    with pickle.loads(text) as again:
        assert again["b"].sum() == 10
    other = pickle.dumps(oc.Mapping(w.bytes))
    os.utime(w.bytes, ns=(1, w.bytes.stat().st_mtime_ns + 1))
    refused(oc.errors.FileChanged, pickle.loads, other)


@action(60)
def open_aligned(w: World) -> None:
    with oc.open(w.misaligned, align=8192) as file:
        assert file.entry("b").offset % 8192 == 0
        assert onecopy.arrays.key_of(file, "1")
        assert onecopy.arrays.not_savable(file.entries) == {}
    refused(ValueError, oc.open, w.misaligned, align=3)


@action()
def open_set(w: World) -> None:
    with oc.open(w.index) as model:
        assert len(model.files) > 1
        assert model["y"].sum() == 21
        assert model.path_of("x").endswith("shard-1.safetensors")
        with pickle.loads(pickle.dumps(model)) as again:
            assert len(again) == 2


class _Tensor:
    """An array that is given by DLPack only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@action(60)
def save(w: World) -> None:
    path = w.out / "saved.safetensors"
    oc.save(path, w.arrays, {"k": "v"}, align=128, progress=lambda *_: None)
    others = {"t": np.asfortranarray(w.arrays["a"]), "big": np.arange(3, dtype=">i4"), "raw": b"123"}
    oc.save(path, others, checksum=False)
    oc.save(path, {"a": _Tensor(np.arange(20.0)), "b": _Tensor(np.arange(12).reshape(3, 4).T)})
    with alloc((3, 4), "f4") as canvas:
        assert np.from_dlpack(canvas).shape == (3, 4)
    refused(StopError, oc.save, path, w.arrays, progress=stop)
    for wrong in (object(), np.array(["x"]), _Tensor(np.array(["x"])), _Tensor(object())):
        refused(TypeError, oc.save, path, {"a": wrong})
    refused(oc.FormatError, oc.save, path, {"#0": np.arange(3)}, align=64)
    refused(ValueError, oc.save, w.out / "a.npy", w.arrays)
    refused(OSError, oc.save, w.missing / "below", w.arrays)


@action(100)
def verify(w: World) -> None:
    with oc.open(w.model) as file:
        assert file.verify().bytes
        assert file.warm(["a", ("b", slice(1, 3))], verify=True).verified
        refused(StopError, file.verify, progress=stop)
    with oc.open(w.damaged) as file:
        refused(oc.ChecksumError, file.verify)
        refused(oc.ChecksumError, file.warm, verify=True)


@action()
def mapping(w: World) -> None:
    with oc.Mapping(w.bytes, 100, 5000) as one, oc.Mapping(w.bytes, private=True) as private:
        view = one.view(10, 20)
        private.view()[0] = 1
        refused(IndexError, one.view, 9999)
        assert (one.views, one.changed(), os.fstat(one.fileno()).st_size) == (1, False, one.identity[2])
        assert one.address
        assert repr(one)
        del view
    refused(ValueError, one.view)
    refused(OSError, oc.Mapping, w.bytes, 10**9)
    refused(FileNotFoundError, oc.Mapping, w.missing)
    refused(ValueError, oc.Mapping, w.bytes, -1)
    oc.Mapping(w.bytes, mode="copy", threads=3).close()
    descriptor = os.memfd_create("scratch")
    os.write(descriptor, b"x" * 5000)
    with oc.Mapping.from_descriptor(descriptor, "name", 10) as one:
        refused(TypeError, pickle.dumps, one)
    os.close(descriptor)
    refused(OSError, oc.Mapping.from_descriptor, descriptor)


@action(100)
def guard_and_check(w: World) -> None:
    oc.files.guard()
    path = w.out / "truncated.bin"
    path.write_bytes(b"x" * 20_000)
    with oc.Mapping(path) as one:
        os.truncate(path, 0)
        assert one.view()[9000] == 0
        refused(oc.DataLost, oc.files.check)
    path.write_bytes(b"x")


@action(100)
def warm(w: World) -> None:
    for mechanism in ("auto", "populate", "read", "advise", "none"):
        oc.warm(w.bytes, mechanism=mechanism)
    assert oc.warm(w.bytes, [(0, 5000), (9000, 1)], max_bytes=10**6, progress=lambda *_: None).bytes
    job = oc.warm(w.bytes, wait=False)
    assert repr(job)
    assert job.wait(30).complete
    oc.warm(w.bytes, wait=False).cancel()
    thread = threading.Thread(target=oc.warm, args=(w.model,))
    thread.start()
    thread.join()
    refused(StopError, oc.warm, w.bytes, progress=stop)
    refused(FileNotFoundError, oc.warm, w.missing)
    refused(ValueError, oc.warm, w.bytes, mechanism="other")
    refused(ValueError, oc.warm, w.bytes, threads=-1)


@action(100)
def evict_and_residency(w: World) -> None:
    assert oc.evict(w.bytes).bytes
    assert oc.residency(w.bytes, [(0, 100)]).bytes
    with oc.open(w.model) as file:
        file.warm(["a"])
        assert file.residency(["a"]).bytes
        assert file.evict().bytes
    with w.bytes.open("rb") as opened, contextlib.suppress(OSError):  # a kernel without cachestat
        onecopy.files.page_cache.cachestat(opened.fileno())
    refused(OSError, onecopy.files.page_cache.cachestat, 10**6)
    refused(FileNotFoundError, oc.evict, w.missing)
    refused(FileNotFoundError, oc.residency, w.missing)


@action(100)
def pin_and_unpin(w: World) -> None:
    with oc.Mapping(w.bytes) as one:
        assert oc.files.pin(one, [(0, 4096)]).bytes
        oc.files.unpin(one)
        oc.files.pin(one)
    for call in (oc.files.pin, oc.files.unpin):
        refused(ValueError, call, one)
    refused(TypeError, oc.files.pin, w.bytes)


@action(100)
def hold(w: World) -> None:
    with Holder([w.bytes, w.model], max_bytes=1 << 20, pin=4096) as held:
        assert [change.what for change in held.refresh()] == ["held", "held"]
        assert held.refresh() == []
        assert repr(held)
    refused(FileNotFoundError, Holder, [w.bytes, w.missing])
    refused(TypeError, Holder, w.bytes)
