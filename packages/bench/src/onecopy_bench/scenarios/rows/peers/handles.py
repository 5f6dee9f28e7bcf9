"""One tensor for all ranks: the first builds it and gives each of the others a handle of its own.

`TorchShmSerializedList` of "Demystify RAM usage in multi-process data loaders" scatters the handles with
torch.distributed; here the leader answers on a socket instead, which measures the same without a process group. A
handle can be used once, the leader has to live while the others load, and nothing is left for a second run.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import threading
import time
from multiprocessing.connection import Client, Listener
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from onecopy_bench.scenarios.rows.data import Source
from onecopy_bench.scenarios.rows.peers import Peer
from onecopy_bench.scenarios.rows.peers.heap import TorchSerializedList

KEY = b"the ranks of one sample"
ADDRESS = "address"


def led(source: Source, folder: Path) -> Any:
    """Build the tensor and answer the other ranks, or take a handle from the rank that does."""
    multiprocessing.current_process().authkey = KEY  # which torch hands descriptors over with
    if not _is_first(folder):
        while not (folder / ADDRESS).exists():
            time.sleep(0.001)
        with Client((folder / ADDRESS).read_text(), authkey=KEY) as leader:
            return ForkingPickler.loads(leader.recv_bytes())
    rows = TorchSerializedList(list(source.rows()))
    listener = Listener(family="AF_UNIX", authkey=KEY)
    threading.Thread(target=_answer, args=(listener, rows), daemon=True).start()
    (folder / "unnamed").write_text(str(listener.address))
    (folder / "unnamed").rename(folder / ADDRESS)
    return rows


def _answer(listener: Listener, rows: Any) -> None:
    """Give a handle to each process that connects."""
    while True:
        with listener.accept() as other:
            other.send_bytes(ForkingPickler.dumps(rows))


def _is_first(folder: Path) -> bool:
    """Return whether no other rank has been here."""
    descriptor = os.open(folder / "led", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        return os.read(descriptor, 1) == b"" and os.write(descriptor, b".") == 1
    finally:
        os.close(descriptor)


TORCH_HANDLE = Peer("torch handle", "one tensor, a handle for each rank", led, ("torch",), alone=True)
