"""Programs that a build of this checkout made, and the benchmarks, which an installed wheel does not have."""

import importlib.util
from pathlib import Path

import pytest
from tests.support.places import ROOT

NEEDS_BENCH, NEEDS_IMAGES = (
    pytest.mark.skipif(
        importlib.util.find_spec(f"onecopy_{name}") is None, reason=f"the distribution onecopy-{name} is not installed"
    )
    for name in ("bench", "images")
)


@pytest.fixture
def bench_structs() -> Path:
    """Give the C++ benchmark of any build of this checkout, an optimised one first; skip where none is up to date."""
    newest = max(path.stat().st_mtime for path in (ROOT / "packages/bench/cpp").iterdir())
    built = [path for path in ROOT.glob("build/*/bench/bench_structs") if path.stat().st_mtime >= newest]
    if not built:
        pytest.skip("bench_structs is not built, or older than its source: make test builds it")
    return max(built, key=lambda path: "python" in path.parts)
