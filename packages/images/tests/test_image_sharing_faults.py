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
from onecopy_images import CodecError

pictures = pytest.importorskip("PIL.Image")


def cut(path: Path) -> None:
    """Cut the last bytes of a file off."""
    os.truncate(path, path.stat().st_size - 50)


# --- what cannot be decoded -------------------------------------------------------------------------------------------


def test_no_images_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="needs 1 image or more"):
        oc.images.share([])
    with pytest.raises(ValueError, match="no file matches this pattern"):
        oc.images.share(tmp_path / "*.jpg")
    with pytest.raises(ValueError, match=r"a folder: give a pattern of images in it, such as .*/\*\*/\*\.jpg"):
        oc.images.share(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        oc.images.share([tmp_path / "missing.jpg"])


def test_what_is_no_regular_file_is_an_error_and_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(OSError, match="not a regular file" if path.is_fifo() else "a folder") as caught:
            oc.images.share([path])
        assert (caught.value.errno, caught.value.filename) == (
            errno.ENODEV if path.is_fifo() else errno.EISDIR,
            str(path),
        )


def test_an_image_that_was_too_large_is_decoded_where_the_limit_is_higher(tmp_path):
    paths = save_photos(tmp_path, [(40, 60), (20, 30)])
    with oc.images.share(paths, max_bytes=2000, on_error="skip") as images:
        assert list(images.errors) == [0]
    with oc.images.share(paths) as images:
        assert images.errors == {}
        assert np.array_equal(images[0], expected(paths[0]))


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
    from onecopy_images import codecs

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
    assert f"{paths[0]}: pillow" in str(caught.value)
    assert "image file is truncated" in str(caught.value)
    for number in (2, 4):
        assert f"cannot identify image file '{paths[number]}'" in str(caught.value)
    images = oc.images.share(paths, on_error="skip")
    assert not images.report.built
    assert list(images.errors) == [0, 2, 4]
    assert images.errors[2].startswith(f"{paths[2]}: pillow ")
    for number, path in enumerate(paths):
        assert np.array_equal(images[number], np.zeros((40, 60, 3)) if number in images.errors else expected(path))
    assert list(pickle.loads(pickle.dumps(images)).errors) == [0, 2, 4]


def test_the_message_of_many_damaged_images_is_short(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 9)
    for path in paths[1:]:
        cut(path)
    with pytest.raises(CodecError, match="; and 3 more: the others are decoded: give on_error='skip'") as caught:
        oc.images.share(paths)
    assert str(paths[5]) in str(caught.value)
    assert str(paths[6]) not in str(caught.value)


def test_damaged_images_of_different_shapes_are_zeros_of_the_shape_in_their_header(tmp_path):
    paths = save_photos(tmp_path, [(40, 60), (33, 21), (7, 90)])
    cut(paths[0])
    paths[2].write_text("not an image")
    images = oc.images.share(paths, on_error="skip", transform=fails_never)
    assert images.shapes.tolist() == [[33, 21, 3]] * 3  # the transform saw no image of the shape (40, 60, 3)
    images = oc.images.share(paths, on_error="skip")
    assert images.shapes.tolist() == [[40, 60, 3], [33, 21, 3], [40, 60, 3]]
    assert not images[0].any()
    assert np.array_equal(images[1], expected(paths[1]))


def fails_never(image: np.ndarray) -> np.ndarray:
    return image


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
    assert "more than the limit of 10.0 MB" in images.errors[1]
    assert oc.images.share(paths, size=8).report.built  # within the usual limit
    pictures.new("1", (60_000, 3_000)).save(paths[1], "PNG")
    images = oc.images.share(paths, size=8, on_error="skip")
    assert "DecompressionBombError" in images.errors[1]


def test_without_pillow_the_error_says_what_to_install(tmp_path, monkeypatch):
    from onecopy_images import codecs

    monkeypatch.setattr(codecs, "installed", lambda _: None)
    with pytest.raises(CodecError, match=r"Pillow is not installed: pip install 'onecopy\[images\]'"):
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


class Counting:
    """Count the images that are decoded, by Pillow's function that opens them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from onecopy_images import _pillow

        self.paths: list[str] = []
        decoded = _pillow.decoded

        def counted(path: str, form: object) -> np.ndarray:
            self.paths.append(path)
            return decoded(path, form)

        monkeypatch.setattr(_pillow, "decoded", counted)


def test_a_build_that_was_stopped_is_continued_and_no_image_is_decoded_twice(tmp_path, cache, monkeypatch):
    paths, counting = save_photos(tmp_path, [(40, 60), (33, 21)] * 40), Counting(monkeypatch)

    def stop(done: int, _: int) -> None:
        if done == 12:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError):
        oc.images.share(paths, threads=1, progress=stop)
    assert suffixes(oc.Store(cache)) == [".partial", ".pieces"]
    (left,) = oc.Store(cache).ls()
    assert (left.state, left.key.partition(",")[0]) == ("partial", "dataset of 80 images")
    seen = []
    images = oc.images.share(paths, threads=1, progress=lambda done, total: seen.append((done, total)))
    assert 12 <= 80 - len(seen) < 80  # what was in work is kept too
    assert sorted(counting.paths) == sorted(map(str, paths))
    assert seen[-1] == (80, 80)
    for number, path in enumerate(paths):
        assert np.array_equal(images[number], expected(path))
    assert suffixes(oc.Store(cache)) == [".about", ".oc"]


@pytest.mark.parametrize("damage", ["pieces", "partial", "restart"])
def test_a_damaged_partial_file_is_not_trusted(tmp_path, cache, monkeypatch, damage):
    paths = save_photos(tmp_path, [(40, 60)] * 60)

    def stop(done: int, _: int) -> None:
        if done == 12:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        oc.images.share(paths, threads=1, progress=stop)
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
    images = oc.images.share(paths)
    for number, path in enumerate(paths):
        assert np.array_equal(images[number], expected(path))


def test_errors_are_json_in_the_file(tmp_path):
    paths = save_photos(tmp_path, [(40, 60)] * 2)
    cut(paths[1])
    images = oc.images.share(paths, on_error="skip")
    assert list(json.loads(bytes(oc.open(images.path)["errors"]))) == ["1"]
