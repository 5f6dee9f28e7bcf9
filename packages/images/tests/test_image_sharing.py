"""Datasets decoded into one file, judged by what Pillow and tifffile read of each image."""

import functools
import os
import pickle
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.support.images import expected, photo, save_photos
from tests.support.store_processes import suffixes

import onecopy as oc
from onecopy_images import CodecError, Images

pictures = pytest.importorskip("PIL.Image")


# --- what is decoded --------------------------------------------------------------------------------------------------


def test_images_of_one_shape_are_one_array(tmp_path, cache):
    paths = save_photos(tmp_path, [(40, 60)] * 5)
    with oc.images.share(paths) as images:
        assert images.array.shape == (5, 40, 60, 3)
        assert len(images) == len(list(images)) == 5
        for number, path in enumerate(paths):
            assert np.array_equal(images[number], expected(path))
            assert not images[number].flags.writeable
            assert np.shares_memory(images[number], images.array)
        assert np.array_equal(images[1:3], np.stack([images[1], images[2]]))
        assert np.array_equal(images[[4, 0]], np.stack([images[-1], images[0]]))
        assert np.shares_memory(np.asarray(images), images.array)
        assert images.paths == [str(path) for path in paths]
        assert images.shapes.tolist() == [[40, 60, 3]] * 5
        assert (images.dtype, images.nbytes, images.errors) == (np.uint8, 5 * 40 * 60 * 3, {})
        with pytest.raises(IndexError):
            images[5]
    assert suffixes(oc.Store(cache)) == [".about", ".oc"]


def test_images_of_different_shapes_are_each_as_pillow_reads_them(tmp_path):
    paths = save_photos(tmp_path, [(40, 60), (33, 21), (40, 60), (7, 90)])
    images = oc.images.share(paths)
    for number in range(-4, 4):
        assert np.array_equal(images[number], expected(paths[number]))
        assert np.shares_memory(images[number], images.file["pixels"])
    assert images.shapes.tolist() == [[40, 60, 3], [33, 21, 3], [40, 60, 3], [7, 90, 3]]
    assert images.nbytes == images.shapes.prod(axis=1).sum()
    with pytest.raises(ValueError, match="share them with a size"):
        _ = images.array
    for wrong, error in ((slice(2), TypeError), (4, IndexError), (-5, IndexError)):
        with pytest.raises(error, match="slice" if error is TypeError else f"{wrong} .* 4 images"):
            images[wrong]


@pytest.mark.parametrize("shapes", [[(40, 60)] * 3, [(40, 60), (33, 21), (7, 90)]])
def test_the_artefact_is_a_file_of_arrays(tmp_path, shapes):
    images = oc.images.share(save_photos(tmp_path, shapes))
    with oc.open(images.path) as file:
        assert file.kind == "arrays"
        assert list(file) == (
            ["paths", "pixels"] if len(set(shapes)) == 1 else ["offsets", "shapes", "paths", "pixels"]
        )
        assert np.array_equal(file["pixels"].reshape(-1), np.concatenate([image.reshape(-1) for image in images]))
        assert file.entry("pixels").offset % 4096 == 0
    safetensors = pytest.importorskip("safetensors.numpy")
    assert np.array_equal(safetensors.load_file(images.path)["pixels"], images.file["pixels"])


def test_a_second_call_decodes_nothing_and_a_changed_file_makes_a_new_artefact(tmp_path, cache):
    paths = save_photos(tmp_path, [(40, 60)] * 3)
    first, second = oc.images.share(paths), oc.images.share(map(str, paths))
    assert (first.report.built, second.report.built) == (True, False)
    assert first.path == second.path
    assert not oc.images.share(tmp_path / "*.jpg").report.built
    for changed in (paths[::-1], paths[:2]):
        assert oc.images.share(changed).report.built
    photo(9, (40, 60)).save(paths[1])
    third = oc.images.share(paths)
    assert third.report.built
    assert np.array_equal(third[1], expected(paths[1]))
    assert not np.array_equal(third[1], first[1])
    assert suffixes(oc.Store(cache)).count(".oc") == 4


def test_relative_paths_and_links_to_folders_name_the_same_images(tmp_path, monkeypatch):
    (tmp_path / "train").mkdir()
    paths = save_photos(tmp_path / "train", [(40, 60)] * 2)
    (tmp_path / "link").symlink_to("train")
    assert oc.images.share(paths).report.built
    monkeypatch.chdir(tmp_path / "train")
    for same in ([path.name for path in paths], "../**/link/*.jpg", [f"../train/{path.name}" for path in paths]):
        images = oc.images.share(same)
        assert not images.report.built
        assert images.paths == [str(path) for path in paths]


def test_names_of_any_bytes_are_kept(tmp_path):
    names = [b"new\nline.jpg", b"\xff\xfe.jpg", "\u00e9.jpg".encode()]
    paths = [Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)) for name in names]
    for path in paths:
        photo(1, (20, 30)).save(path)
    assert oc.images.share(paths).paths == [str(path) for path in paths]
    assert not oc.images.share(paths).report.built


# --- options ----------------------------------------------------------------------------------------------------------


def test_a_size_reduces_and_enlarges_as_pillow_does(tmp_path):
    paths = [tmp_path / "small.png", tmp_path / "large.png"]
    photo(1, (20, 30)).save(paths[0])
    photo(2, (200, 100)).save(paths[1])
    for size, sides in (((48, 64), [(64, 48)] * 2), (64, [(64, 43), (32, 64)])):
        images = oc.images.share(paths, size=size)
        for image, path, (width, height) in zip(images, paths, sides, strict=True):
            assert np.array_equal(
                image, np.asarray(pictures.open(path).resize((width, height), pictures.Resampling.BILINEAR))
            )


def test_a_reduced_jpeg_is_close_to_one_that_was_decoded_whole(tmp_path):
    path = tmp_path / "a.jpg"
    photo(1, (800, 600)).save(path, quality=95)
    image = oc.images.share([path], size=(100, 75))[0]
    whole = np.asarray(pictures.open(path).resize((75, 100), pictures.Resampling.BILINEAR))
    assert np.abs(image.astype(int) - whole).mean() < 3


@pytest.mark.parametrize("color", ["RGB", "RGBA", "L"])
def test_colours_are_those_that_pillow_converts_to(tmp_path, color):
    made = photo(1, (20, 30))
    modes = ["RGB", "L", "P", "CMYK", "1", "RGBA"]
    paths = [tmp_path / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}" for mode in modes]
    for mode, path in zip(modes, paths, strict=True):
        made.convert(mode).save(path)
    images = oc.images.share(paths, color=color)
    for image, path in zip(images, paths, strict=True):
        assert np.array_equal(image, expected(path, color))


def test_values_of_16_bits_are_kept_and_never_cut_to_8(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    values = [np.random.default_rng(number).integers(0, 60000, (20, 30), np.uint16) for number in range(3)]
    paths = [tmp_path / f"{number}.tif" for number in range(3)]
    for path, value in zip(paths, values, strict=True):
        tifffile.imwrite(path, value, compression="zlib")
    images = oc.images.share(paths, color=None)
    assert images.dtype == np.uint16
    assert np.array_equal(images.array, np.stack(values))
    with pytest.raises(CodecError, match="cannot be converted to 'RGB' without loss: pass color=None"):
        oc.images.share(paths)


def test_images_as_they_are_must_be_alike(tmp_path):
    photo(1, (20, 30)).save(tmp_path / "a.png")
    photo(1, (20, 30)).convert("L").save(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"a\.png has uint8 of shape \(20, 30, 3\) and .*b\.png has .*\(20, 30\)"):
        oc.images.share(tmp_path / "*.png", color=None)


def as_floats(image: np.ndarray) -> np.ndarray:
    image[0] = 0  # it may be written
    return np.moveaxis(image, -1, 0).astype(">f4") / 255


def test_a_transform_decides_on_shape_and_dtype(tmp_path):
    paths = save_photos(tmp_path, [(40, 60), (33, 21), (40, 60)])
    images = oc.images.share(paths, transform=as_floats)
    assert images.dtype == np.dtype("<f4")
    for image, path in zip(images, paths, strict=True):
        assert np.array_equal(image, as_floats(expected(path).copy()))


def test_the_code_and_the_values_of_a_transform_are_part_of_the_key(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 2)

    def scaled(image: np.ndarray, by: int) -> np.ndarray:
        return image // by

    def shared(by: int, **options: str) -> Images:
        return oc.images.share(paths, transform=functools.partial(scaled, by=by), **options)

    assert [shared(2).report.built, shared(2).report.built, shared(3).report.built] == [True, False, True]
    assert shared(2, version="2").report.built
    assert np.array_equal(shared(3)[1], expected(paths[1]) // 3)
    lock = threading.Lock()
    with pytest.raises(TypeError, match="stable identity, but 'lock' of the function"):
        oc.images.share(paths, transform=lambda image: (lock, image)[1])


def test_a_transform_that_makes_no_array_or_other_shapes_is_an_error_and_leaves_nothing(tmp_path, cache):
    paths = save_photos(tmp_path, [(40, 60), (33, 21)])
    with pytest.raises(TypeError, match="no element type for the numpy dtype <U"):
        oc.images.share(paths, transform=lambda image: image.astype(str))
    for number, grey in enumerate((30, 20)):
        pictures.new("RGB", (8, 40), (grey,) * 3).save(tmp_path / f"{number}.png")
    with pytest.raises(ValueError, match=r"1\.png: .* \(20, 8, 3\), but .* \(30, 8, 3\)"):
        oc.images.share(tmp_path / "*.png", transform=lambda image: image[: image[0, 0, 0]])
    assert suffixes(oc.Store(cache)) == []  # a corrected function has another key


def test_private_arrays_can_be_written_and_the_file_stays(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 2)
    images = oc.images.share(paths, private=True)
    images[0][:] = 7
    assert (images[0] == 7).all()
    assert np.array_equal(oc.images.share(paths)[0], expected(paths[0]))
    assert pickle.loads(pickle.dumps(images))[0].flags.writeable


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be"),
        ({"size": (3, -1)}, "size must be"),
        ({"size": (3, 4, 5)}, "size must be"),
        ({"size": 2.5}, "size must be"),
        ({"color": "CMYK"}, "color must be .*'CMYK'"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"threads": -1}, "threads"),
    ],
)
def test_invalid_options_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        oc.images.share(save_photos(tmp_path, [(4, 6)]), **options)


# --- the sequence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [[(40, 60)] * 3, [(40, 60), (33, 21), (7, 90)]])
def test_a_pickle_is_small_and_maps_the_same_file(tmp_path, shapes):
    images = oc.images.share(save_photos(tmp_path, shapes))
    text = pickle.dumps(images)
    again = pickle.loads(text)
    assert len(text) < 500
    assert again.path == images.path
    assert again.report is None
    assert all(np.array_equal(one, other) for one, other in zip(again, images, strict=True))
    shutil.copy(images.path, tmp_path / "copy")
    (tmp_path / "copy").replace(images.path)
    with pytest.raises(oc.errors.FileChanged):
        pickle.loads(text)
    oc.Store().prune(everything=True)
    with pytest.raises(FileNotFoundError):
        pickle.loads(text)
    assert all(np.array_equal(one, other) for one, other in zip(again, images, strict=True))  # what is mapped stays


def test_images_can_be_warmed_and_closed_and_their_arrays_stay(tmp_path):
    images = oc.images.share(save_photos(tmp_path, [(40, 60)] * 2))
    assert images.warm().complete
    assert oc.residency(images.file).share == 1
    first = images[0]
    assert "2 images 40 x 60 x 3, uint8" in repr(images)
    images.close()
    images.close()
    assert images.closed
    assert first.shape == (40, 60, 3)
    assert repr(images).endswith("closed>")
    with pytest.raises(ValueError, match="the images are closed"):
        images[0]


DATASET = {
    "offsets": np.array([0, 6, 18]),
    "shapes": np.array([[2, 3], [3, 4]]),
    "paths": np.frombuffer(b"a\0b", np.uint8),
    "pixels": np.zeros(18, np.uint8),
}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"data": np.zeros(3)}, "not a dataset of images"),
        (DATASET | {"offsets": DATASET["offsets"] + 1}, "do not match the pixels"),
        (DATASET | {"shapes": DATASET["shapes"] + 1}, "do not match the pixels"),
        (DATASET | {"errors": np.frombuffer(b"{", np.uint8)}, "list of undecodable images"),
    ],
)
def test_a_file_that_is_no_dataset_or_lies_about_its_shapes_is_refused(tmp_path, arrays, words):
    oc.save(tmp_path / "a.oc", arrays)
    with pytest.raises(oc.FormatError, match=words):
        _ = Images(oc.open(tmp_path / "a.oc")).errors
