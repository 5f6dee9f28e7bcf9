"""Reports the results of a check of the sources: one sentence for each line that breaks a rule."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


def report(check: Callable[[Path], list[str]]) -> NoReturn:
    """Print what a check finds in the folder given as argument, or in this checkout. Exit with 1 if it finds any."""
    found = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent))
    for sentence in found:
        print(sentence)
    sys.exit(1 if found else 0)
