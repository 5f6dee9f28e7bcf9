"""Libraries that decode into given memory, judged by what the same libraries make by themselves."""

import os
import re
import struct
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.support.images import decoded_by, noise

import onecopy as oc
from onecopy_images import CodecError, codecs

tifffile = pytest.importorskip("tifffile")
imagecodecs = pytest.importorskip("imagecodecs")
pictures = pytest.importorskip("PIL.Image")


def decoded(path: Path) -> np.ndarray:
    facts = codecs.read_facts(path)
    pixels = np.empty(facts.shape, facts.dtype)
    codecs.decode(path, pixels)
    return pixels


KINDS = [
    {},
    {"byteorder": ">"},
    {"bigtiff": True},
    {"rowsperstrip": 7},
    {"compression": "zlib"},
    {"compression": "zlib", "rowsperstrip": 7, "predictor": True},
    {"compression": "lzw", "byteorder": ">", "rowsperstrip": 7},
    {"tile": (64, 32)},
    {"tile": (64, 32), "compression": "zstd"},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((90, 70), "u1"), ((90, 70, 3), "u1"), ((90, 70), "u2"), ((4, 90, 70), "i2"), ((90, 70), "f4")]
)
def test_tiff_files_of_every_layout_are_what_tifffile_reads(tmp_path, shape, dtype, kind):
    path, image = tmp_path / "a.tif", noise(shape, dtype)
    options = kind if dtype != "f4" or "predictor" not in kind else {**kind, "predictor": False}
    tifffile.imwrite(path, image, photometric="rgb" if shape[-1] == 3 else "minisblack", **options)
    assert np.array_equal(decoded(path), image)
    facts = codecs.read_facts(path)
    assert (facts.shape, np.dtype(facts.dtype), facts.nbytes) == (shape, np.dtype(dtype), image.nbytes)
    assert facts.codec == f"tifffile {tifffile.__version__}, imagecodecs {imagecodecs.__version__}"


MODES = ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "I;16", "I", "F"]
LACKS = {
    "png": ["CMYK", "I", "F"],
    "jpg": ["P", "LA", "RGBA", "I;16", "I", "F"],
    "bmp": ["LA", "CMYK", "I;16", "I", "F"],
    "gif": ["CMYK"],
    "webp": [],
    "tif": [],
}
"""The modes that each format does not have."""


@pytest.mark.parametrize(
    ("suffix", "mode"), [(suffix, mode) for suffix, lacks in LACKS.items() for mode in MODES if mode not in lacks]
)
def test_other_files_are_what_pillow_reads(tmp_path, suffix, mode):
    path = tmp_path / f"a.{suffix}"
    image = pictures.fromarray(noise((50, 40), "u1")).convert("L")
    image = image.convert(mode) if mode != "I;16" else pictures.fromarray(noise((50, 40), "u2"))
    image.save(path)
    with pictures.open(path) as judge:
        assert np.array_equal(decoded_by("pillow", path), np.asarray(judge))


@pytest.mark.parametrize(("shape", "dtype"), [((3000, 500), "u2"), ((3000, 500, 3), "u1")])
def test_libvips_reads_what_pillow_does(tmp_path, shape, dtype):
    pytest.importorskip("pyvips")
    image, seen = noise(shape, dtype), []
    pictures.fromarray(image).save(tmp_path / "a.png")
    pixels = decoded_by("pyvips", tmp_path / "a.png", progress=lambda *done: seen.append(done))
    assert np.array_equal(pixels, image)
    assert seen[-1] == (image.nbytes, image.nbytes)


@pytest.mark.parametrize(("level", "words"), [(1, "no level 1: the image has one level, 0"), (-1, "negative")])
@pytest.mark.parametrize("name", ["a.tif", "a.png"])
def test_a_missing_level_is_an_error(tmp_path, name, level, words):
    pictures.fromarray(noise((9, 9), "u1")).save(tmp_path / name)
    with pytest.raises(ValueError, match=words):
        codecs.read_facts(tmp_path / name, level)


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"tile": (32, 32), "compression": "zlib"}], ids=str)
def test_a_part_of_another_array_is_filled_and_nothing_beside_it(tmp_path, options):
    path, image = tmp_path / "a.tif", noise((90, 70), "u2")
    tifffile.imwrite(path, image, **options)
    canvas = np.full((100, 100), 60000, np.uint16)
    codecs.decode(path, canvas[5:95, 20:90])
    assert np.array_equal(canvas[5:95, 20:90], image)
    assert (np.delete(canvas[5:95], np.s_[20:90], 1) == 60000).all()


@pytest.mark.parametrize("array", [np.empty((9, 8)), np.empty((9, 9, 1)), np.broadcast_to(np.uint8(0), (9, 9))])
def test_an_array_of_another_shape_or_a_read_only_one_is_refused(tmp_path, array):
    tifffile.imwrite(tmp_path / "a.tif", noise((9, 9), "u1"), compression="zlib")
    with pytest.raises(ValueError, match="9 x 9"):
        codecs.decode(tmp_path / "a.tif", array)


@pytest.mark.parametrize("options", [{"compression": "tiff_adobe_deflate"}, {"format": "png"}], ids=str)
def test_what_progress_raises_ends_the_work_and_is_passed_on(tmp_path, options):
    path, image = tmp_path / "image", noise((3000, 900), "u2")
    pictures.fromarray(image).save(path, **{"format": "tiff", **options})

    def stop(done: int, total: int) -> None:
        assert total == image.nbytes
        raise StopAsyncIteration  # which no library raises

    with pytest.raises(StopAsyncIteration):
        codecs.decode(path, np.empty(image.shape, image.dtype), progress=stop)


def test_the_next_library_is_tried_if_one_is_missing_and_without_any_the_error_names_what_to_install(
    tmp_path, monkeypatch
):
    path, image = tmp_path / "a.tif", noise((30, 20), "u1")
    tifffile.imwrite(path, image, compression="zlib")
    monkeypatch.setitem(sys.modules, "tifffile", None)
    assert codecs.read_facts(path).codec.startswith("pillow ")
    assert np.array_equal(decoded(path), image)
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "pyvips", None)
    with pytest.raises(CodecError, match=r"tifffile, pillow, pyvips: .* 'onecopy\[images\]'$") as raised:
        codecs.read_facts(path)
    assert raised.value.path == str(path)


def test_the_error_has_the_message_of_each_library(tmp_path):
    pytest.importorskip("pyvips")
    (tmp_path / "a.txt").write_text("no image at all")
    with pytest.raises(CodecError, match=r"a\.txt: .*: pillow .*cannot identify.*; pyvips"):
        codecs.read_facts(tmp_path / "a.txt")


def test_paths_that_are_no_file_are_errors_of_the_system(tmp_path):
    (tmp_path / "empty").touch()
    for name, error in (("none.tif", FileNotFoundError), (".", IsADirectoryError), ("empty", CodecError)):
        with pytest.raises(error, match="the file is empty" if name == "empty" else name):
            codecs.read_facts(tmp_path / name)


# --- hostile files ----------------------------------------------------------------------------------------------------


def claim(path: Path, **tags: int) -> Path:
    """Replace numbers in the header of a TIFF file."""
    data = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        for name, value in tags.items():
            tag = file.pages[0].tags[name]
            struct.pack_into("<HHII", data, tag.offset, tag.code, 4, 1, value)
    path.write_bytes(data)
    return path


def test_a_header_that_claims_a_terabyte_is_refused_before_anything_is_reserved(tmp_path):
    tifffile.imwrite(tmp_path / "bomb.tif", np.zeros((16, 16), np.uint8), compression="zlib")
    path = claim(tmp_path / "bomb.tif", ImageWidth=1 << 20, ImageLength=1 << 20, RowsPerStrip=1 << 20)
    facts = codecs.read_facts(path)
    for limit, words in ((None, r"1048576 x 1048576 .*1\.10 TB.*268 MB"), ("1 MB", r"1\.10 TB.*1\.00 MB.*max_bytes")):
        with pytest.raises(CodecError, match=words):
            codecs.check_size(str(path), facts, limit)
    codecs.check_size(str(path), facts, 1 << 41)


def padded(path: Path, count: int) -> Path:
    """Write a TIFF image of one row, in `count` tiles of 4096 x 4096 that are all the same bytes of the file."""
    tile = zlib.compress(bytes(1 << 24))
    first = 8 + 2 + 10 * 12 + 4
    tags = [(256, 4096 * count), (257, 1), (258, 8), (259, 8), (262, 1), (277, 1), (322, 4096), (323, 4096)]
    entries = [struct.pack("<HHII", code, 4, 1, value) for code, value in tags]
    entries += [struct.pack("<HHII", code, 4, count, first + at) for code, at in ((324, 0), (325, 4 * count))]
    tables = np.repeat(np.array([first + 8 * count, len(tile)], "<u4"), count).tobytes()
    path.write_bytes(struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + b"".join(entries) + bytes(4) + tables + tile)
    return path


def test_tiles_that_lie_outside_the_image_count_as_what_is_decoded(tmp_path):
    assert not decoded(padded(tmp_path / "few.tif", 2)).any()
    path = padded(tmp_path / "many.tif", 1000)
    facts = codecs.read_facts(path)
    assert facts.nbytes < 5_000_000
    for limit in (None, "1 GB"):
        with pytest.raises(CodecError, match=r"strips or tiles needs 16\.8 GB, more than .* max_bytes"):
            codecs.check_size(str(path), facts, limit)
    codecs.check_size(str(path), facts, "20 GB")


@pytest.mark.parametrize(("layout", "tag"), [({"tile": (16, 16)}, "ImageWidth"), ({"rowsperstrip": 1}, "ImageLength")])
@pytest.mark.parametrize("compression", ["zlib", None])
def test_more_segments_than_the_file_lists_are_refused_before_one_is_decoded(tmp_path, layout, tag, compression):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((64, 64), np.uint8), compression=compression, **layout)
    with pytest.raises(codecs.DamagedError, match=r"it should list \d+ segments, but lists \d+$"):
        codecs.read_facts(claim(tmp_path / "a.tif", **{tag: 1 << 22}))


UNREADABLE = "no installed library can read the image"


def kind_of_refusal(path: Path, error: CodecError) -> str:
    """Check that a CodecError names an image file, and all libraries if none can read it; return its first words."""
    name, first, rest = str(error).split(": ", 2)
    assert name == str(path)
    if isinstance(error, codecs.DamagedError):
        claimed, there = map(int, re.findall(r"\d+", rest)[-2:])
        assert claimed > there
        assert first == "the file is damaged" or there == path.stat().st_size
        return first
    assert type(error) is CodecError
    assert all(f"{codec.version}: " in rest for codec in codecs.each_for(path))
    return first


CUT_OFF = [
    *(("tif", compression, part) for compression in (None, "zlib", "lzw", "jpeg") for part in (0.999, 0.5, 0.1)),
    *((suffix, None, part) for suffix in ("png", "jpg", "webp", "bmp") for part in (0.9, 0.5, 0.1)),
]


@pytest.mark.parametrize(("suffix", "compression", "part"), CUT_OFF)
def test_a_file_that_is_cut_off_is_an_error_and_no_image(tmp_path, suffix, compression, part):
    path, image, wanted = tmp_path / f"a.{suffix}", noise((200, 160, 3), "u1"), UNREADABLE
    if suffix == "tif":
        wanted = "the file is truncated"
        tifffile.imwrite(path, image, compression=compression, rowsperstrip=20)
    else:
        pictures.fromarray(image).save(path)
    os.truncate(path, int(part * path.stat().st_size))
    if suffix != "tif" and len(list(codecs.each_for(path))) < 2:
        pytest.skip("pyvips is not installed: the error of one library alone is its own")
    with pytest.raises(CodecError) as raised:
        decoded(path)
    assert kind_of_refusal(path, raised.value) == wanted


def check_decoded(path: Path) -> None:
    """Decode a file over two different backgrounds; every pixel must be the one that the library itself reads."""
    facts = codecs.read_facts(path)
    codecs.check_size(str(path), facts, "64 MB")
    for background in (0, 0x55):
        pixels = np.full(facts.shape, background, facts.dtype)
        assert codecs.decode(path, pixels) == facts
        if facts.codec.startswith("tifffile "):
            judged = tifffile.imread(path)
        else:
            with pictures.open(path) as judge:
                judged = np.asarray(judge)
        assert (pixels.shape, pixels.dtype) == (judged.shape, judged.dtype)
        assert np.array_equal(pixels, judged)


def test_flipped_bytes_are_an_exact_error_or_the_image_that_the_library_reads(tmp_path):
    path, seen = tmp_path / "a.tif", Counter[str]()
    for seed in range(60):
        rng, compression = np.random.default_rng(seed), ["zlib", None, "lzw", "zstd"][seed % 4]
        tifffile.imwrite(path, noise((64, 48), "u2"), compression=compression, rowsperstrip=9)
        data = bytearray(path.read_bytes())
        for _ in range(3):
            data[rng.integers(4, min(len(data), 400) if seed % 2 else len(data))] = rng.integers(256)
        path.write_bytes(data)
        try:
            check_decoded(path)
            seen["decoded"] += 1
        except CodecError as error:
            seen[kind_of_refusal(path, error)] += 1
    assert seen.keys() == {"decoded", "the file is truncated", "the file is damaged", UNREADABLE}


@pytest.mark.parametrize("how", ["replaced", "written", "removed"])
def test_a_file_that_changes_while_it_is_decoded_is_an_error(tmp_path, how):
    path, other = tmp_path / "a.tif", tmp_path / "b.tif"
    tifffile.imwrite(path, noise((200, 160), "u2"), compression="zlib", rowsperstrip=20)
    tifffile.imwrite(other, noise((200, 160), "u2") + 1, compression="zlib", rowsperstrip=20)

    def change(done: int, total: int) -> None:
        if how == "replaced" and other.exists():
            other.replace(path)
        elif how == "written":
            path.write_bytes(other.read_bytes())
        else:
            path.unlink(missing_ok=True)

    with pytest.raises(oc.errors.FileChanged) as raised:
        codecs.decode(path, np.empty((200, 160), np.uint16), progress=change)
    assert raised.value.filename == str(path)


@pytest.mark.parametrize(("name", "text"), [("rows.csv", "a,b\n1,2\n3,4\n"), ("kernel.mat", "2 2\n1 2\n3 4\n")])
def test_tables_that_libvips_reads_are_no_images(tmp_path, name, text):
    pytest.importorskip("pyvips")
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CodecError, match=rf"{name}: .*not an image: libvips"):
        codecs.read_facts(path)
