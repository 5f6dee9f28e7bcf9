"""`onecopy.images` is another name of `onecopy_images`, the package of the distribution onecopy-images.

Each of its modules has another name too: `onecopy.images.image` is `onecopy_images.image`. Programs import these names,
and pickles contain them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

try:
    import onecopy_images
except ModuleNotFoundError as error:
    if error.name != "onecopy_images":
        raise
    message = "onecopy.images needs another distribution: pip install onecopy-images"
    raise ModuleNotFoundError(message, name="onecopy_images") from None

if TYPE_CHECKING:
    from types import ModuleType

    from onecopy_images import *  # noqa: F403


class _OtherNames:
    """Finds and loads `onecopy.images.x` as the module `onecopy_images.x`."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        # Not a subclass of importlib.abc.Loader: importing that takes 20 ms.
        return ModuleSpec(name, self) if name.startswith("onecopy.images.") else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the importer to create a module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(module.__name__.replace("onecopy.images", "onecopy_images", 1))


sys.meta_path.insert(0, _OtherNames())  # before the finder of files, which would load each module a second time
sys.modules[__name__] = onecopy_images
