"""Names of the arrays inside an object: their paths, such as "coef_", "layers.0.weight" or "rows[2]"."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_OBJECTS = 100_000
"""Objects that are visited; arrays that are not found until then are named after the class that holds them."""
_MAX_ITEMS = 1000
"""Items of a list or dict that are visited."""
_MAX_NAME = 200
"""Characters of a name."""
_OF_MODULES = ("_modules", "_parameters", "_buffers")
"""Attributes of modules of torch, which names of weights leave out: "0.weight"."""
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), type)


def paths_of(value: Any) -> dict[int, str]:
    """Return the paths of the arrays and tensors in an object by their `id`; the shortest path of each.

    No method of the object is called: attributes are read from ``__dict__``.

    Examples
    --------
    >>> import numpy as np
    >>> inner = np.zeros(3)
    >>> paths_of({"layers": [inner], "x y": 1})[id(inner)]
    'layers[0]'
    """
    found: dict[int, str] = {}
    seen = {id(value)}
    waiting = deque([("", value)])
    while waiting and len(seen) < _MAX_OBJECTS:
        path, one = waiting.popleft()
        if is_array(one) or is_tensor(one):
            found[id(one)] = path or type(one).__name__
            continue
        for name, part in _parts(path, one):
            if id(part) not in seen and not isinstance(part, _PLAIN):
                seen.add(id(part))
                waiting.append((name, part))
    return found


def is_array(value: Any) -> bool:
    """Return whether a value is a numpy array; does not import numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each part of an object."""
    if isinstance(value, dict):
        for number, (key, part) in enumerate(value.items()):
            if number >= _MAX_ITEMS:
                return
            yield _joined(path, key), part
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value[:_MAX_ITEMS]):
            yield f"{path}[{number}]", part
    if isinstance(getattr(value, "__dict__", None), dict):
        for name, part in value.__dict__.items():
            yield _joined(path, name), part


def _joined(path: str, key: Any) -> str:
    if key in _OF_MODULES:
        return path
    if isinstance(key, str) and (key.isidentifier() or key.isdigit()):
        return f"{path}.{key}" if path else key
    if isinstance(key, (str, int, tuple)) and path:
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else str(key) if isinstance(key, (str, int)) else type(key).__name__


class Names:
    """Gives each array of a file a name of its own."""

    def __init__(self, reserved: tuple[str, ...]) -> None:
        self._taken = set(reserved)

    def unique(self, wanted: str) -> str:
        """Return the wanted name, as valid text, with a number if it is taken."""
        text = wanted.encode("utf-8", "backslashreplace").decode()[:_MAX_NAME]
        if text.startswith("#") or not text:  # reserved by the file format
            text = f"array {text}"
        name, number = text, 1
        while name in self._taken:
            number += 1
            name = f"{text} ({number})"
        self._taken.add(name)
        return name
