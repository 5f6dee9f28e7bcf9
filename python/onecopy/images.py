"""An alias of `onecopy_images`, of the distribution onecopy-images; its modules have aliases too."""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_images import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_images")
