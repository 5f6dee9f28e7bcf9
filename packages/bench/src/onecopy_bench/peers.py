"""Peers: the compared ways to do the same thing, and whether the packages that each one needs are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from onecopy_bench.record import Absent


@dataclass(frozen=True, slots=True)
class Peer:
    """A row of the tables: its name and a short description.

    `needs` lists modules that must be installed; a measured process imports them before the clock starts. `private` is
    the private memory that the peer needs, as a share of the data.
    """

    name: str
    detail: str = ""
    needs: tuple[str, ...] = ()
    ours: bool = False
    private: float = 0.0


P = TypeVar("P", bound=Peer)


def module(name: str) -> Any:
    """Return a module that the worker imported before the clock started, by its name."""
    return importlib.import_module(name)


def named(peers: Iterable[P], name: str) -> P:
    """Return the peer with the given name. Raise KeyError if the name is unknown."""
    return {peer.name: peer for peer in peers}[name]


def missing(modules: Iterable[str]) -> list[str]:
    """Return the packages that are not installed, given the names of their modules, without importing any."""
    packages = dict.fromkeys(module.partition(".")[0] for module in modules)
    return [package for package in packages if importlib.util.find_spec(package) is None]


def installed(peers: Iterable[P], names: Iterable[str] | None = None) -> tuple[list[P], list[Absent]]:
    """Return which of the named peers (None: all) are installed, and why each of the others cannot be used."""
    from onecopy_bench.record import Absent  # not in workers

    wanted = None if names is None else set(names)
    chosen = [peer for peer in peers if wanted is None or peer.name in wanted]
    lacks = {peer.name: missing(peer.needs) for peer in chosen}
    absent = [Absent(name, f"not installed: {', '.join(packages)}") for name, packages in lacks.items() if packages]
    return [peer for peer in chosen if not lacks[peer.name]], absent


def require(modules: Iterable[str], scenario: str, packages: str = "") -> None:
    """Raise ModuleNotFoundError if packages are missing. The message names them and the command that installs them."""
    if lacks := missing(modules):
        how = f"pip install {packages or ' '.join(lacks)}"
        raise ModuleNotFoundError(f"bench {scenario} needs {' and '.join(lacks)}: {how}")
