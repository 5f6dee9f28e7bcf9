"""Nodes that fetch a file together: each node fetches some pieces from the origin and receives the others.

Nodes exchange pieces through Ray's object store (`ray_nodes`) or torch.distributed (`torchrun`), which also handle
membership, authentication and encryption. If a node fails, the others keep their pieces; `fetching` then fetches the
rest from the origin and compares the whole file with the origin's hash.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from onecopy.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onecopy.store import Store
    from onecopy.store.pieces import PartialFile

Piece = tuple[int, int]
"""The first byte of a piece, and the byte after its last."""
Fetch: TypeAlias = "Callable[[list[Piece], Callable[[int], object]], None]"
"""Fetches pieces of a file from the origin, and calls a function with the number of bytes that have arrived."""
JOIN_S = 60.0
"""Seconds to wait for the other nodes of a job."""


class NodeLostError(Error):
    """Another node failed or did not join."""


class Partners:
    """The other nodes that take part in a call of `fetch`. In this base class, there are none."""

    has_nodes = False

    def begin(self, key: str, store: Store, report: Callable[[], object]) -> None:
        """Wait until this process may claim the file, in case another process on this node fetches it."""

    def exchange(self, key: str, file: PartialFile, fetch: Fetch | None, progress: Callable[[int], object]) -> None:
        """Fetch some pieces and receive others. Some may remain missing. `fetch` is None if only nodes have the file.

        `progress` is called about 10 times per second with the number of bytes that have arrived, from any source.
        """

    def found(self, key: str, path: Path, report: Callable[[], object]) -> None:
        """Offer this node's complete file to the others, unless this call has already exchanged it."""

    def stop(self) -> None:
        """Notify the other nodes that this call failed, so that they do not wait for this node."""


def warn(reason: object) -> None:
    """Warn that another node was lost."""
    text = "onecopy: lost another node of the job: %s; fetching the missing pieces from the origin"
    logging.getLogger("onecopy").warning(text, reason)
