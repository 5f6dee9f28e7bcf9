"""Canvases of which a window is in memory: what they hold, judged by pasting one tile after the other onto zeros."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_image_stitching import pasted

import onecopy as oc
from onecopy_images.window import Window

MIB = 1 << 20
CAP = MIB


@pytest.fixture
def windows(monkeypatch) -> list[Window]:
    """Give the windows that came to their end."""
    found, finish = [], Window.finish

    def tell(self: Window) -> None:
        found.append(self)
        finish(self)

    monkeypatch.setattr(Window, "finish", tell)
    return found


def tiles_of(
    seed: int, width: int, dtype: str, samples: int, factor: float
) -> tuple[list[np.ndarray], list[tuple[int, int]]]:
    """Make tiles of any size on a canvas of two to five times the cap, `factor` of it high at the most."""
    rng = np.random.default_rng(seed)
    row = width * np.dtype(dtype).itemsize * (samples or 1)
    rows, highest = int(rng.integers(2 * CAP, 5 * CAP)) // row + 1, int(CAP // row * factor)
    tiles, positions = [np.full((1, width, *([samples] if samples else [])), 3, dtype)], [(rows - 1, 0)]
    for _ in range(25):
        size = min(int(rng.integers(1, highest + 1)), rows), int(rng.integers(1, width + 1))
        tiles.append(rng.integers(1, 120, (*size, *([samples] if samples else [])), np.uint8).astype(dtype))
        positions.append((int(rng.integers(0, rows - size[0] + 1)), int(rng.integers(0, width - size[1] + 1))))
    return tiles, positions


@pytest.mark.usefixtures("reserving")
@pytest.mark.parametrize("factor", [0.75, 3.0])
@given(
    seed=st.integers(0, 2**32),
    width=st.integers(64, 3000),
    dtype=st.sampled_from(["u1", "u2", "f4"]),
    samples=st.sampled_from([0, 1, 3]),
    threads=st.integers(1, 4),
)
@settings(max_examples=30)
@pytest.mark.slow
def test_any_tiles_through_a_window_are_what_pasting_makes(factor, seed, width, dtype, samples, threads):
    tiles, positions = tiles_of(seed, width, dtype, samples, factor)
    with oc.images.mosaic(tiles, positions, max_resident=CAP, threads=threads) as whole:
        assert np.array_equal(whole.array, pasted(tiles, positions))


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_cap_that_is_barely_enough_takes_a_window_and_one_row_more_only_of_arrays(
    reserving, windows, more, in_memory
):
    row, asked = 1000 * 2, []
    height = CAP // row * 3 // 4 + more
    tiles = [np.full((height, 500), number, np.uint16) for number in range(1, 21)]
    positions = [(height * (number // 2), 500 * (number % 2)) for number in range(20)]
    given = tiles if in_memory else [lambda tile=tile: asked.append(0) or tile for tile in tiles]
    with oc.images.mosaic(given, positions, max_resident=CAP, folder=reserving) as whole:
        assert np.array_equal(whole.array, pasted(tiles, positions))
        assert whole.tiles == 20
    assert len(windows) == (1 if in_memory or not more else 0)
    assert len(asked) == (0 if in_memory else 21)  # each once, and the first one for its shape


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_parts_of_a_scratch_with_dirty_pages_are_what_pasting_makes(reserving, windows, ranks):
    rng = np.random.default_rng(ranks)
    tiles = [rng.integers(1, 60000, (180, 999), np.uint16) for _ in range(12)]
    positions = [(180 * number + 13, 0) for number in range(12)]
    with oc.scratch((2500, 999), "u4", reserving, max_resident=CAP) as canvas:
        canvas.array[:] = 70_000
        for rank in range(ranks):
            oc.images.mosaic(tiles, positions, canvas, part=(rank, ranks))
        expected = np.full((2500, 999), 70_000, np.uint32)
        for tile, (y, _) in zip(tiles, positions, strict=True):
            expected[y : y + 180] = tile
        assert np.array_equal(canvas.array, expected)
        canvas.flush()
        canvas.release()
        assert np.array_equal(canvas.array, expected)  # as it is on the disk
    assert len(windows) == ranks


def test_what_no_tile_covers_of_a_scratch_of_the_caller_stays(reserving, windows):
    tiles = [np.full((100, 900), number + 1, np.uint16) for number in range(30)]
    with oc.scratch((3000, 1000), "u2", reserving, max_resident=CAP) as canvas:
        canvas.write(None, 7)
        oc.images.mosaic(tiles, [(100 * number, 0) for number in range(30)], canvas)
        assert (canvas.array[:, 900:] == 7).all()
        assert (canvas.array[:, :900] == np.repeat(np.arange(1, 31, dtype=np.uint16), 100)[:, None]).all()
    assert windows == []


def test_a_large_canvas_without_a_cap_takes_a_window_too(reserving, windows, monkeypatch, tmp_path):
    tiles = [np.full((100, 1000), number + 1, np.uint16) for number in range(40)]
    positions = [(100 * number, 0) for number in range(40)]
    for available, count in ((65 * MIB, 0), (16 * MIB, 2)):
        monkeypatch.setattr("onecopy_images.outputs.available_memory", lambda size=available: size)
        monkeypatch.setattr("onecopy_images.outputs._USUAL_CAP", MIB)
        windows.clear()
        for out in (None, tmp_path / f"{available}.oc"):
            with oc.images.mosaic(tiles, positions, out, folder=reserving) as whole:
                assert np.array_equal(whole.array, pasted(tiles, positions))
        assert len(windows) == count
