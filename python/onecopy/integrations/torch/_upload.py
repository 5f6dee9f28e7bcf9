"""Copies of weights to a device: one pinned buffer is filled from the mapping while the other is sent.

A copy from pageable memory, such as `tensor.to("cuda")` of mapped weights, goes through a small pinned buffer of the
driver, and the program waits for it. The device reads pinned memory by DMA, so that the next bytes are copied from the
page cache meanwhile, and `warm` reads the file ahead of both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

PIECE = 32 << 20
"""Bytes of each of the two pinned buffers: about a millisecond on a fast bus, so that the start of a copy is cheap."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Result of a copy to a device."""

    device: str
    """Name of the device."""
    bytes: int
    """Number of copied bytes."""
    seconds: float
    """Seconds until all bytes arrived, including the time for reading the file."""
    pinned: int
    """Bytes of pinned memory, which torch keeps for later copies; 0 for devices without pinned memory."""

    @property
    def gib_per_s(self) -> float:
        """Rate in GiB/s."""
        return self.bytes / (1 << 30) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        how = f"two pinned buffers, {size(self.pinned)}" if self.pinned else "no pinned memory for such a device"
        return f"{size(self.bytes)} to {self.device} in {self.seconds:.2f} s, {self.gib_per_s:.1f} GiB/s ({how})"


class Mark(Protocol):
    """A position in the queue of copies of a lane."""

    def synchronize(self) -> None:
        """Wait until all copies before this mark have ended."""


class Lane(Protocol):
    """A queue of asynchronous copies to a device, which end in the order of their start."""

    def staging(self, nbytes: int) -> Any:
        """Return pinned CPU memory as a tensor of bytes."""

    def send(self, target: Any, source: Any) -> None:
        """Start a copy; `source` must not change until a later mark is reached."""

    def mark(self) -> Mark:
        """Return a mark after all copies so far."""


class CudaLane:
    """A CUDA stream for copies, separate from the stream that computes."""

    def __init__(self, device: Any) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._empty = torch.empty
        self._byte = torch.uint8
        self._stream = torch.cuda.Stream(device)
        # Earlier kernels of the current stream may still use the memory that the allocator returned for the targets.
        self._stream.wait_stream(torch.cuda.current_stream(device))

    def staging(self, nbytes: int) -> Any:
        """Return pinned CPU memory as a tensor of bytes."""
        return self._empty(nbytes, dtype=self._byte, pin_memory=True)

    def send(self, target: Any, source: Any) -> None:
        """Start a copy on the stream."""
        with self._cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)

    def mark(self) -> Mark:
        """Return an event after all copies so far."""
        event = self._cuda.Event()
        event.record(self._stream)
        moment: Mark = event
        return moment


def send_all(lane: Lane, pairs: Iterable[tuple[Any, Any]], piece: int) -> None:
    """Copy each source in CPU memory to its target on the device; return when all bytes have arrived."""
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
    """Allocates memory on a device for CPU tensors, and copies them at once."""

    def __init__(self, device: Any) -> None:
        import torch

        self.device = torch.device(device)
        """The device of the targets."""
        self._empty = torch.empty
        self._byte = torch.uint8
        self._pairs: list[tuple[Any, Any]] = []

    def place(self, source: Any) -> Any:
        """Return device memory, as a tensor of bytes, to which `run` copies `source`."""
        target = self._empty(source.numel(), dtype=self._byte, device=self.device)
        self._pairs.append((source, target))
        return target

    def run(self, lane: Lane | None = None) -> Upload:
        """Copy all sources in the order of the calls of `place`; return the report."""
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
