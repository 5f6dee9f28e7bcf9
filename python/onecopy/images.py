"""An alias of `onecopy_images`, the package of the distribution onecopy-images.

Its modules have aliases too: `onecopy.images.image` is `onecopy_images.image`. Programs import these names, and pickles
contain them.
"""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_images import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_images")
