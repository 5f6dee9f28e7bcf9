"""Actions on the store, scratch arrays, images, and what reports memory."""

import contextlib
import os
import pickle

import numpy as np
from tests.support.api_arrays import StopError, stop
from tests.support.api_table import World, action, refused

import onecopy as oc
import onecopy.arrays.scratch
import onecopy.errors
import onecopy.files.page_cache
import onecopy.memory
import onecopy.store
import onecopy_monitor
import onecopy_records.shuffle
from onecopy_monitor import assert_shared
from onecopy_records.shuffle import Shuffle

ME = [os.getpid()]


@action(60)
def store(w: World) -> None:
    found = w.store.get_or_build("bytes", lambda path: path.write_bytes(b"x"), source=w.bytes)
    assert w.store.find("bytes") is not None
    assert w.store.find("missing") is None
    assert w.store.path("bytes") == found.path
    assert w.store.ls()
    w.store.prune(keys=["bytes"], dry_run=True)
    assert w.store.prune(keys=["bytes"]).removed
    assert pickle.loads(pickle.dumps(oc.Store(w.folder / "store"))).folder == w.store.folder
    assert oc.file_key(w.bytes, "1")
    assert onecopy.store.default_folder()[1]
    assert onecopy.store.choose_place(1000)[0] == "disk"
    assert onecopy.store.announce()(onecopy.store.Waiting("k", 1, 0, 0, 0.0)) is None

    def fails(_: object) -> None:
        onecopy.store.report_progress(3)
        raise StopError

    refused(StopError, w.store.get_or_build, "fails", fails)
    refused(FileNotFoundError, w.store.get_or_build, "nothing", lambda _: None)
    refused(OSError, w.store.get_or_build, "twice", lambda _: w.store.get_or_build("twice", fails))
    refused(FileNotFoundError, oc.file_key, w.missing)
    refused(OSError, oc.Store, w.bytes)
    refused(OSError, onecopy.store.choose_place, 2**60)
    refused(ValueError, w.store.prune, max_age=-1)


@action(24)
def store_in_a_child(w: World) -> None:
    w.store.with_options(where="fork").get_or_build("child", lambda path: path.write_bytes(b"x"))
    w.store.prune(everything=True)
    refused(StopError, w.store.with_options(where="fork").get_or_build, "child", stop)


@action(60)
def scratch(w: World) -> None:
    with oc.scratch((30, 4096), "u2", w.out, max_resident="1 MiB", anywhere=True) as canvas:
        canvas.write(slice(2, 4), 7)
        canvas.write_direct(4096, np.full(4096, 7, "u2"))
        canvas.array[0] = 1
        assert canvas.prefetch(slice(0, 2)).bytes
        canvas.release()
        canvas.flush()
        canvas.memory()
        refused(IndexError, canvas.write, 99, 1)
        refused(ValueError, canvas.write, 0, [1, 2])
        refused(TypeError, pickle.dumps, canvas)
        with canvas.seal() as sealed:
            with pickle.loads(pickle.dumps(sealed)) as again:
                assert again.array[3, 0] == 7
            refused(PermissionError, canvas.write, 0, 1)
            text = pickle.dumps(sealed)
        canvas.save(w.out / "canvas.oc")
    refused(ValueError, lambda: canvas.array)
    refused(FileNotFoundError, pickle.loads, text)
    for error, given in ((ValueError, (-1, "u1", w.out)), (TypeError, (3, "U3")), (OSError, (3, "u1", w.missing))):
        refused(error, oc.scratch, *given, anywhere=True)


@action(60)
def alloc(w: World) -> None:
    make = onecopy.arrays.scratch.alloc
    with make((3, 4), "f4") as heap, make((3, 4), "f4", 0, dir=w.out):
        heap.write(0, 1)
        heap.write_direct(16, np.ones(4, "f4"))
        assert heap.memory()
        assert memoryview(heap.array)[0, 0] == 1
        heap.save(w.out / "heap.oc")
        refused(OSError, heap.write_direct, 100, np.ones(4))
        heap.seal().close()
    refused(ValueError, lambda: heap.array)
    refused(ValueError, make, 3, "f4", "many")


@action()
def shuffle(_: World) -> None:
    order = Shuffle(1000, 7)
    assert sorted(order) == list(range(1000))
    assert order[5] in order[::2] or order[5] in order[1::2]
    assert order.index(order[5]) == 5
    assert np.asarray(order.shard(1, 3)).size == 334
    assert len(list(order.batches(64))) == len(order.batches(64)) == 16
    order.set_epoch(3)
    order.load_state_dict(order.state_dict(10))
    assert pickle.loads(pickle.dumps(order))[0] == order[0]
    assert len(onecopy_records.shuffle.Shuffle.from_environment(5)) == 5
    refused(ValueError, Shuffle, -1)
    refused(IndexError, order.__getitem__, 5000)
    refused(ValueError, order.index, 5000)


@action(24)
def watch(_: World) -> None:
    with onecopy_monitor.watch(interval=0.002) as watched:
        bytearray(100_000)
    watched.assert_peak(anonymous="1 GiB", real="100 GiB", grown=False)
    refused(AssertionError, watched.assert_peak, real=1, grown=False)
    refused(ValueError, watched.assert_peak)
    assert watched.table()
    refused(ProcessLookupError, onecopy_monitor.watch, [2**22])
    refused(ValueError, onecopy_monitor.watch, interval=0)


@action(24)
def why_and_explain(w: World) -> None:
    with contextlib.chdir(w.folder):  # explain compares the files of the working folder
        for one in ((), ME):
            assert str(oc.explain(*one))
    with oc.open(w.model) as file, oc.open(w.model, "copy") as copied, oc.open(w.index) as model:
        for opened in (file, copied, model):
            assert str(oc.explain(opened))
    refused(ValueError, oc.explain, file)
    refused(TypeError, oc.explain, "text")
    refused(ProcessLookupError, oc.explain, 2**22)


@action(24)
def monitor(w: World) -> None:
    path = w.out / "run.jsonl"
    with onecopy_monitor.Sampler(ME) as sampler, onecopy_monitor.Recorder(path, ["x"], force=True) as recorder:
        for _ in range(2):
            recorder.add(onecopy_monitor.sample_of(sampler.sample()))
    assert onecopy_monitor.read_recording(path).series
    assert onecopy_monitor.memory_of(os.getpid()).rss
    assert onecopy_monitor.memory_table(ME)
    refused(FileExistsError, onecopy_monitor.Recorder, path)
    refused(oc.FormatError, onecopy_monitor.read_recording, w.csv)
    refused(FileNotFoundError, onecopy_monitor.read_recording, w.missing)
    refused(ProcessLookupError, onecopy_monitor.Sampler, [2**22])


@action(24)
def read_proc(w: World) -> None:
    pid = os.getpid()
    reads = [onecopy.memory.proc.rollup, onecopy.memory.proc.maps, onecopy.memory.proc.command_of]
    reads += [onecopy.memory.proc.name_of, onecopy.memory.proc.status, onecopy.memory.proc.stat, onecopy.memory.proc.io]
    for read in reads:
        assert read(pid)
    assert onecopy.memory.proc.of_file(onecopy.memory.proc.smaps(pid), (1, 2**60), "/missing") == []
    assert onecopy.memory.proc.regions_of(pid, w.bytes) == []
    assert onecopy.memory.proc.process_text(pid, "comm")
    assert onecopy.memory.proc.label_of(pid, "python")
    assert pid in onecopy.memory.proc.children_of(os.getppid())
    refused(ProcessLookupError, onecopy.memory.proc.stat, 2**22)
    assert onecopy.files.page_cache.available_memory()
    onecopy.files.page_cache.expect_memory("1 MiB")
    refused(onecopy.errors.NotEnoughMemory, onecopy.files.page_cache.expect_memory, "1000 TB")
    assert onecopy.memory.cgroup.charged_to(pid, []) in ({}, None)
    onecopy.memory.cgroup.pressure()
    onecopy.memory.container()
    assert onecopy.memory.cgroup.kind_of((0, 1), str(w.bytes)) in ("file", "shmem")
    onecopy.memory.cgroup.kills(w.folder)
    for parse in (onecopy.memory.cgroup.parse_limit, onecopy.memory.cgroup.parse_pressure):
        refused(ValueError, parse, "x")


@action(24)
def workers(w: World) -> None:
    with oc.open(w.model) as file:
        file.warm(mechanism="populate")
        found = assert_shared(file, ME)
        assert_shared(file, ME, since=found, allowance="100 MiB")
    with oc.Mapping(w.bytes) as one:
        other = one.view()
        assert other[0] == 0
    refused(AssertionError, assert_shared, oc.open_records(w.table), [os.getppid()])
    refused(ValueError, assert_shared, file, [])


def _picture(w: World) -> str:
    import tifffile

    path = w.folder / "cells.tif"
    if not path.exists():
        pixels = np.random.default_rng(1).integers(0, 255, (120, 90), np.uint8)
        tifffile.imwrite(path, pixels, compression="zlib")
        tifffile.imwrite(w.folder / "raw.tif", pixels)
    return str(path)


@action(40, needs=("imagecodecs", "tifffile"))
def images(w: World) -> None:
    path = _picture(w)
    with oc.images.open(path, store=w.folder / "store") as image, oc.images.open(w.folder / "raw.tif") as raw:
        assert np.array_equal(image.array, raw.array)
        with pickle.loads(pickle.dumps(image)) as again:
            assert again.shape == (120, 90)
        assert oc.images.thumbnail(image.array, 32).size
    with oc.images.decode(path, folder=w.out) as pixels:
        assert pixels.array.any()
    w.store.prune(everything=True)
    refused(StopError, oc.images.decode, path, folder=w.out, progress=stop)
    refused(StopError, oc.images.open, path, store=w.folder / "store", progress=stop)
    refused(FileNotFoundError, oc.images.open, w.folder / "missing.tif", store=w.folder / "store")
    refused(oc.images.CodecError, oc.images.open, w.bytes, store=w.folder / "store")
    refused(ValueError, oc.images.open, path, 9, store=w.folder / "store")
    assert oc.images.codecs.read_facts(path).shape == (120, 90)


@action(40)
def stitch(w: World) -> None:
    scene = np.random.default_rng(1).random((60, 110), np.float32)
    tiles = [scene[:, :60], scene[:, 50:]]
    found = oc.images.register(tiles, (1, 2), 0.15)
    assert found.positions.tolist() == [[0, 0], [0, 50]]
    oc.images.mosaic(tiles, found.positions, folder=w.out)
    oc.images.mosaic(tiles, found.positions, out=w.out / "mosaic.oc", overwrite=True)
    refused(ValueError, oc.images.register, tiles, (2, 2))
    refused(ValueError, oc.images.mosaic, tiles, [(0, 0)])
    refused(StopError, oc.images.mosaic, tiles, found.positions, folder=w.out, progress=stop)
