"""A relay of TCP connections that holds back what comes from the server, for kernels without netem.

    python -m onecopy_bench.workers.relay HOST PORT TARGET_PORT MILLISECONDS

A new connection, which takes a round trip, and each answer wait for the given time; the rate is not changed. The slow
start of TCP over a long link is not imitated.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time

_BLOCK = 256 << 10
_MOST = 256
"""Blocks that wait on a connection."""


def relay(client: socket.socket, server: socket.socket, delay: float) -> None:
    """Pass on the bytes of one connection, in both directions, until one side closes."""
    waiting: queue.Queue[tuple[float, bytes]] = queue.Queue(_MOST)
    threading.Thread(target=_forward, args=(client, server, delay), daemon=True).start()
    threading.Thread(target=_deliver, args=(client, waiting), daemon=True).start()
    block = b"first"
    while block:
        try:
            block = server.recv(_BLOCK)
        except OSError:
            block = b""
        waiting.put((time.monotonic() + delay, block))


def _forward(client: socket.socket, server: socket.socket, delay: float) -> None:
    time.sleep(delay)  # of the handshake
    try:
        while block := client.recv(_BLOCK):
            server.sendall(block)
        server.shutdown(socket.SHUT_WR)
    except OSError:
        server.close()


def _deliver(client: socket.socket, waiting: queue.Queue[tuple[float, bytes]]) -> None:
    while True:
        due, block = waiting.get()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if not block:
                client.shutdown(socket.SHUT_WR)
                return
            client.sendall(block)
        except OSError:
            return


def main(host: str, port: int, target: int, delay: float) -> None:
    """Relay until killed."""
    with socket.create_server((host, port), backlog=256) as listening:
        while True:
            client, _ = listening.accept()
            server = socket.create_connection((host, target))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=relay, args=(client, server, delay), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]) / 1000)
