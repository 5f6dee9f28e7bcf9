"""An alias of `onecopy_records`, the package of the distribution onecopy-records.

Its modules have aliases too: `onecopy.records.rows` is `onecopy_records.rows`. Programs import these names, and pickles
contain them.
"""

import sys
from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_records import *  # noqa: F403

sys.modules[__name__] = lazy.load("onecopy_records")
