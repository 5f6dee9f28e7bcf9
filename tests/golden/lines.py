"""Lines of expected.txt: one for each array of each file, or why the file is refused.

FILE NAME TYPE SHAPE STRIDES ELEMENTS, with one space between; TYPE is safetensors' name or what the file calls a type
that safetensors has not; SHAPE and STRIDES (in elements) are numbers with commas, and "-" where there are none;
ELEMENTS are the bytes of all elements in C order, in hexadecimal.
"""

from collections.abc import Iterable


def numbers(some: Iterable[int]) -> str:
    """Return 2,3 or -."""
    return ",".join(map(str, some)) or "-"


def line(file: str, name: str, kind: str, shape: Iterable[int], strides: Iterable[int], elements: bytes) -> str:
    """Return the line of one array."""
    return f"{file} {name} {kind} {numbers(shape)} {numbers(strides)} {elements.hex() or '-'}"


def refused(file: str, why: str) -> str:
    """Return the line of a file that is refused with a message that has these words."""
    return f"{file} refused {why}"
