"""Weights to a device: one pinned buffer is filled from the mapping while the other is on its way.

A copy from pageable memory, as `tensor.to("cuda")` of mapped weights is, goes through a small pinned buffer of the
driver, and the program waits for it. Pinned memory is sent by the device itself, so that the next bytes are taken from
the page cache meanwhile; and the file is read ahead of both by `warm`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

PIECE = 32 << 20
"""Bytes of each of the two pinned buffers: a millisecond of a fast bus, so that starting a copy costs nothing."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What was sent to a device."""

    device: str
    bytes: int
    seconds: float
    """Until all had arrived; reading the file is part of it."""
    pinned: int
    """Bytes of pinned memory that were used, which torch keeps for the next time; 0: this device has none."""

    @property
    def gib_per_s(self) -> float:
        """Bytes by seconds."""
        return self.bytes / (1 << 30) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        how = f"two pinned buffers, {size(self.pinned)}" if self.pinned else "no pinned memory for such a device"
        return f"{size(self.bytes)} to {self.device} in {self.seconds:.2f} s, {self.gib_per_s:.1f} GiB/s ({how})"


class Mark(Protocol):
    """A moment in what is being sent."""

    def synchronize(self) -> None:
        """Wait until all that was sent before it has arrived."""


class Lane(Protocol):
    """A way to a device on which copies are begun, and arrive in order."""

    def staging(self, nbytes: int) -> Any:
        """Return memory of the host that the device can take from by itself, as bytes."""

    def send(self, target: Any, source: Any) -> None:
        """Begin to copy; `source` must stay as it is until a later mark has been reached."""

    def mark(self) -> Mark:
        """Return this moment."""


class CudaLane:
    """A stream of its own, beside the one that computes."""

    def __init__(self, device: Any) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._empty = torch.empty
        self._byte = torch.uint8
        self._stream = torch.cuda.Stream(device)
        # The memory of the targets may still be in use by what was asked of the device before it was given back.
        self._stream.wait_stream(torch.cuda.current_stream(device))

    def staging(self, nbytes: int) -> Any:
        """Return pinned memory."""
        return self._empty(nbytes, dtype=self._byte, pin_memory=True)

    def send(self, target: Any, source: Any) -> None:
        """Begin to copy."""
        with self._cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)

    def mark(self) -> Mark:
        """Return an event."""
        event = self._cuda.Event()
        event.record(self._stream)
        moment: Mark = event
        return moment


def send_all(lane: Lane, pairs: Iterable[tuple[Any, Any]], piece: int) -> None:
    """Copy each source, bytes of the host, to its target, bytes of the device; return when all have arrived."""
    buffers = lane.staging(piece), lane.staging(piece)
    marks: list[Mark | None] = [None, None]
    which = filled = 0
    for source, target in pairs:
        done, whole = 0, source.numel()
        while done < whole:
            length = min(piece - filled, whole - done)
            part = buffers[which][filled : filled + length]
            part.copy_(source[done : done + length])
            lane.send(target[done : done + length], part)
            done, filled = done + length, filled + length
            if filled < piece:
                continue
            marks[which] = lane.mark()
            which, filled = 1 - which, 0
            if (sent := marks[which]) is not None:
                sent.synchronize()
    lane.mark().synchronize()


class Uploading:
    """Places on a device for bytes of the host, and then the bytes."""

    def __init__(self, device: Any) -> None:
        import torch

        self.device = torch.device(device)
        """Where they go."""
        self._empty = torch.empty
        self._byte = torch.uint8
        self._pairs: list[tuple[Any, Any]] = []

    def place(self, source: Any) -> Any:
        """Return memory of the device, as bytes, that will be what `source` is."""
        target = self._empty(source.numel(), dtype=self._byte, device=self.device)
        self._pairs.append((source, target))
        return target

    def run(self, lane: Lane | None = None) -> Upload:
        """Send all, in the order of their places."""
        start = time.monotonic()
        pairs, self._pairs = self._pairs, []
        total = sum(source.numel() for source, _ in pairs)
        if lane is None and self.device.type == "cuda":
            lane = CudaLane(self.device)
        piece = min(PIECE, max(total, 1))
        if lane is not None:
            send_all(lane, pairs, piece)
        else:
            for source, target in pairs:
                target.copy_(source)
        where = str(pairs[0][1].device) if pairs else str(self.device)
        return Upload(where, total, time.monotonic() - start, 2 * piece if lane is not None else 0)
