"""Hosts that are network namespaces on one bridge: needs root, and the right to make namespaces."""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

_numbers = itertools.count()  # the kernel removes links some time after their namespace


class Network:
    """Hosts 10.77.0.1, 10.77.0.2, ...; this process is 10.77.0.254."""

    address = "10.77.0.254"

    def __init__(self, count: int) -> None:
        own = f"{os.getpid()}x{next(_numbers)}"
        self.names = [f"onecopy{own}n{number}" for number in range(count)]
        self.hosts = [f"10.77.0.{number + 1}" for number in range(count)]
        self.bridge = f"oc{own}"

    def make(self) -> None:
        """Make bridge and hosts; CalledProcessError where this is refused."""
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.address}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for number, (name, host) in enumerate(zip(self.names, self.hosts, strict=True)):
            link = f"{self.bridge}v{number}"
            ip("netns", "add", name)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", self.bridge, "up")
            ip("-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def command(self, number: int) -> list[str]:
        """Return the words before a command that runs it on a host."""
        return ["ip", "netns", "exec", self.names[number]]

    def remove(self) -> None:
        """Remove all that exists."""
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", self.bridge)


def ip(*words: str) -> None:
    """Run a command of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[Network]:
    """Give three hosts."""
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed")
    found = Network(3)
    try:
        try:
            found.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are refused: {error.stderr.decode().strip()}")
        yield found
    finally:
        found.remove()
