"""Nodes that fetch a file together: each fetches other pieces from the origin, and receives the rest from the others.

Bytes pass between nodes through what the job runs already: Ray's object store (`ray.py`), or torch.distributed
(`torchrun.py`). Membership, failures, authentication and encryption are those of the engine. A node that fails leaves
the others with the pieces that they have; `fetching` fetches the rest from the origin, and compares the whole file with
the hash of the origin, where it reports one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, TypeAlias

from onecopy.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onecopy.remote.pieces import PartialFile
    from onecopy.store import Store

__all__ = ["JOIN_S", "Fetch", "NodeLostError", "Nodes", "Partners", "Piece", "warn"]

Nodes: TypeAlias = Literal["ray", "torchrun"] | None
"""Nodes that fetch together, as `onecopy.remote.fetch` documents them."""
Piece = tuple[int, int]
"""First byte of a piece, and the byte after it."""
Fetch: TypeAlias = "Callable[[list[Piece], Callable[[int], object]], None]"
"""Fetches pieces of a file from the origin, and calls a function with the number of bytes that have arrived so far."""
JOIN_S = 60.0
"""Seconds to wait for the other nodes of a job."""


class NodeLostError(Error):
    """Another node failed, or did not come."""


class Partners:
    """The nodes with which a call of `fetch` fetches: here none."""

    has_nodes = False
    """Whether there are other nodes."""

    def begin(self, key: str, store: Store, report: Callable[[], object]) -> None:
        """Wait until this process may claim the file: another process of this node may be the one that fetches it."""

    def exchange(self, key: str, file: PartialFile, fetch: Fetch | None, progress: Callable[[int], object]) -> None:
        """Fetch some pieces of a file and receive others; some may stay missing. None: only nodes have the file.

        `progress` is called about 10 times per second with the number of bytes received from the origin and from nodes.
        Errors are those of `fetch`.
        """

    def found(self, key: str, path: Path, report: Callable[[], object]) -> None:
        """Pass a file on that this node has whole; nothing if it took part in `exchange`."""

    def stop(self) -> None:
        """Let the other nodes know that this call failed, so that they do not wait for this node."""


def warn(reason: object) -> None:
    """Warn that another node was lost."""
    text = "onecopy: another node of the job was lost: %s; missing pieces are fetched from the origin"
    logging.getLogger("onecopy").warning(text, reason)
