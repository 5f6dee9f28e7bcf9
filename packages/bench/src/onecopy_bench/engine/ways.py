"""What is compared: ways to do the same, found by name, and which of them this machine has."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from onecopy_bench.engine.record import Absent


@dataclass(frozen=True, slots=True)
class Way:
    """One thing that is compared: a row of the tables, by its name and what it does in a few more words.

    Attributes
    ----------
    needs
        Modules that must be installed; a measured process imports them before the clock starts.
    private
        Private memory that it needs, as a share of the data.
    environment
        Variables of its processes, as NAME=VALUE.
    """

    name: str
    detail: str = ""
    needs: tuple[str, ...] = ()
    ours: bool = False
    private: float = 0.0
    environment: tuple[str, ...] = ()


W = TypeVar("W", bound=Way)


def named(ways: Iterable[W], name: str) -> W:
    """Return the way of that name; raises KeyError where there is none."""
    return {way.name: way for way in ways}[name]


def missing(modules: Iterable[str]) -> list[str]:
    """Return the packages of some modules that are not installed; imports none of them."""
    packages = dict.fromkeys(module.partition(".")[0] for module in modules)
    return [package for package in packages if importlib.util.find_spec(package) is None]


def installed(ways: Iterable[W], names: Iterable[str] | None = None) -> tuple[list[W], list[Absent]]:
    """Return the ways of those names (None: all) whose modules are installed; and the others, with the reason."""
    from onecopy_bench.engine.record import Absent  # not in children

    wanted = None if names is None else set(names)
    chosen = [way for way in ways if wanted is None or way.name in wanted]
    lost = {way.name: lacks for way in chosen if (lacks := missing(way.needs))}
    absent = [Absent(name, f"not installed: {', '.join(lacks)}") for name, lacks in lost.items()]
    return [way for way in chosen if way.name not in lost], absent


def require(modules: Iterable[str], scenario: str, command: str = "") -> None:
    """Raise ModuleNotFoundError that says what a scenario needs and how it is installed."""
    if lost := missing(modules):
        how = f"pip install {command or ' '.join(lost)}"
        raise ModuleNotFoundError(f"bench {scenario} needs {' and '.join(lost)}: {how}")
