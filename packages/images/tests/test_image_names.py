"""`onecopy.images` and `onecopy_images` are names of one package, and its modules have both, in pickles too."""

import functools
import pickle
import textwrap

import numpy as np
import pytest
from tests.support.images import save_compressed
from tests.support.places import GOLDEN

import onecopy as oc
from onecopy_images import codecs, opening, sharing
from onecopy_images.image import Facts, InPlace, NoLevelError
from onecopy_images.sharing import Form


@pytest.mark.parametrize("first", ["onecopy_images", "onecopy"])
def test_both_names_are_one_package_whichever_is_imported_first(python, first):
    code = f"""
        import sys
        import {first}
        import onecopy as oc
        import onecopy.images.image, onecopy_images.image
        from onecopy.images import codecs, sharing
        from onecopy import images
        assert oc.images is onecopy.images is images is onecopy_images is sys.modules["onecopy.images"]
        assert onecopy.images.image is onecopy_images.image is sys.modules["onecopy.images.image"]
        assert onecopy.images.Image is onecopy_images.image.Image
        assert codecs is sys.modules["onecopy_images.codecs"] and sharing is sys.modules["onecopy_images.sharing"]
        names = sorted(module.__spec__.name for name, module in sys.modules.items() if ".images." in name)
        print(*names)
    """
    assert python(code).split() == ["onecopy_images.image"]


def test_images_of_local_files_need_no_onecopy_remote(python, tmp_path):
    path = save_compressed(tmp_path / "a.tif", np.zeros((40, 50, 3), np.uint8))
    code = """
        import sys
        sys.modules["onecopy_remote"] = None  # as where it is not installed
        import onecopy as oc
        assert oc.images.open(sys.argv[1]).array.shape == oc.images.share([sys.argv[1]])[0].shape
        try:
            oc.images.open("https://host/a.tif")
        except ModuleNotFoundError as error:
            print(error)
    """
    needed = "onecopy.remote needs another package: pip install onecopy-remote"
    assert python(textwrap.dedent(code), path) == f"{needed}\n"


def test_a_module_that_does_not_exist_is_not_found_under_either_name():
    for statement in ("import onecopy.images.nothing", "import onecopy_images.nothing"):
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'onecopy_images\.nothing'"):
            exec(statement)


def test_a_pickle_that_was_written_before_the_package_moved_loads():
    objects = pickle.loads((GOLDEN / "images/names.pickle").read_bytes())
    error = objects.pop("error")
    assert (type(error), str(error), error.path) == (oc.images.CodecError, "a.tif: no image", "a.tif")
    level = objects.pop("level")
    assert (type(level), str(level)) == (NoLevelError, "a.tif: no level 3")
    wanted, found = functools.partial(opening.open, level=1), objects.pop("open")
    assert (found.func, found.keywords) == (wanted.func, wanted.keywords)
    shared = objects.pop("share")
    assert (shared.func, shared.keywords) == (sharing.share, {"size": (32, 48)})
    assert objects == {
        "facts": Facts("tifffile 2026.3.3", (300, 200), "<u2", "YX", 0, ((300, 200),), InPlace(8, "<u2")),
        "form": Form("RGB", (224, 224), False),
        "decode": codecs.decode,
    }


def test_a_handle_that_names_the_former_modules_maps_the_same_pixels(tmp_path, python):
    pytest.importorskip("imagecodecs")
    pixels = np.full((300, 200), 7, np.uint16)
    save_compressed(tmp_path / "a.tif", pixels)
    written = pickle.dumps([oc.images.open(tmp_path / "a.tif"), oc.images.share([tmp_path / "a.tif"], color=None)])
    former = written.replace(b"onecopy_images.", b"onecopy.images.")
    assert former != written
    (tmp_path / "handles.pickle").write_bytes(former)
    code = """
        import pickle, sys
        image, images = pickle.load(open(sys.argv[1], "rb"))
        print(type(image), type(images), int(image.array.sum()), int(images[0].sum()))
    """
    total = int(pixels.sum())
    kinds = "<class 'onecopy_images.image.Image'> <class 'onecopy_images.image.Images'>"
    assert python(code, tmp_path / "handles.pickle") == f"{kinds} {total} {total}\n"
