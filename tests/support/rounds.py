"""How often a test repeats what happens at random moments: seldom in `make test-all`, often in `make nightly`."""

import os


def rounds(usual: int, nightly: int = 1000) -> int:
    """Return `usual`, or `nightly` where ONECOPY_TORTURE=1."""
    return nightly if os.environ.get("ONECOPY_TORTURE") == "1" else usual
