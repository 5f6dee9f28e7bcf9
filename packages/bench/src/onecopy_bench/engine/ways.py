"""Tables of ways: what is compared, found by name, and what of it this machine has."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy_bench.engine.record import Absent


class Way(Protocol):
    """One thing that is compared."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def needs(self) -> tuple[str, ...]: ...  # noqa: D102 - modules


class Named(Protocol):
    """What is found by its name."""

    @property
    def name(self) -> str: ...  # noqa: D102


N = TypeVar("N", bound=Named)
W = TypeVar("W", bound=Way)


def named(ways: Iterable[N], name: str) -> N:
    """Return the way of that name; raises ValueError that lists the names."""
    every = {way.name: way for way in ways}
    if name not in every:
        raise ValueError(f"no {name!r}; there are {', '.join(every)}")
    return every[name]


def missing(modules: Iterable[str]) -> list[str]:
    """Return the packages of some modules that are not installed; imports none of them."""
    packages = dict.fromkeys(module.partition(".")[0] for module in modules)
    return [package for package in packages if importlib.util.find_spec(package) is None]


def installed(ways: Iterable[W], names: Iterable[str]) -> tuple[list[W], list[Absent]]:
    """Return the ways of those names whose modules are installed; and the names of the others, with the reason."""
    from onecopy_bench.engine.record import Absent  # not in children

    wanted = set(names)
    chosen = [way for way in ways if way.name in wanted]
    lost = {way.name: lacks for way in chosen if (lacks := missing(way.needs))}
    absent = [Absent(name, f"not installed: {', '.join(lacks)}") for name, lacks in lost.items()]
    return [way for way in chosen if way.name not in lost], absent


def require(modules: Iterable[str], scenario: str, command: str = "") -> None:
    """Raise ModuleNotFoundError that says what a scenario needs and how it is installed."""
    if lost := missing(modules):
        raise ModuleNotFoundError(
            f"bench {scenario} needs {' and '.join(lost)}: pip install {command or ' '.join(lost)}"
        )
