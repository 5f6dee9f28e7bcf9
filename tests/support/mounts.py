"""Mounts as containers have them, made in the mount namespace of the test session: they go with it."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support import isolation


@dataclass(frozen=True)
class Mounted:
    """A folder that is mounted at another place."""

    source: Path
    """The folder behind the mount: what is written here is seen through it."""
    path: Path


def mounted(source: Path, path: Path, *options: str) -> Iterator[Mounted]:
    """Mount until the generator is closed; skip where this process may not mount."""
    if not isolation.MOUNTS_ARE_OURS:
        pytest.skip("this session has no mount namespace of its own")
    path.mkdir(parents=True)
    done = subprocess.run(["mount", *options, path], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    yield Mounted(source, path)
    subprocess.run(["umount", "--lazy", path], check=True)


def overlay_of(lower: Path, folder: Path, *, writable: bool = True) -> Iterator[Mounted]:
    layers = f"lowerdir={lower}"
    if writable:
        for name in ("upper", "work"):
            (folder / name).mkdir(parents=True)
        layers += f",upperdir={folder}/upper,workdir={folder}/work"
    else:
        (folder / "empty").mkdir(parents=True)
        layers = f"lowerdir={lower}:{folder}/empty"
    yield from mounted(lower, folder / "root", "-t", "overlay", "overlay", "-o", layers)


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Mounted]:
    """Give an overlay over an empty folder, its lower layer."""
    (tmp_path / "lower").mkdir()
    yield from overlay_of(tmp_path / "lower", tmp_path / "overlay")


@pytest.fixture
def read_only_bind(tmp_path: Path) -> Iterator[Mounted]:
    """Give a read-only bind mount of a writable folder, as ``docker run -v models:/models:ro`` makes it."""
    source = tmp_path / "volume"
    source.mkdir()
    yield from mounted(source, tmp_path / "models", "--bind", "-o", "ro", source)


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Mounted]:
    yield from mounted(tmp_path / "memory", tmp_path / "memory", "-t", "tmpfs", "none")
