"""Canvases filled from tiles, judged by pasting one tile after the other onto zeros."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.support.images import MIST, listed_by_mist, read_back
from tests.support.places import needs

import onecopy as oc


def pasted(tiles, positions, order=None, shape=None) -> np.ndarray:
    """Do it the simple way."""
    extent = [max(p[axis] + t.shape[axis] for t, p in zip(tiles, positions, strict=True)) for axis in (0, 1)]
    canvas = np.zeros((*(shape or extent), *tiles[0].shape[2:]), tiles[0].dtype)
    for number in range(len(tiles)) if order is None else order:
        (y, x), tile = positions[number], tiles[number]
        canvas[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
    return canvas


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def some_tiles(seed: int, count: int = 12, samples: int = 0) -> tuple[list[np.ndarray], list[tuple[int, int]]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, (count, 2))
    tiles = [rng.integers(1, 60000, (*size, *([samples] if samples else [])), np.uint16) for size in map(tuple, sizes)]
    return tiles, [tuple(map(int, one)) for one in rng.integers(0, 60, (count, 2))]


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 25),
    samples=st.sampled_from([0, 1, 3]),
    threads=st.sampled_from([None, 1, 2, 7]),
    data=st.data(),
)
def test_any_tiles_in_any_order_are_what_pasting_makes(seed, count, samples, threads, data):
    tiles, positions = some_tiles(seed, count, samples)
    order = data.draw(st.permutations(range(count)))
    with oc.images.mosaic(tiles, positions, order=order, threads=threads) as whole:
        assert np.array_equal(whole.array, pasted(tiles, positions, order))
        assert whole.covered == np.count_nonzero(whole.array.reshape(*whole.shape[:2], -1)[..., 0])
        assert whole.tiles + len(whole.hidden) == count


@given(seed=st.integers(0, 2**32), ranks=st.integers(1, 5))
def test_parts_together_are_the_whole(seed, ranks):
    tiles, positions = some_tiles(seed)
    expected = pasted(tiles, positions)
    canvas = np.zeros_like(expected)
    covered = 0
    for rank in range(ranks):
        before = canvas.copy()
        covered += oc.images.mosaic(tiles, positions, canvas, part=(rank, ranks)).covered
        first, last = (len(canvas) * (rank + one) // ranks for one in (0, 1))
        assert np.array_equal(before[:first], canvas[:first])
        assert np.array_equal(before[last:], canvas[last:])
    assert np.array_equal(canvas, expected)
    assert covered == np.count_nonzero(expected)


def test_tiles_may_be_files_functions_and_anything_with_a_shape_and_hidden_ones_are_never_decoded(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    tiles = [np.full((5, 6), number, np.uint16) for number in range(1, 5)]
    tifffile.imwrite(tmp_path / "0.tif", tiles[0], compression="zlib")
    tifffile.imwrite(tmp_path / "1.tif", tiles[1])

    class Lazy:
        shape, dtype, asked = (5, 6), np.dtype("u2"), 0

        def __array__(self, dtype=None, copy=None):
            Lazy.asked += 1
            return tiles[2]

    given = [tmp_path / "0.tif", str(tmp_path / "1.tif"), Lazy(), lambda: tiles[3]]
    positions = [(0, 0), (0, 4), (4, 0), (4, 4)]
    with oc.images.mosaic(given, positions) as whole:
        assert np.array_equal(whole.array, pasted(tiles, positions))
    assert Lazy.asked == 1
    never = unreadable(AssertionError("it was read"), (4, 4))
    with oc.images.mosaic([never, np.ones((4, 4), np.uint16)], [(1, 1), (1, 1)]) as whole:
        assert (whole.tiles, whole.hidden) == (1, (0,))
        assert "1 hidden under others" in str(whole)


def test_what_is_not_covered_is_zero_or_stays():
    tile = np.full((2, 2), 9, np.uint16)
    with oc.images.mosaic([tile], [(1, 1)], shape=(4, 5)) as whole:
        assert whole.array.tolist() == pasted([tile], [(1, 1)], shape=(4, 5)).tolist()
        assert str(whole).startswith("4 x 5 uint16 (40 B) of 1 tiles, 20.0 % covered")
    canvas = np.full((4, 5), 7, np.uint32)
    done = oc.images.mosaic([tile], [(1, 1)], canvas)
    assert done.array is canvas
    assert int(canvas.sum()) == 16 * 7 + 4 * 9


def unreadable(error: Exception, shape: tuple[int, int]) -> Callable[[], np.ndarray]:
    """Return a tile that cannot be read."""

    def fail() -> np.ndarray:
        raise error

    fail.shape, fail.dtype = shape, np.dtype("u2")
    return fail


@pytest.mark.parametrize("name", ["a.oc", "a.safetensors"])
def test_a_path_of_ours_becomes_a_mapped_image(tmp_path, name):
    tiles, positions = some_tiles(6)
    with oc.images.mosaic(tiles, positions, tmp_path / name) as whole:
        assert np.array_equal(whole.array, pasted(tiles, positions))
        assert not whole.array.flags.writeable
        assert whole.path == str(tmp_path / name)
    with oc.images.open(tmp_path / name) as again:
        assert np.array_equal(again.array, read_back(tmp_path / name))
    assert listed(tmp_path) == [name]


@pytest.mark.parametrize("name", ["a.tif", "a.tiff", "a.ome.tif"])
@pytest.mark.parametrize("samples", [0, 3])
@pytest.mark.parametrize("tile", [None, (16, 32)])
def test_a_tiff_file_is_what_tifffile_reads_again(tmp_path, name, samples, tile):
    tifffile = pytest.importorskip("tifffile")
    tiles, positions = some_tiles(7, samples=samples)
    with oc.images.mosaic(tiles, positions, tmp_path / name, tile=tile) as whole:
        assert whole.array is None
    assert np.array_equal(read_back(tmp_path / name), pasted(tiles, positions))
    with tifffile.TiffFile(tmp_path / name) as file:
        assert file.is_ome == name.endswith(".ome.tif")
        assert (file.pages[0].tilelength, file.pages[0].tilewidth) == (tile or (512, 512))
    assert np.array_equal(oc.images.open(tmp_path / name, store=tmp_path / "store").array, pasted(tiles, positions))


@pytest.mark.parametrize("samples", [0, 3])
@pytest.mark.parametrize("tile", [None, (7, 9)])
@pytest.mark.slow
def test_a_zarr_array_is_what_zarr_reads_again(tmp_path, samples, tile):
    zarr = pytest.importorskip("zarr")
    tiles, positions = some_tiles(8, samples=samples)
    expected = pasted(tiles, positions)
    oc.images.mosaic(tiles, positions, tmp_path / "a.zarr", tile=tile)
    array = zarr.open_array(tmp_path / "a.zarr", mode="r")
    assert np.array_equal(array[:], expected)
    assert array.chunks[:2] == (tile or expected.shape[:2])
    assert listed(tmp_path) == ["a.zarr"]


@pytest.mark.parametrize("name", ["a.oc", "a.ome.tif", "a.zarr"])
def test_an_existing_path_is_replaced_only_with_overwrite(tmp_path, name):
    pytest.importorskip("zarr")
    old, new = [np.full((3, 3), 1, np.uint16)], [np.full((3, 3), 2, np.uint16)]
    oc.images.mosaic(old, [(0, 0)], tmp_path / name).close()
    called = []
    with pytest.raises(FileExistsError, match="overwrite=True"):
        oc.images.mosaic([lambda: called.append(1) or new[0]], [(0, 0)], tmp_path / name)
    assert len(called) == 1  # for its shape alone
    oc.images.mosaic(new, [(0, 0)], tmp_path / name, overwrite=True).close()
    assert listed(tmp_path) == [name]
    assert np.array_equal(read_back(tmp_path / name), new[0])


@pytest.mark.parametrize("name", [None, "a.oc", "a.ome.tif", "a.zarr"])
@pytest.mark.parametrize("max_resident", [None, "1 MiB"])  # the canvas takes 8 MB
def test_a_tile_that_fails_leaves_nothing(reserving, tmp_path, name, max_resident):
    if name == "a.zarr":
        pytest.importorskip("zarr")
    tiles = [np.ones((100, 1000), np.uint16)] * 40
    tiles[25] = unreadable(KeyError("of the tile"), (100, 1000))
    out = None if name is None else tmp_path / name
    with pytest.raises(KeyError, match="of the tile"):
        oc.images.mosaic(tiles, [(100 * n, 0) for n in range(40)], out, max_resident=max_resident, folder=tmp_path)
    assert listed(tmp_path) == []


def test_a_tile_that_was_cut_off_is_named(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "a.tif", np.ones((90, 90), np.uint16), rowsperstrip=10, compression="lzw")
    os.truncate(tmp_path / "a.tif", 900)
    with pytest.raises(oc.images.CodecError, match=r"a\.tif"):
        oc.images.mosaic([tmp_path / "a.tif"], [(0, 0)])


def test_progress_is_reported_in_bytes_and_its_exceptions_are_passed_on():
    tiles, positions = some_tiles(9)
    seen = []
    with oc.images.mosaic(tiles, positions, progress=lambda *done: seen.append(done)) as whole:
        total = 2 * whole.covered
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    with pytest.raises(KeyboardInterrupt):
        oc.images.mosaic(tiles, positions, progress=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))


ONE = [np.ones((3, 3), np.uint16)]


@pytest.mark.parametrize(
    ("tiles", "positions", "options", "words"),
    [
        ([], [], {}, "at least 1 tile, not 0"),
        (ONE, [(0, 0), (1, 1)], {}, r"must have shape \(1, 2\)"),
        (ONE, [(0, -1)], {}, r"tile 0 has a negative position: \(0, -1\)"),
        (ONE, [(0.5, 1)], {}, "whole pixels"),
        (ONE, [(2, 2)], {"shape": (4, 9)}, r"row 5 and column 5, .*\(4, 9\)"),
        (ONE, [(0, 0)], {"order": [1]}, "numbers from 0 to 0 once"),
        (ONE, [(0, 0)], {"order": "taken"}, "'given' or the numbers"),
        (ONE, [(0, 0)], {"part": (2, 2)}, r"\(index, count\)"),
        (ONE, [(0, 0)], {"part": (0, 2)}, "an array or a scratch"),
        (ONE, [(0, 0)], {"out": "a.jpg"}, r"suffix .* \.oc"),
        ([lambda: ONE[0], lambda: np.ones((3, 3), np.uint8)], [(0, 0), (3, 0)], {}, r"tile 1 .*\(3, 3\) .*uint16"),
        ([lambda: ONE[0], lambda: np.ones((2, 3), np.uint16)], [(0, 0), (3, 0)], {}, r"tile 1 .*\(3, 3\) .*uint16"),
        (ONE, [(0, 0)], {"out": np.zeros((2, 3), np.uint16)}, "out does not fit"),
        (ONE, [(0, 0)], {"out": np.zeros((3, 3), np.uint8)}, "out does not fit"),
        ([ONE[0], np.ones((3, 3), np.uint8)], [(0, 0)] * 2, {}, "dtypes or numbers of samples differ"),
        ([ONE[0], np.ones((3, 3, 3), np.uint16)], [(0, 0)] * 2, {}, "dtypes or numbers of samples differ"),
        ([np.ones(3)], [(0, 0)], {}, r"must have shape \(y, x\)"),
        ([SimpleNamespace(shape=(3, 3))], [(0, 0)], {}, "must be an array, a path or a function"),
        ([SimpleNamespace(dtype="u2")], [(0, 0)], {}, "must be an array, a path or a function"),
    ],
)
def test_what_cannot_be_is_refused(tiles, positions, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        oc.images.mosaic(tiles, positions, **options)


@needs(MIST)
@pytest.mark.parametrize(("first", "differing"), [("ImageName_t01_p05.tif", 0), (None, 2326)])
def test_no_pixel_differs_from_what_mist_stitched_in_its_order(first, differing):
    reference = pytest.importorskip("tifffile").imread(MIST / "img-stitched-1.tif")
    listed = listed_by_mist()
    order = sorted(range(25), key=lambda number: list(listed)[number] != first)  # by name alone where none is first
    tiles = [MIST / name for name in listed]
    with oc.images.mosaic(tiles, list(listed.values()), order=order, shape=reference.shape) as whole:
        assert np.count_nonzero(whole.array != reference) == differing
