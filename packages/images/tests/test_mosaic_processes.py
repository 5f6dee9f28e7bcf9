"""Mosaics and processes: parts of one canvas, full or failing disks raise errors, memory stays capped."""

import contextlib
import errno
import gc
import os

import numpy as np
import pytest
from tests.support.children import fork, status_of
from tests.support.images import noise, save_compressed
from tests.support.kernel import has_direct_io
from tests.support.seccomp import refuse
from tests.support.small_disks import blocks_used

import onecopy as oc
from onecopy_images import outputs

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

pytestmark = pytest.mark.processes


def tiles_and_positions(count: int, height: int = 100) -> dict[str, list]:
    """Return tiles of random pixels, each below the one before, as arguments of mosaic."""
    tiles = [noise((height, 1000)) + number for number in range(count)]
    return {"tiles": tiles, "positions": [(height * number, 0) for number in range(count)]}


def without_traceback(error: OSError) -> OSError:
    """Let the views go that the frames of an error hold, so that their space can be given back."""
    error = error.with_traceback(None)
    gc.collect()
    return error


def test_processes_fill_parts_of_one_scratch(reserving, tmp_path):
    tiles, positions = [noise((300, 200)) + number for number in range(6)], [(0, 150 * x) for x in range(6)]
    expected = np.zeros((300, 950), np.uint16)
    for tile, (y, x) in zip(tiles, positions, strict=True):
        expected[y : y + 300, x : x + 200] = tile
    with oc.scratch(expected.shape, "u2", tmp_path, anywhere=True, max_resident="1 MiB") as canvas:

        def fill(rank: int) -> bool:
            oc.images.mosaic(tiles, positions, canvas, part=(rank, 3))
            return True

        pids = [fork(lambda rank=rank: fill(rank)) for rank in range(3)]
        assert [status_of(pid) for pid in pids] == [0] * 3
        assert np.array_equal(canvas.array, expected)


# A canvas of 900 rows takes 3.6 MB: one such file fits, and not two.
@pytest.mark.parametrize("rows", [900, 4000])
@pytest.mark.parametrize("name", [None, "a.oc", "a.tif", "a.zarr"])
def test_too_little_space_for_a_mosaic_is_reported_and_nothing_is_left(
    needs_unnamed_files, reserving, small_disk, in_child, rows, name
):
    pytest.importorskip("zarr")

    def ask() -> tuple[OSError | None, int, int]:
        disk, done = small_disk("ext4"), []
        (disk / "ballast").write_bytes(bytes(2 << 20))
        before, used = sorted(disk.iterdir()), blocks_used(disk)
        options = {"shape": (rows, 2000), "folder": disk, "overwrite": True}
        options["progress"] = lambda *now: done.append(now)
        tiles = [noise((900, 1000)), noise((900, 1000)) + 1]
        try:
            oc.images.mosaic(tiles, [(0, 0), (0, 900)], name and disk / name, **options).close()
        except OSError as error:
            assert sorted(disk.iterdir()) == before
            return without_traceback(error), blocks_used(disk) - used, len(done)
        return None, 0, 0

    error, more, done = in_child(ask)
    if rows == 900 and name in (None, "a.oc"):
        assert error is None
        return
    assert (error.errno, more) == (errno.ENOSPC, 0)
    assert done == 0 or name == "a.zarr"  # the compressed size is unknown before
    if rows == 900:
        assert error.filename.endswith(f"/{name}")


def test_a_tiff_is_written_whole_on_a_disk_that_fills_up_meanwhile(reserving, small_disk, in_child, monkeypatch):
    tifffile = pytest.importorskip("tifffile")
    given = tiles_and_positions(2, 500)
    folder, blocks = reserving / "disk", outputs._blocks

    def fill_and_give(*arguments):
        with contextlib.suppress(OSError), (folder / "ballast").open("ab", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        yield from blocks(*arguments)

    def ask() -> bool:
        oc.images.mosaic(**given, out=small_disk("ext4") / "a.tif").close()
        return np.array_equal(tifffile.imread(folder / "a.tif"), np.concatenate(given["tiles"]))

    monkeypatch.setattr(outputs, "_blocks", fill_and_give)
    assert in_child(ask)


def test_a_disk_that_fills_up_under_a_window_is_reported_and_nothing_is_left(small_disk, in_child):
    def ask() -> tuple[OSError, int, list[str]]:
        disk = small_disk("ext4")
        refuse("fallocate")  # so that nothing is reserved
        used = blocks_used(disk)
        try:
            oc.images.mosaic(**tiles_and_positions(80), out=disk / "a.oc", max_resident="1 MiB").close()
        except OSError as error:
            return without_traceback(error), blocks_used(disk) - used, sorted(path.name for path in disk.iterdir())
        raise AssertionError("there was space")

    error, more, left = in_child(ask)
    assert (error.errno, more, left) == (errno.ENOSPC, 0, ["lost+found"])


@pytest.mark.parametrize("direct", [True, False])
def test_a_disk_that_fails_under_a_window_is_reported_from_then_on(reserving, in_child, direct):
    if direct and not has_direct_io(reserving):
        pytest.skip("nothing goes past the page cache here")

    def ask() -> list[tuple[int | None, str]]:
        refuse("pwrite64" if direct else "sync_file_range", error=errno.EIO)
        if not direct:
            refuse("O_DIRECT")
        told: list[tuple[int | None, str]] = []
        with oc.scratch((4000, 1000), "u2", reserving, max_resident="1 MiB") as canvas:
            given = tiles_and_positions(40)
            for call in (lambda: oc.images.mosaic(**given, out=canvas), canvas.flush, canvas.seal):
                try:
                    call()
                except OSError as error:
                    told.append((error.errno, error.strerror or ""))
        return told

    told = in_child(ask)
    assert [number for number, _ in told] == [errno.EIO] * 3
    assert all("bytes were lost" in text for _, text in told[1:])


def test_where_nothing_goes_past_the_page_cache_a_window_does_the_same(reserving, in_child, tells_dirty):
    def ask() -> tuple[bool, int, int | None]:
        refuse("O_DIRECT")
        given, most = tiles_and_positions(40, 150), 0
        with oc.scratch((6000, 1000), "u2", reserving, max_resident="2 MiB") as canvas:

            def look(*_: int) -> None:
                nonlocal most
                most = max(most, canvas.memory().resident or 0)

            oc.images.mosaic(**given, out=canvas, progress=look)
            stays = canvas.memory().resident
            return np.array_equal(canvas.array, np.concatenate(given["tiles"])), most, stays

    same, most, stays = in_child(ask)
    assert same
    if tells_dirty:
        assert most <= 3 << 20
        assert stays is not None
        assert stays <= 1 << 20


CAPPED = """
    import sys, concurrent.futures.thread, numpy as np, onecopy as oc, onecopy_images.pasting

    def held():
        if canvas is not None:
            return canvas.memory().resident
        with open("/proc/self/status") as file:
            found = dict(line.split(":") for line in file)
        return sum(int(found[name].split()[0]) for name in ("RssAnon", "RssFile", "RssShmem")) << 10

    canvas = oc.scratch((24 * 512, 12 * 512), "u2", sys.argv[1], max_resident="32 MiB") if len(sys.argv) > 2 else None
    tile = np.random.default_rng(1).integers(0, 60000, (512, 512), np.uint16)
    positions = [(500 * row, 500 * column) for row in range(24) for column in range(12)]
    most = before = held()

    def look(done, total):
        global most
        most = max(most, held())

    options = {"folder": sys.argv[1], "max_resident": "32 MiB"} if canvas is None else {"out": canvas}
    whole = oc.images.mosaic([tile] * len(positions), positions, threads=2, progress=look, **options)
    for number in (0, 100, len(positions) - 1):
        y, x = positions[number]
        assert (whole.array[y + 12 : y + 500, x + 12 : x + 500] == tile[12:500, 12:500]).all()
    print(most - before)
"""


def test_a_mosaic_in_a_scratch_of_the_caller_stays_within_its_cap(reserving, python, tmp_path, tells_dirty):
    if not tells_dirty:
        pytest.skip("the kernel does not tell of the page cache")
    most = int(python(CAPPED, tmp_path, "caller"))
    # Of 151 MB. A fault reads around its page, up to 8 MiB where the disk reads ahead that far: before and after the
    # rows that are being written.
    assert 8 << 20 < most <= (32 + 16) << 20


def test_a_window_and_its_canvas_stay_within_the_cap(reserving, python, tmp_path):
    if not os.access("/proc/self/status", os.R_OK):
        pytest.skip("there is no /proc/self/status")
    assert 8 << 20 < int(python(CAPPED, tmp_path)) <= 40 << 20  # of 144 MiB


def test_where_nothing_can_be_reserved_the_heap_or_calls_do_the_work(tmp_path, in_child):
    def ask() -> tuple[bool, bool]:
        refuse("fallocate")
        picture, given = save_compressed(tmp_path / "picture.tif", noise((3000, 2000))), tiles_and_positions(2)
        image = oc.images.open(picture, store=tmp_path / "store")
        with oc.images.mosaic(**given, out=tmp_path / "out.oc", max_resident="1 MiB") as whole:
            right = np.array_equal(whole.array, np.concatenate(given["tiles"]))
        return np.array_equal(image.array, noise((3000, 2000))), right

    assert in_child(ask) == (True, True)
