"""`python -m onecopy` is the command `onecopy`."""

import sys

from onecopy.cli import main

if __name__ == "__main__":
    sys.exit(main())
