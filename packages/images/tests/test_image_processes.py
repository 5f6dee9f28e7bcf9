"""Images and processes: one process decodes for all, full or failing disks raise errors, memory stays capped."""

import errno
import os
from pathlib import Path

import pytest
from tests.support.images import noise, save_compressed
from tests.support.places import SLIDE, needs
from tests.support.small_disks import blocks_used
from tests.support.store_processes import suffixes

import onecopy as oc

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

pytestmark = pytest.mark.processes


@pytest.fixture
def picture(tmp_path) -> Path:
    """Give a compressed image of 12 MB in many strips."""
    return save_compressed(tmp_path / "picture.tif", noise((3000, 2000)))


# --- full disks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_too_little_space_for_an_image_is_reported_before_it_is_decoded(reserving, picture, small_disk, in_child, kind):
    def ask() -> tuple[OSError, list[str], int, list[int]]:
        store, done = oc.Store(small_disk(kind) / "store"), []
        used = blocks_used(store.folder)
        try:
            oc.images.open(picture, store=store.folder, progress=lambda so_far, _: done.append(so_far))
        except OSError as error:
            return error, suffixes(store), blocks_used(store.folder) - used, done
        raise AssertionError("there was space")

    error, left, more, done = in_child(ask)
    assert error.errno == errno.ENOSPC
    assert (left, more, done) == ([], 0, [])


# --- memory -----------------------------------------------------------------------------------------------------------

HELD = """
    import sys, onecopy as oc

    def anonymous():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

    before, held = anonymous(), []
    for number in range(8):
        if sys.argv[3] == "open":
            held.append(oc.images.open(sys.argv[1], store=f"{sys.argv[2]}/{number}"))
        else:
            held.append(oc.images.decode(sys.argv[1], folder=sys.argv[2]))
    assert len({one.array.sum() for one in held}) == 1
    print(anonymous() - before)
"""


@needs(SLIDE)
@pytest.mark.parametrize("how", ["open", "decode"])
@pytest.mark.slow
def test_eight_slides_that_are_held_take_no_heap(needs_unnamed_files, reserving, python, tmp_path, how):
    if not os.access("/proc/self/status", os.R_OK):
        pytest.skip("there is no /proc/self/status")
    mib = float(python(HELD, SLIDE, tmp_path, how))
    assert mib < 25  # the libraries themselves among it; the pixels are 442


# --- where nothing can be reserved ------------------------------------------------------------------------------------
