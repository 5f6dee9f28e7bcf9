"""The images of `bench dataset`, made by a child so that the bench itself stays small.

python -m onecopy_bench.scenarios.dataset.inputs PARENT FOLDER COUNT HEIGHT WIDTH

Writes FOLDER/N.jpg: smooth random pictures with noise, which compress as photographs do.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from onecopy_bench.engine.child import die_with

QUALITY = 90


def main(arguments: list[str]) -> None:
    """Write all images."""
    from PIL import Image

    parent, folder, count, height, width = arguments
    die_with(int(parent))
    random = np.random.default_rng(1)
    noise = random.integers(0, 25, (int(height), int(width), 3), np.uint8)
    for number in range(int(count)):
        low = random.integers(0, 230, (int(height) // 16 + 1, int(width) // 16 + 1, 3), np.uint8)
        smooth = Image.fromarray(low).resize((int(width), int(height)), Image.Resampling.BILINEAR)
        picture = np.asarray(smooth) + np.roll(noise, number, (0, 1))
        Image.fromarray(picture).save(Path(folder, f"{number:07}.jpg"), quality=QUALITY)


if __name__ == "__main__":
    main(sys.argv[1:])
