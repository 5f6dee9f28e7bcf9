"""Tiles cut out of a scene are found where they were cut; and so are those of a real microscope."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.support.images import MIST, listed_by_mist
from tests.support.places import needs

import onecopy as oc
from onecopy_images import registering
from onecopy_images.positions import Edge, joined


def scene(seed: int, shape: tuple[int, int], smooth: int = 3) -> np.ndarray:
    noise = np.random.default_rng(seed).random(shape)
    for axis in (0, 1):
        noise = sum(np.roll(noise, step, axis) for step in range(smooth))
    return (1000 * noise).astype(np.uint16)


def cut(
    picture: np.ndarray, grid: tuple[int, int], size: tuple[int, int], pitch: tuple[int, int], jitter: int, seed: int
) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    corners = [
        (jitter + row * pitch[0] + y, jitter + column * pitch[1] + x)
        for row in range(grid[0])
        for column in range(grid[1])
        for y, x in [rng.integers(-jitter, jitter + 1, 2)]
    ]
    return [picture[y : y + size[0], x : x + size[1]] for y, x in corners], np.array(corners)


@given(
    seed=st.integers(0, 2**32),
    grid=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.tuples(st.integers(80, 130), st.integers(80, 130)),
)
def test_tiles_are_found_where_they_were_cut_out(seed, grid, size):
    pitch = round(0.85 * size[0]), round(0.85 * size[1])
    picture = scene(seed, (3 * pitch[0] + size[0], 3 * pitch[1] + size[1]))
    tiles, corners = cut(picture, grid, size, pitch, 3, seed)
    found = oc.images.register(tiles, grid, 0.15)
    assert found.positions.tolist() == (corners - corners.min(axis=0)).tolist()
    assert found.guessed == ()
    assert all(link.verified and link.correlation > 0.999 for link in found.links)


def test_brightness_and_noise_do_not_matter():
    tiles, corners = cut(scene(1, (400, 400), 5), (3, 3), (120, 120), (100, 100), 4, 1)
    rng = np.random.default_rng(2)
    worse = [(0.5 + rng.random()) * tile + 300 * rng.random() + rng.normal(0, 40, tile.shape) for tile in tiles]
    found = oc.images.register(worse, (3, 3), 0.15)
    assert found.positions.tolist() == (corners - corners.min(axis=0)).tolist()
    assert 0.5 < min(link.correlation for link in found.links) < 0.999


def test_the_order_may_go_by_columns_and_colours_are_averaged():
    tiles, corners = cut(scene(3, (400, 400)), (2, 3), (120, 110), (100, 95), 2, 3)
    by_columns = [row * 3 + column for column in range(3) for row in range(2)]
    coloured = [np.stack([tiles[number]] * 3, axis=-1) for number in by_columns]
    found = oc.images.register(coloured, (2, 3), (0.17, 0.14), column_major=True)
    assert found.positions.tolist() == (corners - corners.min(axis=0))[by_columns].tolist()


def test_a_tile_without_a_pattern_is_placed_by_the_usual_shift_and_listed():
    tiles, corners = cut(scene(4, (500, 500)), (3, 3), (120, 120), (100, 100), 0, 4)
    tiles[8] = np.full((120, 120), 7, np.uint16)
    found = oc.images.register(tiles, (3, 3), 0.15)
    assert found.positions.tolist() == (corners - corners.min(axis=0)).tolist()
    assert found.guessed == (8,)
    assert "10 of 12 seams" in str(found)
    assert ": 8" in str(found)


def test_a_seam_that_contradicts_the_others_is_outvoted():
    tiles, corners = cut(scene(5, (500, 500)), (2, 2), (120, 120), (100, 100), 0, 5)
    shifted = tiles[3].copy()
    shifted[:, :30] = scene(6, (120, 30))  # its left edge is of another scene
    found = oc.images.register([*tiles[:3], shifted], (2, 2), 0.1)
    assert found.positions.tolist() == (corners - corners.min(axis=0)).tolist()


def test_positions_are_the_least_squares_solution():
    rng, rows, columns = np.random.default_rng(5), 20, 20
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [pair for lines in (number, number.T) for line in lines for pair in pairwise(line)]
    true = np.stack(np.divmod(number.reshape(-1), columns), axis=1) * 1000
    shifts = [true[second] - true[first] + rng.integers(-6, 7, 2) for first, second in pairs]
    edges = [
        Edge(int(first), int(second), tuple(map(int, shift)), 1.0, True)
        for (first, second), shift in zip(pairs, shifts, strict=True)
    ]
    positions, guessed = joined(rows * columns, edges, 500)
    assert guessed == ()
    equations = np.zeros((len(pairs), rows * columns))
    for at, (first, second) in enumerate(pairs):
        equations[at, [first, second]] = -1, 1
    best = np.linalg.lstsq(equations, np.array(shifts, float), rcond=None)[0]
    off = (positions - positions.mean(axis=0)) - (best - best.mean(axis=0))
    assert np.abs(off).max() < 1


def test_a_tile_that_only_a_guess_places_does_not_keep_the_others_from_being_balanced():
    shifts = [(0, 1, 10, True), (1, 2, 10, True), (0, 2, 26, True), (2, 3, 10, False)]
    edges = [Edge(first, second, (0, shift), 1.0, is_measured) for first, second, shift, is_measured in shifts]
    positions, guessed = joined(4, edges, 9)
    assert (positions[:3].tolist(), guessed) == ([[0, 0], [0, 12], [0, 24]], (3,))


def test_tiles_without_a_common_pixel_are_an_error_that_names_what_to_check():
    tiles = [scene(seed, (100, 100)) for seed in range(4)]
    with pytest.raises(ValueError, match=r"none of 4 pairs.*2 rows, 2 columns.*overlap"):
        oc.images.register(tiles, (2, 2), 0.1, min_correlation=0.9)


@pytest.mark.parametrize(
    ("widths", "grid", "overlap", "words"),
    [
        ((20, 20, 20), (2, 2), 0.1, "2 rows and 2 columns has 4 tiles, not 3"),
        ((20, 20, 20), (0, 3), 0.1, "0 rows and 3 columns has 0 tiles, not 3"),
        ((20, 20, 20), (1, 3), 0.0, "overlap must be"),
        ((20, 20, 20), (1, 3), (0.1, 0.6), "overlap must be"),
        ((20, 21), (1, 2), 0.2, r"tile 1 has \(20, 21\), tile 0 has \(20, 20\)"),
    ],
)
def test_what_cannot_be_is_refused(widths, grid, overlap, words):
    with pytest.raises(ValueError, match=words):
        oc.images.register([np.zeros((20, width)) for width in widths], grid, overlap)


def test_one_tile_lies_at_the_corner():
    found = oc.images.register([np.zeros((20, 20))], (1, 1))
    assert (found.positions.tolist(), found.links, found.guessed) == ([[0, 0]], (), ())


def test_progress_is_reported_and_its_exceptions_are_passed_on():
    tiles, _ = cut(scene(7, (500, 500)), (2, 2), (120, 120), (100, 100), 0, 7)
    seen = []
    oc.images.register(tiles, (2, 2), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with pytest.raises(KeyboardInterrupt):
        oc.images.register(tiles, (2, 2), progress=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))


def smooth_tiles() -> tuple[list[np.ndarray], list[list[int]]]:
    """Cut tiles of gradients with a fine pattern, and a little noise of each tile, as a camera sees a bright field."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[0:500, 0:643]
    picture = 20_000 + 9_000 * np.sin(y / 170) + 8_000 * np.cos(x / 130) + 6_000 * np.sin((x + 2 * y) / 210)
    picture += rng.normal(0, 60, picture.shape)
    corners = [[0, 0], [3, 314], [233, 2], [236, 311]]
    return [picture[y : y + 264, x : x + 329] + rng.normal(0, 20, (264, 329)) for y, x in corners], corners


def test_smooth_tiles_take_few_correlations(monkeypatch):
    """One pixel at a time, the same shifts took 3645 correlations: gradients lead far away from a wrong peak."""
    looks = []
    plain = registering._correlation
    monkeypatch.setattr(registering, "_correlation", lambda *strips: looks.append(1) or plain(*strips))
    tiles, corners = smooth_tiles()
    found = oc.images.register(tiles, (2, 2), 0.12)
    assert found.positions.tolist() == corners
    assert len(looks) < 1200


def test_correlations_are_those_of_the_textbook_and_flat_pixels_have_none():
    rng = np.random.default_rng(12)
    for bright in (0.0, 60_000.0):
        a = bright + rng.random((30, 40))
        b = bright + 0.5 * a + rng.random((30, 40))
        assert registering._correlation(a, b) == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1], abs=1e-9)
    assert registering._correlation(np.full((30, 40), 0.1), rng.random((30, 40))) == 0
    assert registering._correlation(np.full((30, 40), 1 / 3), np.full((30, 40), 1e5 / 7)) == 0


@needs(MIST)
@pytest.mark.parametrize("overlap", [0.05, 0.1, 0.2])
def test_the_tiles_of_mist_are_found_where_they_are_listed_but_for_two(overlap):
    pytest.importorskip("tifffile")
    listed = listed_by_mist()
    found = oc.images.register([MIST / name for name in listed], (5, 5), overlap, column_major=True)
    moved = found.positions - list(listed.values())
    moved -= np.median(moved, axis=0).astype(int)
    expected = np.zeros((25, 2), int)
    expected[[4, 9]] = 2, -3  # p05 and p10: rows + 2, columns - 3; the list is wrong there, the pixels agree exactly
    assert moved.tolist() == expected.tolist()
    assert found.guessed == ()
    assert len(found.links) == 40
    assert min(link.correlation for link in found.links) > 0.9999
