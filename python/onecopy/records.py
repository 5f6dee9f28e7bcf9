"""An alias of `onecopy_records`, of the distribution onecopy-records; its modules have aliases too."""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_records import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_records")
