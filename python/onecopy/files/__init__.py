"""Local files: mappings, identities of contents, the page cache, and files that other files name."""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.files.companions import SetError as SetError, names_in as names_in, paths_of as paths_of
    from onecopy.files.mapping import check as check, guard as guard
    from onecopy.files.page_cache import (
        Portion as Portion,
        evict as evict,
        expect_memory as expect_memory,
        pin as pin,
        register_with_cuda as register_with_cuda,
        residency as residency,
        unpin as unpin,
        warm as warm,
    )

_HOMES = {
    "page_cache": ("Portion", "evict", "expect_memory", "pin", "register_with_cuda", "residency", "unpin", "warm"),
    "mapping": ("check", "guard"),
    "companions": ("SetError", "names_in", "paths_of"),
}

if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
