"""Artefacts that were not flushed: they are valid until the machine restarts."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.seccomp import refuse

import onecopy as oc
from onecopy.arrays.scratch import alloc

BOOT = Path("/proc/sys/kernel/random/boot_id")

pytestmark = pytest.mark.skipif(not os.access(BOOT, os.R_OK), reason="the kernel does not tell its starts apart")


@pytest.fixture
def store(tmp_path) -> oc.Store:
    store = oc.Store(tmp_path / "store")
    if store.place != "disk":
        pytest.skip("temporary files are in memory here")
    return store


def build(path: Path) -> None:
    path.write_text("content")


def never(_: Path) -> None:
    raise AssertionError("it was built again")


def change(about: Path, old: str, new: Callable[[re.Match[str]], str]) -> Path:
    text, count = re.subn(old, new, about.read_text())
    assert count == 1
    about.write_text(text)
    return about


def made_long_ago(store: oc.Store, key: str) -> Path:
    about = store.path(key).with_suffix(".about")
    ago = 60 * 10**9
    return change(about, r"\ncreated (\d+) (\d+)\n", lambda found: f"\ncreated {found[1]} {int(found[2]) - ago}\n")


def test_only_unflushed_artefacts_have_a_boot(store):
    boot = BOOT.read_text().strip()
    for key, durable in (("a", True), ("b", False)):
        about = store.with_options(durable=durable).get_or_build(key, build).path.with_suffix(".about")
        assert about.read_text().startswith(f"onecopy artefact 2\nboot {len(boot)} {boot}\n") is not durable
        assert not store.with_options(durable=durable).get_or_build(key, never).built
    assert sorted(one.reason for one in store.ls()) == [
        "ready",
        "ready, but not flushed: it is valid until the machine restarts",
    ]


def test_after_another_start_it_is_built_again(store):
    about = store.with_options(durable=False).get_or_build("a", build).path.with_suffix(".about")
    change(about, r"\nboot \d+ .*\n", lambda _: "\nboot 5 other\n")
    assert store.find("a") is None
    left = ("leftover", "a", "the machine restarted before it was flushed")
    assert [(one.state, one.key, one.reason) for one in store.ls()] == [left]
    assert store.with_options(durable=False).get_or_build("a", build).built
    assert store.find("a") is not None


@pytest.mark.parametrize(("error", "is_kept"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_bytes_that_are_lost_when_it_is_flushed_are_not_handed_on_and_what_cannot_be_flushed_stays(
    store, in_child, error, is_kept
):
    store.with_options(durable=False).get_or_build("a", build)
    about = made_long_ago(store, "a")
    before = about.read_bytes()

    def ask() -> bool:
        refuse("fsync", error=error)
        return store.find("a") is not None

    assert in_child(ask) == is_kept
    assert len(os.listdir(store.folder)) == 2 * is_kept  # noqa: PTH208
    assert not is_kept or about.read_bytes() == before
    assert store.get_or_build("a", build).built != is_kept
    assert b"\nboot " not in about.read_bytes()


def test_images_do_not_wait_for_the_disk(store, tmp_path, in_child, reserving):
    tifffile = pytest.importorskip("tifffile")
    pixels = np.random.default_rng(1).integers(0, 60000, (300, 200), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib")

    def ask() -> bool:
        refuse("fsync", error=errno.EIO)
        return np.array_equal(oc.images.open(tmp_path / "a.tif", store=store.folder).array, pixels)

    assert in_child(ask)
    image = oc.images.open(tmp_path / "a.tif", store=store.folder)
    assert not image.artefact.built
    made_long_ago(store, image.artefact.key)
    with oc.images.open(tmp_path / "a.tif", store=store.folder) as again:
        assert not again.artefact.built
    assert [one.reason for one in store.ls()] == ["ready"]


@pytest.mark.parametrize("heap", [True, False])
def test_a_scratch_is_saved_without_waiting(reserving, tmp_path, in_child, unnamed_files, heap):
    def ask() -> bool:
        with alloc((300, 200), "u2", heap_below="1 MiB" if heap else 0, dir=tmp_path) as pixels:
            pixels.array[:] = 7
            if not heap:
                refuse("fsync", error=errno.EIO)
            return pixels.save(tmp_path / "a.oc", durable=False).copied

    assert in_child(ask) is (heap or not unnamed_files)
    with oc.open(tmp_path / "a.oc", verify=True) as file:
        assert (file["data"] == 7).all()
