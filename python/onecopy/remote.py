"""An alias of the package `onecopy_remote` in the distribution onecopy-remote. Its modules also have aliases."""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_remote import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_remote")
