"""Datasets with damaged images, images that change meanwhile, and builds that are stopped and continued."""

import errno
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.support.images import expected, photo, save_photos
from tests.support.store_processes import suffixes

import onecopy as oc
from onecopy_images import CodecError, Images, _pillow, codecs

pictures = pytest.importorskip("PIL.Image")


def cut(path: Path) -> None:
    """Cut the last bytes of a file off."""
    os.truncate(path, path.stat().st_size - 50)


def share_until(paths: list[Path], most: int) -> None:
    """Share images, in a build that is stopped when so many are decoded."""

    def stop(done: int, _: int) -> None:
        if done == most:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        oc.images.share(paths, threads=1, progress=stop)


def assert_decoded(images: Images, paths: list[Path]) -> None:
    for number, path in enumerate(paths):
        assert np.array_equal(images[number], expected(path))


# --- what cannot be decoded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "error", "number", "words"),
    [
        ([], ValueError, None, "must contain at least 1 image"),
        ("*.jpg", ValueError, None, "no file matches this pattern"),
        ("folder", ValueError, None, r"a folder: .*/\*\*/\*\.jpg"),
        (["missing.jpg"], FileNotFoundError, errno.ENOENT, "missing"),
        (["folder"], IsADirectoryError, errno.EISDIR, "a folder"),
        (["fifo"], OSError, errno.ENODEV, "not a regular file"),
    ],
)
def test_what_is_no_list_of_images_is_an_error_and_is_not_opened(tmp_path, names, error, number, words):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=words) as caught:
        oc.images.share(tmp_path / names if isinstance(names, str) else [tmp_path / name for name in names])
    if number is not None:
        assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / names[0]))


def test_an_artefact_that_another_program_changed_is_made_anew(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 3)
    oc.images.share(paths).close()
    (artefact,) = (tmp_path / "cache").glob("*.oc")
    for damage in (lambda: os.truncate(artefact, 5000), lambda: artefact.write_bytes(b"x" * 9000), artefact.unlink):
        damage()
        images = oc.images.share(paths)
        assert images.report.built
        assert np.array_equal(images[2], expected(paths[2]))
        images.close()


def test_an_image_that_was_replaced_before_its_header_was_read_is_not_called_damaged(tmp_path, monkeypatch):
    paths = save_photos(tmp_path, [(40, 60)] * 3)
    facts_of = codecs.facts_of

    def replaced(codec: object, path: str, level: int) -> object:
        paths[1].write_text("not an image")
        return facts_of(codec, path, level)

    monkeypatch.setattr(codecs, "facts_of", replaced)
    with pytest.raises(oc.errors.FileChanged, match="while its dataset was being decoded"):
        oc.images.share(paths, on_error="skip")


@pytest.mark.parametrize("where", ["here", "fork"])
def test_errors_are_the_same_from_a_child(tmp_path, where):
    paths, store = save_photos(tmp_path, [(40, 60)] * 3), oc.Store(tmp_path / "store", where=where)
    cut(paths[1])
    with pytest.raises(CodecError, match=r"^1 of 3 images cannot be decoded: .*0001\.jpg: pillow .* is truncated"):
        oc.images.share(paths, store=store)

    def fails(image: np.ndarray) -> np.ndarray:
        raise KeyError("no label")

    with pytest.raises(KeyError, match="no label") as caught:
        oc.images.share(paths, store=store, transform=fails)
    assert f"raised by the transform of {paths[0]}" in caught.value.__notes__


def test_damaged_images_are_named_and_can_be_skipped_without_decoding_again(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 6)
    cut(paths[0])
    paths[2].write_text("not an image")
    paths[4].write_bytes(b"")
    with pytest.raises(CodecError, match=r"^3 of 6 images cannot be decoded: ") as caught:
        oc.images.share(paths)
    for number in (0, 2, 4):
        assert f"{paths[number]}: pillow" in str(caught.value)
    images = oc.images.share(paths, on_error="skip")
    assert not images.report.built
    assert list(images.errors) == [0, 2, 4]
    assert images.errors[2].startswith(f"{paths[2]}: pillow ")
    for number, path in enumerate(paths):
        assert np.array_equal(images[number], np.zeros((40, 60, 3)) if number in images.errors else expected(path))
    assert list(pickle.loads(pickle.dumps(images)).errors) == [0, 2, 4]
    assert list(json.loads(bytes(images.file["errors"]))) == ["0", "2", "4"]


def test_the_message_of_many_damaged_images_is_short(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 9)
    for path in paths[1:]:
        cut(path)
    with pytest.raises(CodecError, match=r"; and 3 more\. .*on_error='skip'") as caught:
        oc.images.share(paths)
    assert str(paths[5]) in str(caught.value)
    assert str(paths[6]) not in str(caught.value)


def test_damaged_images_of_different_shapes_are_zeros_of_the_shape_in_their_header(tmp_path):
    paths = save_photos(tmp_path, [(40, 60), (33, 21), (7, 90)])
    cut(paths[0])
    paths[2].write_text("not an image")
    images = oc.images.share(paths, on_error="skip", transform=lambda image: image)
    assert images.shapes.tolist() == [[33, 21, 3]] * 3  # the transform saw no image of the shape (40, 60, 3)
    images = oc.images.share(paths, on_error="skip")
    assert images.shapes.tolist() == [[40, 60, 3], [33, 21, 3], [40, 60, 3]]
    assert not images[0].any()
    assert np.array_equal(images[1], expected(paths[1]))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_if_no_image_can_be_decoded_nothing_is_kept(tmp_path, cache, on_error):
    paths = [tmp_path / f"{number}.jpg" for number in range(2)]
    for path in paths:
        path.write_text("not an image")
    with pytest.raises(CodecError, match=r"none of the 2 images can be decoded: .*0\.jpg: "):
        oc.images.share(paths, on_error=on_error)
    assert suffixes(oc.Store(cache)) == []


def test_a_header_that_claims_too_much_is_an_error_before_anything_is_decoded(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 2)
    pictures.new("1", (60_000, 1_600)).save(paths[1], "PNG")
    images = oc.images.share(paths, max_bytes="10 MB", on_error="skip")
    assert list(images.errors) == [1]
    assert "10.0 MB" in images.errors[1]
    images = oc.images.share(paths)  # within the usual limit
    assert (images.report.built, images.errors) == (True, {})
    assert np.array_equal(images[0], expected(paths[0]))
    pictures.new("1", (60_000, 3_000)).save(paths[1], "PNG")
    images = oc.images.share(paths, size=8, on_error="skip")
    assert "DecompressionBombError" in images.errors[1]


def test_without_pillow_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(codecs, "installed", lambda _: None)
    with pytest.raises(CodecError, match=r"cannot convert the image without Pillow: pip install 'onecopy\[images\]'"):
        oc.images.share(save_photos(tmp_path, [(4, 6)]))


@pytest.mark.parametrize("change", ["replaced", "removed", "damaged"])
def test_an_image_that_changes_meanwhile_is_an_error_and_nothing_is_kept(tmp_path, cache, change):
    paths = save_photos(tmp_path, [(40, 60)] * 60)

    def meddle(done: int, _: int) -> None:
        if done == 1 and change == "replaced":
            photo(9, (40, 60)).save(paths[59])
        elif done == 1 and change == "removed":
            paths[59].unlink()
        elif done == 1:
            cut(paths[59])

    with pytest.raises(oc.errors.FileChanged, match="while its dataset was being decoded") as caught:
        oc.images.share(paths, threads=1, progress=meddle)
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(paths[59]))
    assert suffixes(oc.Store(cache)) == []


# --- continuing -------------------------------------------------------------------------------------------------------


def test_a_build_that_was_stopped_is_continued_and_no_image_is_decoded_twice(tmp_path, cache, monkeypatch):
    paths, decoded, counted = save_photos(tmp_path, [(40, 60), (33, 21)] * 40), _pillow.decoded, []
    monkeypatch.setattr(_pillow, "decoded", lambda path, form: counted.append(path) or decoded(path, form))
    share_until(paths, 12)
    assert suffixes(oc.Store(cache)) == [".partial", ".pieces"]
    (left,) = oc.Store(cache).ls()
    assert (left.state, left.key.partition(",")[0]) == ("partial", "dataset of 80 images")
    seen = []
    images = oc.images.share(paths, threads=1, progress=lambda done, total: seen.append((done, total)))
    assert 12 <= 80 - len(seen) < 80  # what was in work is kept too
    assert sorted(counted) == sorted(map(str, paths))
    assert seen[-1] == (80, 80)
    assert_decoded(images, paths)
    assert suffixes(oc.Store(cache)) == [".about", ".oc"]


def test_images_that_are_decoded_after_a_torn_entry_are_kept_at_the_next_stop(tmp_path, cache, monkeypatch):
    paths, decoded, counted = save_photos(tmp_path, [(40, 60)] * 60), _pillow.decoded, []
    share_until(paths, 12)
    (pieces,) = cache.glob("*.pieces")
    pieces.write_bytes(pieces.read_bytes()[:-10])
    share_until(paths, 36)
    monkeypatch.setattr(_pillow, "decoded", lambda path, form: counted.append(path) or decoded(path, form))
    assert_decoded(oc.images.share(paths), paths)
    assert len(counted) <= 24


@pytest.mark.parametrize("damage", ["pieces", "partial", "restart"])
def test_a_damaged_partial_file_is_not_trusted(tmp_path, cache, monkeypatch, damage):
    paths = save_photos(tmp_path, [(40, 60)] * 60)
    share_until(paths, 12)
    (partial,), (pieces,) = cache.glob("*.partial"), cache.glob("*.pieces")
    if damage == "pieces":
        pieces.write_bytes(pieces.read_bytes()[:-30])  # entries that a kill has torn
    elif damage == "partial":
        cut(partial)
    else:  # what was not yet on the disk when the machine restarted
        key, _, entries = pieces.read_bytes().split(b"\n", 2)
        pieces.write_bytes(b"\n".join([key, b"another boot", entries]))
        with partial.open("r+b") as file:
            file.write(bytes(20_000))
    assert_decoded(oc.images.share(paths), paths)
