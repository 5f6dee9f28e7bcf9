"""Images decoded once and mapped, judged by what tifffile and Pillow read."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.support.images import expected, noise
from tests.support.places import SLIDE, needs
from tests.support.store_processes import suffixes

import onecopy as oc
from onecopy_images import CodecError, opening

tifffile = pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
pictures = pytest.importorskip("PIL.Image")

slide = needs(SLIDE)


def write(path: Path, image: np.ndarray, **options) -> Path:
    tifffile.imwrite(path, image, **{"compression": "zlib", "rowsperstrip": 20, **options})
    return path


def test_the_first_decodes_and_the_second_attaches(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("ONECOPY_SCRATCH", str(tmp_path / "missing"))  # pixels are decoded where they stay
    image = noise((300, 200))
    path = write(tmp_path / "a.tif", image)
    first, second = oc.images.open(path), oc.images.open(path)
    assert (first.artefact.built, second.artefact.built) == (True, False)
    assert first.artefact.path == second.artefact.path
    for one in (first, second):
        assert np.array_equal(one.array, image)
        assert (one.path, one.level, one.levels, one.axes) == (str(path), 0, ((300, 200),), "YX")
        assert (one.shape, one.dtype, one.nbytes, len(one)) == (image.shape, image.dtype, image.nbytes, 300)
        assert not one.array.flags.writeable
        assert one.codec.startswith("tifffile ")
        assert one.reason == one.artefact.reason
        assert "palette" not in one.codec + one.reason
    assert suffixes(oc.Store(cache)) == [".about", ".oc"]
    assert repr(first).startswith(f"<onecopy.images.Image {str(path)!r} level 0, 300 x 200 uint16, built here in ")
    with oc.open(first.artefact.path, verify=True) as file:
        assert (list(file), file.kind, file.metadata["source"]) == (["data"], "arrays", str(path))
        assert np.array_equal(file["data"], image)
    assert first.artefact.source == str(path)


@slide
@pytest.mark.parametrize("level", range(4))
def test_each_level_of_a_slide_is_what_tifffile_reads(level):
    seen = []
    image = oc.images.open(SLIDE, level, progress=lambda done, total: seen.append((done, total)))
    assert np.array_equal(image.array, tifffile.imread(SLIDE, level=level))
    assert image.levels == ((4864, 3968, 3), (2432, 1984, 3), (1216, 992, 3), (608, 496, 3))
    assert seen[-1] == (image.nbytes, image.nbytes)
    assert seen == sorted(seen)
    assert oc.images.open(SLIDE, level).levels == image.levels


def test_levels_are_artefacts_of_their_own(tmp_path, cache):
    image = noise((256, 256), "u1")
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(image, subifds=1, tile=(64, 64), compression="zlib")
        file.write(image[::2, ::2], subfiletype=1, tile=(64, 64), compression="zlib")
    assert np.array_equal(oc.images.open(tmp_path / "a.tif").array, image)
    assert np.array_equal(oc.images.open(tmp_path / "a.tif", level=1).array, image[::2, ::2])
    assert suffixes(oc.Store(cache)) == [".about", ".about", ".oc", ".oc"]
    with pytest.raises(ValueError, match="no level 2: the image has levels 0 to 1"):
        oc.images.open(tmp_path / "a.tif", 2)


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((300, 200), "u2"), ((4, 30, 20), "f2"), ((30, 20, 3), "u2"), ((30, 20), "c8")]
)
def test_an_uncompressed_tiff_is_mapped_where_it_lies(tmp_path, cache, byteorder, shape, dtype):
    image = noise(shape, dtype)
    options = {"photometric": "rgb" if shape[-1] == 3 else "minisblack", "byteorder": byteorder}
    tifffile.imwrite(tmp_path / "a.tif", image, **options)
    opened = oc.images.open(tmp_path / "a.tif")
    assert np.array_equal(opened.array, image)
    assert opened.artefact is None
    assert opened.reason.startswith("mapped from the image file, ")
    assert opened.dtype == np.dtype(dtype).newbyteorder(byteorder)
    assert opened.file.path == str(tmp_path / "a.tif")
    assert list(cache.iterdir()) == []
    assert np.array_equal(pickle.loads(pickle.dumps(opened)).array, image)


def test_an_uncompressed_tiff_that_is_written_while_it_is_opened_is_an_error(tmp_path, monkeypatch):
    tifffile.imwrite(tmp_path / "a.tif", noise((30, 20)))

    def mapped(path, *place):
        mapping = oc.Mapping(path, *place)
        Path(path).write_bytes(Path(path).read_bytes())
        return mapping

    monkeypatch.setattr(opening, "Mapping", mapped)
    with pytest.raises(oc.errors.FileChanged, match="being opened"):
        oc.images.open(tmp_path / "a.tif")


def test_plain_pixels_that_are_misaligned_are_copied_through_the_store(tmp_path):
    path, image = tmp_path / "a.tif", noise((30, 20))
    tifffile.imwrite(path, image)
    with tifffile.TiffFile(path) as file:
        offset, place = file.pages[0].dataoffsets[0], file.pages[0].tags[273].valueoffset
    data = bytearray(path.read_bytes())
    data[offset:offset] = b"\0"
    data[place : place + 4] = (offset + 1).to_bytes(4, "little")
    path.write_bytes(data)
    opened = oc.images.open(path)
    assert np.array_equal(opened.array, image)
    assert opened.artefact is not None
    assert opened.array.flags.aligned


@pytest.mark.parametrize("where", ["here", "fork"])
def test_pillow_decodes_pictures_and_reports_progress_of_this_process(tmp_path, where):
    pictures.fromarray(noise((3000, 900, 3), "u1")).save(tmp_path / "a.png")
    seen = []
    store = oc.Store(tmp_path / "store", where=where)
    image = oc.images.open(tmp_path / "a.png", store=store, progress=lambda *done: seen.append(done))
    assert seen[-1] == (image.nbytes, image.nbytes)
    assert len(seen) > 1
    assert np.array_equal(image.array, expected(tmp_path / "a.png"))
    assert (image.codec[:7], image.axes) == ("pillow ", "YXS")


def test_an_image_is_an_array_to_numpy(tmp_path):
    pixels = noise((30, 20))
    image = oc.images.open(write(tmp_path / "a.tif", pixels))
    assert np.shares_memory(np.asarray(image), image.array)
    assert np.asarray(image, "f4").dtype == np.float32
    assert np.array(image).flags.writeable
    assert np.array_equal(image[3:5, 1], pixels[3:5, 1])
    with pytest.raises(ValueError, match="requires a copy"):
        np.asarray(image, "f4", copy=False)


def test_views_live_on_after_close(tmp_path):
    pixels = noise((30, 20))
    with oc.images.open(write(tmp_path / "a.tif", pixels)) as image:
        row = image.array[3]
        assert not image.closed
    assert image.closed
    assert row.tolist() == pixels[3].tolist()
    for look in (lambda: image.array, lambda: image[0], lambda: image.shape, lambda: np.asarray(image)):
        with pytest.raises(ValueError, match=r"a\.tif: the image is closed"):
            look()
    assert "closed" in repr(image)
    image.close()


def test_another_process_maps_the_same_file_and_loads_no_codec(tmp_path, python):
    pixels = noise((300, 200))
    image = oc.images.open(write(tmp_path / "a.tif", pixels))
    (tmp_path / "image.pickle").write_bytes(pickle.dumps(image))
    code = """
        import pickle, sys, pathlib
        image = pickle.loads(pathlib.Path(sys.argv[1], "image.pickle").read_bytes())
        print(int(image.array.sum()), image.file.identity, image.levels)
        import onecopy as oc
        assert not oc.images.open(sys.argv[1] + "/a.tif").artefact.built
        assert not {"tifffile", "imagecodecs", "PIL", "pyvips"} & set(sys.modules)
    """
    assert python(code, tmp_path) == f"{pixels.sum()} {image.file.identity} {image.levels}\n"


def test_a_file_that_was_written_anew_is_decoded_anew(tmp_path):
    path = write(tmp_path / "a.tif", noise((300, 200)))
    old = oc.images.open(path)
    write(path, noise((300, 200)) + 1)
    new = oc.images.open(path)
    assert new.artefact.built
    assert np.array_equal(new.array, old.array + 1)
    assert [one.source_present for one in oc.Store().ls()].count(False) == 1


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_source_that_is_replaced_leaves_nothing(tmp_path, cache, monkeypatch, moment):
    path, reserved = write(tmp_path / "a.tif", noise((300, 200))), opening._reserved
    write(tmp_path / "b.tif", noise((300, 200)) + 1)

    def replace(*_: object) -> None:
        if (tmp_path / "b.tif").exists():
            (tmp_path / "b.tif").replace(path)

    def replaced(*arguments: object) -> object:
        replace()
        return reserved(*arguments)

    if moment == "before":
        monkeypatch.setattr(opening, "_reserved", replaced)
    with pytest.raises(oc.errors.FileChanged, match="being decoded"):
        oc.images.open(path, progress=replace)
    assert list(cache.iterdir()) == []
    assert np.array_equal(oc.images.open(path).array, noise((300, 200)) + 1)


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_what_raises_in_progress_leaves_nothing(tmp_path, cache, error):
    def fail(*_: int) -> None:
        raise error

    path = write(tmp_path / "a.tif", noise((300, 200)))
    with pytest.raises(error):
        oc.images.open(path, progress=fail)
    assert list(cache.iterdir()) == []


def test_a_damaged_file_leaves_nothing_and_is_not_remembered(tmp_path, cache):
    path = write(tmp_path / "a.tif", noise((300, 200)))
    whole = path.read_bytes()
    os.truncate(path, len(whole) // 2)
    with pytest.raises(CodecError, match=r"a\.tif: the file is truncated: segment 7 "):
        oc.images.open(path)
    assert list(cache.iterdir()) == []
    path.write_bytes(whole)
    assert np.array_equal(oc.images.open(path).array, noise((300, 200)))


def test_more_than_is_allowed_is_refused_before_anything_is_made(tmp_path, cache):
    path = write(tmp_path / "a.tif", noise((300, 200)))
    for use, limit, words in ((oc.images.open, "100 kB", "100 kB"), (oc.images.decode, 0, "0 B")):
        with pytest.raises(CodecError, match=f"120 kB, more than the limit of {words}"):
            use(path, max_bytes=limit)
    assert list(cache.iterdir()) == []


def test_what_is_decoded_at_once_is_counted(tmp_path, cache, monkeypatch):
    path = write(tmp_path / "a.tif", np.zeros((2048, 2048), np.uint8), compression="lzma", rowsperstrip=2048)
    with pytest.raises(CodecError, match=r"strip or tile needs.* 4\.19 MB.*limit of 3\.81 MB"):
        oc.images.open(path, max_bytes="8 MB")
    row = tmp_path / "row.tif"
    tifffile.imwrite(row, np.zeros((1, 2048), np.uint8), tile=(2048, 2048), compression="zlib")
    monkeypatch.setattr(oc.images.codecs, "_PLAUSIBLE", 1 << 20)
    monkeypatch.setattr(oc.images.codecs, "_RATIO", 100)
    with pytest.raises(CodecError, match=r"strip or tile needs.* 4\.19 MB.*limit of 1\.05 MB.*max_bytes"):
        oc.images.open(row)
    assert list(cache.iterdir()) == []
    with oc.images.open(path, max_bytes="9 MB") as image:
        assert image.array.shape == (2048, 2048)


def test_a_header_that_claims_more_memory_than_there_is_is_damaged(reserving, tmp_path, monkeypatch):
    path = write(tmp_path / "a.tif", noise((300, 200)))

    def claim(*given):
        raise MemoryError("Unable to allocate 12.0 TiB")

    reader = next(oc.images.codecs.each_for(path)).reader()
    with monkeypatch.context() as patch:
        patch.setattr(reader, "facts", claim)
        with pytest.raises(CodecError, match=r"a\.tif: .*damaged: Unable to allocate"):
            oc.images.open(path)
    monkeypatch.setattr(reader, "fill", claim)
    with pytest.raises(CodecError, match=r"a\.tif: .*Unable to allocate .*damaged: .*120 kB"):
        oc.images.decode(path)
    monkeypatch.setattr(oc.images.codecs, "available_memory", lambda: 400_000)
    with pytest.raises(MemoryError, match=r"a\.tif: .*Unable to allocate"):
        oc.images.decode(path)


def test_a_decoded_image_may_be_written(reserving, tmp_path):
    pixels, seen = noise((300, 200)), []
    path = write(tmp_path / "a.tif", pixels)
    options = {"folder": tmp_path, "max_resident": "1 MiB", "progress": lambda *done: seen.append(done)}
    with oc.images.decode(path, **options) as canvas:
        assert (canvas.path, canvas.memory_cap) == (str(tmp_path), 1 << 20)
        assert np.array_equal(canvas.array, pixels)
        canvas.array[0] = 7
        assert int(canvas.array[0].sum()) == 1400
    assert seen[-1] == (pixels.nbytes, pixels.nbytes)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]


def test_a_file_of_one_array_is_an_image(tmp_path):
    pixels = noise((30, 20, 3), "u1")
    oc.save(tmp_path / "a.oc", {"mine": pixels})
    image = oc.images.open(tmp_path / "a.oc")
    assert np.array_equal(image.array, pixels)
    assert (image.levels, image.axes, image.artefact) == (((30, 20, 3),), "YXS", None)
    with pytest.raises(ValueError, match="no level 1"):
        oc.images.open(tmp_path / "a.oc", 1)
    oc.save(tmp_path / "b.oc", {"a": pixels, "b": pixels})
    with pytest.raises(oc.FormatError, match="not an image: none of the 2 arrays is named 'data'"):
        oc.images.open(tmp_path / "b.oc")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"level": "x", "levels": [], "axes": "", "codec": ""}', "\0"])
def test_metadata_that_are_damaged_are_an_error(tmp_path, text):
    oc.save(tmp_path / "a.oc", {"data": noise((30, 20))}, {"image": text})
    with pytest.raises(oc.FormatError, match="the image metadata is damaged"):
        oc.images.open(tmp_path / "a.oc")


def test_an_image_that_cannot_be_an_array_of_a_file_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((9, 9), np.complex128), compression="zlib")
    with pytest.raises(CodecError, match="elements of type <c16 are not supported by array files"):
        oc.images.open(tmp_path / "a.tif")


@pytest.mark.parametrize("name", ["a.png", "a.gif", "a.tif"])
def test_a_palette_stays_indices_and_is_reported(tmp_path, name):
    picture = pictures.fromarray(noise((30, 20), "u1")).convert("P")
    picture.save(tmp_path / name)
    for built in (True, False):
        image = oc.images.open(tmp_path / name)
        assert image.codec.endswith(", palette indices")
        assert image.reason.endswith("; its pixels are palette indices, not colours")
        assert pickle.loads(pickle.dumps(image)).reason == image.reason
        if image.artefact is not None:
            assert image.artefact.built == built
    assert oc.images.codecs.read_facts(tmp_path / name).codec == image.codec
