"""An alias of `onecopy_onnxruntime`, the package of the distribution onecopy-onnxruntime."""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_onnxruntime import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_onnxruntime")
