"""An alias of `onecopy_remote`, the package of the distribution onecopy-remote.

Its modules have aliases too: `onecopy.remote.origin` is `onecopy_remote.origin`. Programs import these names, and
pickles contain them.
"""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_remote import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_remote")
