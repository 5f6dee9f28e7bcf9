"""Images whose names are not UTF-8 open wherever a path is taken."""

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.images import noise

import onecopy as oc

imagecodecs = pytest.importorskip("imagecodecs")
pictures = pytest.importorskip("PIL.Image")
tifffile = pytest.importorskip("tifffile")

RGB = noise((400, 500, 3), "u1")


def bytes_of(write: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "a.png": lambda: bytes_of(lambda file: pictures.fromarray(RGB).save(file, "png")),
    "deep.png": lambda: imagecodecs.png_encode(noise((40, 50, 3))),
    "deep.avif": lambda: imagecodecs.avif_encode(noise((40, 50, 3)) >> 4, level=100, bitspersample=12),
    "packed.tif": lambda: bytes_of(lambda file: tifffile.imwrite(file, RGB, compression="zlib")),
    "raw.tif": lambda: bytes_of(lambda file: tifffile.imwrite(file, RGB)),
}


@pytest.fixture
def strange(tmp_path) -> Path:
    """Return a folder whose name is not UTF-8, with a file of each kind."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xe9"))
    folder.mkdir()
    for name, make in FILES.items():
        (folder / name).write_bytes(make())
    return folder


USES: dict[str, Callable[[Path], Any]] = {
    **{
        f"open {name}": lambda folder, name=name: oc.images.open(folder / name).array
        for name in FILES
        if name.endswith(("png", "tif"))
    },
    "store": lambda folder: oc.images.open(folder / "a.png", store=folder / "store").array,
    "pickled": lambda folder: pickle.loads(pickle.dumps(oc.images.open(folder / "a.png"))).array,
    "decode": lambda folder: oc.images.decode(folder / "a.png", folder=folder).array.copy(),
    "share": lambda folder: oc.images.share([folder / "a.png"])[0],
    "pattern": lambda folder: oc.images.share(folder / "a*.png")[0],
}


@pytest.mark.parametrize("use", USES)
def test_an_image_whose_name_is_not_utf8_opens(strange, use):
    USES[use](strange)


def test_libvips_opens_a_name_that_is_not_utf8(strange):
    pytest.importorskip("pyvips")
    assert np.array_equal(oc.images.open(strange / "deep.avif").array >> 4, noise((40, 50, 3)) >> 4)


def test_the_source_of_a_decoded_image_is_text(strange):
    image = oc.images.open(strange / "a.png")
    assert image.file.metadata["source"].endswith("\\xff\\xe9/a.png")
