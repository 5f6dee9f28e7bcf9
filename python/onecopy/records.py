"""An alias of the package `onecopy_records` in the distribution onecopy-records. Its modules also have aliases."""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_records import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_records")
