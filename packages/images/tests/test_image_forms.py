"""Orientation and precision are decided once, whichever library decodes; judged by Pillow, tifffile and the pixels."""

import contextlib
import importlib.util
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.images import decoded_by, noise, photo

import onecopy as oc
from onecopy_images import CodecError, codecs
from onecopy_images.silenced import silenced

pictures = pytest.importorskip("PIL.Image")
ops = pytest.importorskip("PIL.ImageOps")
tifffile = pytest.importorskip("tifffile")
imagecodecs = pytest.importorskip("imagecodecs")

ORIENTED = {
    "raw.tif": {},
    "lzw.tif": {"compression": "tiff_lzw"},
    "jpeg.tif": {"compression": "jpeg"},
    "a.jpg": {"quality": 90},
    "a.png": {},
    "a.webp": {"lossless": True},
    "a.avif": {},
}
"""Names of files and the options of Pillow that write them."""


@pytest.mark.parametrize("name", ORIENTED)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_each_orientation_is_applied_once_by_every_library_or_not_at_all(tmp_path, orientation, name):
    exif = pictures.Exif()
    exif[0x0112] = orientation
    path = tmp_path / name
    photo(orientation, (40, 60)).save(path, exif=exif, **ORIENTED[name])
    with pictures.open(path) as image:
        upright = ops.exif_transpose(image)
        stored = np.asarray(image) if path.suffix != ".tif" else tifffile.imread(path)
    for color in ("RGB", None):
        assert np.array_equal(oc.images.share([path], color=color)[0], stored)
        assert np.array_equal(oc.images.share([path], upright=True, color=color)[0], np.asarray(upright))
    tolerance = 3 if name == "a.jpg" else 0
    for color, size, sides in (("L", (24, 20), (20, 24)), ("RGB", 30, (30, 20) if orientation < 5 else (20, 30))):
        small = np.asarray(upright.convert(color).resize(sides, pictures.Resampling.BILINEAR))
        got = oc.images.share([path], upright=True, color=color, size=size)[0]
        assert np.abs(got.astype(int) - small).max() <= tolerance
    assert np.array_equal(oc.images.open(path).array, stored)
    assert np.array_equal(decoded_by("pillow", path), stored)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "CMYK"])
@pytest.mark.parametrize("sides", [(700, 900), (3, 300_000)], ids=["many bands", "rows larger than a band"])
def test_images_that_are_written_in_bands_equal_those_of_pillow(tmp_path, mode, sides):
    path = tmp_path / "a.tif"
    image = pictures.fromarray(noise((*sides, 3), "u1")).convert(mode)
    image.save(path)
    for color in (None, "RGB", "L"):
        expected = image if color is None else image.convert(color)
        for size in (None, (sides[0] - 1, min(sides[1], 60_000))):
            shown = expected if size is None else expected.resize(size[::-1], pictures.Resampling.BILINEAR)
            shared = oc.images.share([path], color=color, size=size, transform=None if size else np.ascontiguousarray)
            assert np.array_equal(shared[0], np.asarray(shown)), (color, size)


def test_warning_filters_are_restored_when_threads_overlap():
    before = list(warnings.filters)
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with silenced:
            inside.set()
            leave.wait(30)

    other = threading.Thread(target=stay)
    with silenced:
        other.start()
        assert inside.wait(30)
    assert warnings.filters != before
    leave.set()
    other.join()
    assert warnings.filters == before


def saved_png(pixels: np.ndarray) -> bytes:
    return imagecodecs.png_encode(np.ascontiguousarray(pixels))


def saved_ppm(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    return b"P6 %d %d %d\n" % (width, height, pixels.max()) + pixels.astype(">u2").tobytes()


def saved_sgi(pixels: np.ndarray) -> bytes:
    height, width, samples = pixels.shape
    head = np.array([474, 2, 3, width, height, samples], ">u2").tobytes()
    return (head[:2] + b"\0" + head[3:]).ljust(512, b"\0") + pixels[::-1].transpose(2, 0, 1).astype(">u2").tobytes()


DEEP: dict[str, Callable[[np.ndarray], bytes]] = {
    "png": saved_png,
    "jp2": lambda pixels: imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="jp2"),
    "j2k": lambda pixels: imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="j2k"),
    "avif": lambda pixels: imagecodecs.avif_encode(pixels, level=100, bitspersample=12),
    "ppm": saved_ppm,
    "sgi": saved_sgi,
}
"""Functions that write files of more than 8 bits per sample, by format."""


def save_deep(path: Path, samples: int) -> np.ndarray:
    """Save an image with more than 8 bits per sample; return its pixels."""
    kind = path.suffix[1:]
    pixels = noise((20, 30, samples) if samples > 1 else (20, 30))
    pixels = pixels >> 4 if kind == "avif" else pixels
    if kind == "tif":
        extra = ["unassalpha"] if samples in (2, 4) else None
        photometric = "rgb" if samples > 2 else "minisblack"
        tifffile.imwrite(path, pixels, compression="zlib", photometric=photometric, extrasamples=extra)
    else:
        path.write_bytes(DEEP[kind](pixels))
    return pixels


KINDS = [
    *((kind, samples) for kind in ("tif", "jp2", "j2k") for samples in (1, 2, 3, 4)),
    *(("png", samples) for samples in (2, 3, 4)),
    *((kind, 3) for kind in ("avif", "ppm", "sgi")),
]


KEPT = ("tif", "jp2", "j2k", "png")
"""Formats that `onecopy[images]` reads with all bits."""


def expect_kept(found: np.ndarray, kind: str, pixels: np.ndarray) -> None:
    assert found.dtype == np.uint16
    assert np.array_equal(found >> 4 if kind == "avif" else found, pixels)


@pytest.mark.parametrize("options", [{}, {"upright": True}, {"size": (20, 30)}, {"color": "RGB"}], ids=str)
@pytest.mark.parametrize(("kind", "samples"), KINDS)
def test_more_than_8_bits_are_kept_or_refused_and_never_cut(tmp_path, kind, samples, options):
    path = tmp_path / f"a.{kind}"
    pixels = save_deep(path, samples)

    def share() -> np.ndarray:
        return oc.images.share([path], **{"color": None, **options})[0]

    if not options and kind in KEPT:
        expect_kept(share(), kind, pixels)
        return
    with contextlib.suppress(CodecError):  # that Pillow would reduce it, or cannot convert it
        expect_kept(share(), kind, pixels)


@pytest.mark.parametrize(("kind", "samples"), KINDS)
def test_open_keeps_all_bits_or_says_what_to_install(tmp_path, kind, samples, monkeypatch):
    path = tmp_path / f"a.{kind}"
    pixels = save_deep(path, samples)
    if kind in KEPT or (kind == "avif" and importlib.util.find_spec("pyvips")):
        expect_kept(oc.images.open(path).array, kind, pixels)
    else:
        with pytest.raises(CodecError, match=r"Pillow would reduce the samples"):
            oc.images.open(path)
    if (kind, samples) in (("png", 3), ("jp2", 4)):
        monkeypatch.setattr(codecs, "LIBRARIES", (codecs.PILLOW,))
        with pytest.raises(CodecError, match=r"Pillow would reduce .* \(pip install 'onecopy\[images-all\]'\)"):
            oc.images.open(path, store=os.fspath(tmp_path / "other"))


def test_16_bits_with_a_transparent_colour_have_the_samples_of_the_header(tmp_path):
    path, pixels = tmp_path / "a.png", noise((20, 30, 3))
    whole = saved_png(pixels)
    chunk = b"tRNS" + b"\0\1" * 3
    end_of_header = whole.index(b"IHDR") + 4 + 13 + 4
    crc = int(imagecodecs.zlib_crc32(chunk))
    path.write_bytes(
        whole[:end_of_header] + (6).to_bytes(4, "big") + chunk + crc.to_bytes(4, "big") + whole[end_of_header:]
    )
    assert np.array_equal(oc.images.open(path).array, pixels)


@pytest.mark.parametrize("samples", [1, 3])
def test_a_codestream_that_begins_inside_of_its_grid_has_the_pixels_of_its_image(tmp_path, samples):
    path = tmp_path / "a.j2k"
    pixels = save_deep(path, samples)
    data = bytearray(path.read_bytes())
    sizes = np.frombuffer(data, ">u4", 8, offset=8)  # ends, begins, tile and its begin, of x and y
    sizes[[0, 1, 2, 3, 6, 7]] += 1 << 15
    path.write_bytes(data)
    assert np.array_equal(oc.images.open(path).array, pixels)


@pytest.mark.parametrize("kind", ["jp2", "j2k"])
def test_signed_samples_are_kept_or_refused_and_never_wrapped(tmp_path, kind):
    path, pixels = tmp_path / f"a.{kind}", noise((20, 30, 3)).astype(np.int16)
    path.write_bytes(imagecodecs.jpeg2k_encode(pixels, level=0, codecformat=kind))
    with contextlib.suppress(CodecError):
        assert np.array_equal(oc.images.open(path).array, pixels)


def test_an_icon_whose_mode_is_known_when_it_is_loaded_opens(tmp_path):
    path = tmp_path / "a.icns"
    photo(1, (64, 64)).save(path)
    with pictures.open(path) as image:
        judge = image.copy()  # loads: numpy.asarray of one that is not loaded takes its bytes for another mode
    assert np.array_equal(oc.images.open(path).array, np.asarray(judge))
    assert np.array_equal(oc.images.share([path], color=None)[0], np.asarray(judge))
    assert np.array_equal(oc.images.share([path])[0], np.asarray(judge.convert("RGB")))
