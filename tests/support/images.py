"""What the tests of images in several processes share: pixels, and a compressed image."""

from pathlib import Path

import numpy as np


def noise(shape: tuple[int, ...]) -> np.ndarray:
    """Return random pixels of 16 bits, the same for each call with the same shape."""
    return np.random.default_rng(7).integers(0, 60000, shape, np.uint16)


def save_compressed(path: Path, pixels: np.ndarray) -> Path:
    """Save pixels as a compressed TIFF file of many strips; return its path."""
    import tifffile

    tifffile.imwrite(path, pixels, compression="zlib", rowsperstrip=30)
    return path
