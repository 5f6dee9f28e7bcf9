"""Small pictures, judged by the mean of each block."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import onecopy as oc


@given(rows=st.integers(1, 60), columns=st.integers(1, 60), samples=st.sampled_from([0, 3]), side=st.integers(1, 70))
def test_each_pixel_is_the_mean_of_its_block(rows, columns, samples, side):
    shape = (rows, columns, samples) if samples else (rows, columns)
    image = np.random.default_rng(rows * columns).integers(0, 256, shape, np.uint8)
    small = oc.images.thumbnail(image, side)
    step = -(-max(rows, columns) // side)
    assert small.shape[:2] == (-(-rows // step), -(-columns // step))
    assert max(small.shape[:2]) <= side
    for y in range(small.shape[0]):
        for x in range(small.shape[1]):
            block = image[y * step : (y + 1) * step, x * step : (x + 1) * step]
            assert np.abs(small[y, x].astype(float) - block.mean(axis=(0, 1))).max() <= 1


@pytest.mark.parametrize("dtype", ["u2", "i4", "f4", "f8"])
def test_brightness_is_spread_over_what_a_picture_can_show(dtype):
    image = np.linspace(1000, 2000, 64 * 64).reshape(64, 64).astype(dtype)
    small = oc.images.thumbnail(image, 64)
    assert (small.min(), small.max()) == (0, 255)
    assert (np.diff(small[:, 0].astype(int)) >= 0).all()


@pytest.mark.parametrize(
    ("image", "options", "pixels"),
    [
        (np.full((4, 4), 0x8000, np.uint16), {"stretch": False}, [[127, 127], [127, 127]]),
        (np.full((4, 4), 0x8000, np.uint16), {}, [[0, 0], [0, 0]]),  # nothing to spread
        (np.array([[0.0, np.nan], [np.inf, 1.0]]), {}, [[0, 0], [255, 255]]),
        (np.eye(2, dtype=bool), {}, [[255, 0], [0, 255]]),
        (np.full((4, 4, 5), 9, np.uint8), {}, [[9, 9], [9, 9]]),  # the mean of all samples
    ],
)
def test_a_picture_shows_any_image(image, options, pixels):
    assert oc.images.thumbnail(image, 2, **options).tolist() == pixels


@pytest.mark.parametrize(
    ("shape", "side", "words"),
    [
        *((shape, 256, "an image must have the shape") for shape in ((), (3,), (0, 3), (2, 2, 2, 2))),
        ((2, 2), 0, "max_side must be at least 1"),
    ],
)
def test_what_is_no_image_and_a_picture_of_no_pixels_are_refused(shape, side, words):
    with pytest.raises(ValueError, match=words):
        oc.images.thumbnail(np.zeros(shape), side)
