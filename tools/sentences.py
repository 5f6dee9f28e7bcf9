"""Ends a check of the sources, which returns one sentence for each line that breaks a rule."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


def report(check: Callable[[Path], list[str]]) -> NoReturn:
    """Print what a check returns of the folder that the command line names, or of this checkout; status 1 if any."""
    found = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent))
    for sentence in found:
        print(sentence)
    sys.exit(1 if found else 0)
