"""An alias of `onecopy_remote`, of the distribution onecopy-remote; its modules have aliases too."""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_remote import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_remote")
