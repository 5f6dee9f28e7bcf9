"""Run the command line: ``python -m onecopy`` is the same as ``onecopy``."""

import sys

from onecopy.cli import main

if __name__ == "__main__":
    sys.exit(main())
