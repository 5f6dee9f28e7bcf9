"""Disks of a few megabytes, mounted for one process and its children: they go with them."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.isolation import enter_own_mounts
from tests.support.writing import MIB

DISKS = {
    "tmpfs": ["mount", "-t", "tmpfs", "-o", "size=8m", "none"],
    "ext4": ["mount", "-o", "loop"],
    "64 MiB": ["mount", "-t", "tmpfs", "-o", "size=64m", "none"],  # as containers have /dev/shm
    "few inodes": ["mount", "-t", "tmpfs", "-o", "size=80m,nr_inodes=3", "none"],
}


def mount(kind: str, folder: Path) -> None:
    """Mount a small disk on a folder, for this process and its children alone: it goes with them."""
    enter_own_mounts()
    folder.mkdir(exist_ok=True)
    command = DISKS[kind].copy()
    if kind == "ext4":
        image = folder.with_name("image")
        with image.open("wb") as file:
            file.truncate(8 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], check=True, capture_output=True)
        command.append(str(image))
    done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(errno.EPERM, done.stderr)


def blocks_used(folder: Path) -> int:
    facts = os.statvfs(folder)
    return facts.f_blocks - facts.f_bfree


@pytest.fixture
def small_disk(tmp_path: Path, in_child: Callable[..., object]) -> Callable[..., Path]:
    """Give a function (kind, folder=tmp_path/"disk") that mounts a disk for the calling child; skip without mounts."""

    def make(kind: str, folder: Path | None = None) -> Path:
        folder = folder or tmp_path / "disk"
        mount(kind, folder)
        return folder

    for kind in ("tmpfs", "ext4"):
        try:
            in_child(make, kind, tmp_path / "try")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no {kind} disk can be mounted here: {error}")
    return make
