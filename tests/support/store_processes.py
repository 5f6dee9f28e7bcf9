"""What the tests of the store share: processes that ask it for something, and what must be left of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import onecopy as oc
import onecopy.store

SIZE = 300_000  # bytes


def content_of(key: str) -> np.ndarray:
    return np.random.default_rng(list(key.encode())).integers(0, 256, SIZE, np.uint8)


class Recipe:
    """A build function that writes into a log each time it is called."""

    def __init__(self, key: str, log: Path, before: Callable[[], object] = bool) -> None:
        self.key, self.log, self.before = key, log, before

    def __call__(self, path: Path) -> None:
        with self.log.open("a") as log:
            log.write(f"{self.key}\n")
        self.before()
        oc.save(path, {"content": content_of(self.key)})


def builds(log: Path) -> list[str]:
    """Return the keys that were built, in order."""
    return log.read_text().split() if log.exists() else []


def is_right(artefact: onecopy.store.Artefact) -> bool:
    """Tell whether an artefact is what belongs to its key."""
    return has_content(artefact.path, artefact.key)


def has_content(file: Path | onecopy.store.Artefact, key: str) -> bool:
    """Return whether a file, or an artefact by its open file, has the content of a key."""
    with oc.open(file) as opened:
        return np.array_equal(opened["content"], content_of(key))


def suffixes(store: oc.Store) -> list[str]:
    """List the files of a store by what they are; hidden ones by their whole name."""
    return sorted(path.suffix or path.name for path in store.folder.iterdir())
