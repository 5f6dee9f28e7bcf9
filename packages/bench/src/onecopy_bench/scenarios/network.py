"""Nodes that are network namespaces on one bridge, each with a link of its own and a store on a disk of its own.

Needs root, iproute2 and loop devices. The origin is a namespace too, in which nginx serves a folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.workers import relay

ORIGIN = "10.88.0.254"
_NET = "10.88.0"
_numbers = itertools.count()  # the kernel removes links some time after their namespace
_BURST, _LATENCY = "2mb", "50ms"
_CONFIGURATION = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
  sendfile on; tcp_nopush on; keepalive_requests 100000;
  log_format bytes '$body_bytes_sent'; access_log {folder}/access.log bytes;
  server {{ listen {origin}:{port}; root {root}; }}
}}
"""


class Network:
    """Nodes 0, 1, ... with addresses, and the origin.

    Parameters
    ----------
    count
        Number of nodes.
    link
        Bits per second of the link of each node, in each direction.
    delay_ms
        Round trip to the origin in milliseconds, which a relay adds (see `workers.relay`).
    """

    def __init__(self, count: int, link: float, delay_ms: float) -> None:
        self.hosts = [f"{_NET}.{number + 1}" for number in range(count)]
        self._link, self._delay_ms = link, delay_ms
        self._bridge = f"oc{os.getpid()}b{next(_numbers)}"

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """Make the network for the block; Unavailable where that is refused."""
        with contextlib.ExitStack() as stack:
            try:
                _run("ip", "link", "add", self._bridge, "type", "bridge")
                stack.callback(_try, "ip", "link", "del", self._bridge)
                _run("ip", "link", "set", self._bridge, "up")
                for name, host in zip(self._names(), [*self.hosts, ORIGIN], strict=True):
                    self._add(name, host, stack)
            except FileNotFoundError:
                raise Unavailable("iproute2 is not installed") from None
            except subprocess.CalledProcessError as error:
                raise Unavailable(f"network namespaces are refused: {error.stderr.decode().strip()}") from None
            yield

    def _names(self) -> list[str]:
        return [*(f"{self._bridge}n{number}" for number in range(len(self.hosts))), f"{self._bridge}o"]

    def _add(self, name: str, host: str, stack: contextlib.ExitStack) -> None:
        outer = f"{name}v"
        _run("ip", "netns", "add", name)
        stack.callback(_try, "ip", "netns", "del", name)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", outer, "master", self._bridge, "up")
        _run("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
        _run("ip", "-n", name, "link", "set", "eth0", "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        if host == ORIGIN:
            return
        shape = ("tbf", "rate", f"{self._link:.0f}bit", "burst", _BURST, "latency", _LATENCY)
        _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape)
        _run("tc", "qdisc", "add", "dev", outer, "root", *shape)

    def inside(self, number: int) -> list[str]:
        """Return the words before a command that run it on a node; -1: on the origin."""
        return ["ip", "netns", "exec", self._names()[number]]

    @contextlib.contextmanager
    def serving(self, root: Path, folder: Path) -> Iterator[Origin]:
        """Serve a folder from the origin in the block; Unavailable without nginx."""
        if shutil.which("nginx") is None:
            raise Unavailable("nginx is not installed")
        configuration = folder / "nginx.conf"
        configuration.write_text(
            _CONFIGURATION.format(folder=folder, root=root, origin=ORIGIN, port=8080 if self._delay_ms else 80)
        )
        command = [*self.inside(-1), "nginx", "-c", str(configuration)]
        with contextlib.ExitStack() as stack, subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:
                if self._delay_ms:
                    words = (sys.executable, "-m", relay.__name__, ORIGIN, "80", "8080", str(self._delay_ms))
                    process = stack.enter_context(subprocess.Popen([*self.inside(-1), *words]))
                    stack.callback(process.kill)
                until = time.monotonic() + 10
                while not (folder / "nginx.pid").exists():
                    if server.poll() is not None or time.monotonic() > until:
                        raise Unavailable(f"nginx did not start: {(folder / 'error.log').read_text()[-300:]}")
                    time.sleep(0.02)
                yield Origin(folder / "access.log")
            finally:
                server.terminate()
                server.wait(30)


class Origin:
    """The server, by its log."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def served(self) -> int:
        """Return the number of bytes of content that were sent so far."""
        return sum(map(int, re.findall(r"^\d+$", self._log.read_text(), re.MULTILINE)))


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True).stdout.decode().strip()


def _try(*words: str) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        _run(*words)
