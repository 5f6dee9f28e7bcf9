"""The images of `bench images`, made by a child so that the bench itself stays small.

python -m onecopy_bench.scenarios.images.inputs PARENT FOLDER COUNT [FILE]

Writes FOLDER/compressed/N and FOLDER/plain/N.tif, and prints the shape of an image as one line of JSON. Without FILE
the images are made up: cells on a dark ground, JPEG in tiles.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine.child import die_with

SHAPE = 4864, 3968, 3
"""Of what is made up: that of the real slide which published figures are of."""


def made_up(seed: int = 1) -> NDArray[np.uint8]:
    """Return an image of blobs, which compresses as microscope images do."""
    rng = np.random.default_rng(seed)
    image = np.zeros(SHAPE, np.uint8)
    y, x = np.mgrid[-20:21, -20:21]
    blob = np.clip(20 - np.hypot(y, x), 0, None)
    for row, column in zip(rng.integers(20, SHAPE[0] - 21, 9000), rng.integers(20, SHAPE[1] - 21, 9000), strict=True):
        part = image[row - 20 : row + 21, column - 20 : column + 21]
        np.maximum(part, (blob[..., None] * rng.uniform(2, 12, 3)).astype(np.uint8), out=part)
    return image


def main(arguments: list[str]) -> None:
    """Write all files."""
    import tifffile

    parent, folder, count, *file = arguments
    die_with(int(parent))
    compressed, plain = Path(folder, "compressed"), Path(folder, "plain")
    compressed.mkdir()
    plain.mkdir()
    source = Path(file[0]) if file else compressed / "0.tif"
    if not file:
        tifffile.imwrite(source, made_up(), tile=(256, 256), compression="jpeg", photometric="rgb")
    image = tifffile.imread(source, key=0)
    for number in range(int(count)):
        copy = compressed / f"{number}{source.suffix}"
        if copy != source:
            shutil.copyfile(source, copy)
        tifffile.imwrite(plain / f"{number}.tif", image, photometric="rgb" if image.ndim == 3 else "minisblack")
    sys.stdout.write(json.dumps({"shape": image.shape, "dtype": image.dtype.str}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
