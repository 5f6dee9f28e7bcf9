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


def test_brightness_is_kept_without_stretch():
    image = np.full((8, 8), 0x8000, np.uint16)
    assert (oc.images.thumbnail(image, 4, stretch=False) == 127).all()
    assert (oc.images.thumbnail(image, 4) == 0).all()  # nothing to spread


def test_numbers_that_are_none_are_black():
    image = np.array([[0.0, np.nan], [np.inf, 1.0]])
    assert oc.images.thumbnail(image, 2).shape == (2, 2)


def test_truth_values_are_black_and_white():
    assert oc.images.thumbnail(np.eye(2, dtype=bool), 2).tolist() == [[255, 0], [0, 255]]


def test_other_numbers_of_samples_become_their_mean():
    assert oc.images.thumbnail(np.full((4, 4, 5), 9, np.uint8), 2).tolist() == [[9, 9], [9, 9]]


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (2, 2, 2, 2)])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(ValueError, match="an image must have shape"):
        oc.images.thumbnail(np.zeros(shape))


def test_a_picture_of_no_pixels_is_refused():
    with pytest.raises(ValueError, match="max_side must be at least 1"):
        oc.images.thumbnail(np.zeros((2, 2)), 0)
