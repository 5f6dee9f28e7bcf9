"""Counts the calls of functions whose results are cached: in a file, because a global list would be part of the key."""

from pathlib import Path


class Calls:
    """What was noted by any process, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: object) -> None:
        with self._path.open("a") as file:
            file.write(f"{what}\n")

    def __call__(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []
