"""An alias of `onecopy_images`, the package of the distribution onecopy-images.

Its modules have aliases too: `onecopy.images.image` is `onecopy_images.image`. Programs import these names, and pickles
contain them.
"""

import sys
from typing import TYPE_CHECKING

try:
    import onecopy_images
except ModuleNotFoundError as error:
    if error.name != "onecopy_images":
        raise
    message = "onecopy.images needs another distribution: pip install onecopy-images"
    raise ModuleNotFoundError(message, name="onecopy_images") from None

if TYPE_CHECKING:
    from onecopy_images import *  # noqa: F403

sys.modules[__name__] = onecopy_images
