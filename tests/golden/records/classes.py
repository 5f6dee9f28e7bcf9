"""Classes whose objects are in the golden records: these files name this module and these classes for ever."""

import dataclasses
import enum
from typing import NamedTuple


class Colour(enum.Enum):
    """An enumeration, stored by the names of its members."""

    RED = 1
    GREEN = "g"


class Flags(enum.IntFlag):
    """Flags, of which a combination is stored by its number."""

    A = 1
    B = 2


class Point(NamedTuple):
    """A named tuple."""

    x: float
    y: int


@dataclasses.dataclass(frozen=True)
class Box:
    """A dataclass whose attributes cannot be set from outside."""

    corner: Point
    label: str | None
    sizes: list[int]


@dataclasses.dataclass(slots=True)
class Node:
    """A dataclass with slots, which may hold another one."""

    colour: Colour
    child: "Node | None" = None
