"""What the tests of images share: pixels, and files with them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.places import DATA

MIST = DATA / "mist"
"""Real tiles of a microscope, the list of their positions, and what MIST made of them."""


def noise(shape: tuple[int, ...], dtype: str = "u2") -> np.ndarray:
    """Return random pixels, the same for each call with the same arguments."""
    return np.random.default_rng(7).integers(0, 60000 if dtype == "u2" else 100, shape, np.uint16).astype(dtype)


def save_compressed(path: Path, pixels: np.ndarray) -> Path:
    """Save pixels as a compressed TIFF file of many strips; return its path."""
    import tifffile

    tifffile.imwrite(path, pixels, compression="zlib", rowsperstrip=30)
    return path


def photo(seed: int, shape: tuple[int, int]) -> Any:
    """Return a smooth random picture of (height, width) pixels, the same for each call with these arguments."""
    from PIL import Image

    low = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(low).resize(shape[::-1], Image.Resampling.BICUBIC)


def expected(path: str | Path, mode: str = "RGB") -> np.ndarray:
    """Return the pixels of a file as Pillow reads and converts them."""
    from PIL import Image

    return np.asarray(Image.open(path).convert(mode))


def save_photos(folder: Path, shapes: list[tuple[int, int]]) -> list[Path]:
    """Save a JPEG of each shape in a folder; return the paths, which are sorted."""
    paths = [folder / f"{number:04}.jpg" for number in range(len(shapes))]
    for number, (path, shape) in enumerate(zip(paths, shapes, strict=True)):
        photo(number, shape).save(path, quality=90)
    return paths


def decoded_by(library: str, path: Path, **options: Any) -> np.ndarray:
    """Return the pixels of a file as one of the libraries decodes them."""
    from onecopy_images import codecs

    codec = next(one for one in codecs.each_for(path) if one.name == library)
    facts = codecs.facts_of(codec, path, 0)
    pixels = np.empty(facts.shape, facts.dtype)
    codecs.fill(codec, path, facts, pixels, **options)
    return pixels


def listed_by_mist() -> dict[str, tuple[int, int]]:
    """Return where the tiles of MIST lie, by their names, which are sorted."""
    text = (MIST / "global-positions-1.txt").read_text()
    found = re.findall(r"file: (\S+);.*position: \((\d+), (\d+)\)", text)
    return {name: (int(y), int(x)) for name, x, y in sorted(found)}


def read_back(path: Path) -> np.ndarray:
    """Return the pixels of a mosaic as the library of its format reads them."""
    if path.suffix == ".zarr":
        from zarr import open_array

        return open_array(path, mode="r")[:]
    if path.suffix in (".tif", ".tiff"):
        from tifffile import imread

        return imread(path)
    from onecopy import open as open_arrays

    with open_arrays(path, verify=True) as file:
        return np.array(file["data"])
