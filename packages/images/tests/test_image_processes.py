"""Images and processes: one process decodes for all, full or failing disks raise errors, memory stays capped."""

import errno
import os

import pytest
from tests.support.images import noise, save_compressed, save_photos
from tests.support.places import SLIDE, needs
from tests.support.small_disks import blocks_used
from tests.support.store_processes import suffixes

import onecopy as oc

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
@pytest.mark.parametrize("what", ["image", "dataset"])
def test_too_little_space_is_reported_before_anything_is_decoded(reserving, small_disk, in_child, tmp_path, kind, what):
    def ask() -> tuple[OSError, list[str], int, list[int]]:
        store, done = oc.Store(small_disk(kind) / "store"), []
        options = {"store": store, "progress": lambda so_far, _: done.append(so_far)}
        used = blocks_used(store.folder)
        try:
            if what == "image":
                oc.images.open(save_compressed(tmp_path / "a.tif", noise((3000, 2000))), **options)
            else:
                oc.images.share(save_photos(tmp_path, [(600, 800)] * 10), **options)
        except OSError as error:
            return error, suffixes(store), blocks_used(store.folder) - used, done
        raise AssertionError("there was space")

    error, left, more, done = in_child(ask)
    assert error.errno == errno.ENOSPC
    assert ("12008192 bytes" if what == "image" else "14.4 MB") in str(error)
    assert (left, more, done) == ([], 0, [])


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
