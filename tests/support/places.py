"""Where tests find what is not theirs: the checkout, the golden files, and real data, which is never in the project."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
DATA = Path(os.environ.get("ONECOPY_TEST_DATA", ROOT.parent / "shared/data"))
"""Real data, by the folders coco, genome, mist, onnx and slides."""
TEMPORARY = os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir()
"""The folder of pytest's own folders, also in a session that a test starts."""
SLIDE = DATA / "slides/test3-DAPI-2.ndpi"


def needs(path: Path) -> pytest.MarkDecorator:
    """Skip a test where a piece of the real data is missing."""
    return pytest.mark.skipif(not path.exists(), reason=f"no {path.name} in {DATA}: ONECOPY_TEST_DATA is its folder")


@contextlib.contextmanager
def reached_by_all(folder: Path) -> Iterator[None]:
    """Let every user reach a folder of this one; at the end, the folders above are closed as they were."""
    modes = {one: one.stat().st_mode for one in (folder, *folder.parents) if one.stat().st_uid == os.getuid()}
    closed = {one: mode for one, mode in modes.items() if mode & 0o111 != 0o111}
    for one, mode in closed.items():
        one.chmod(mode | 0o111)
    try:
        yield
    finally:
        for one, mode in closed.items():
            one.chmod(mode)
