"""Make the pictures: `python -m tools.docs_pictures [--folder FOLDER] [NAME...]`; without names, all of them."""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.docs_pictures import bars, scenes

FOLDER = Path(__file__).parents[2] / "docs/pictures"
PICTURES: dict[str, Callable[[Path], bytes]] = {
    "datasets.svg": scenes.datasets,
    "eight-workers.svg": lambda _: bars.eight_workers(),
    "ls.svg": scenes.ls,
    "mosaic.png": scenes.mosaic,
    "top.svg": scenes.top,
    "warm.svg": scenes.warm,
    "watch-memory.svg": scenes.watch_memory,
    "explain.svg": scenes.explain,
}
KEPT = ("huge-pages.svg", "page-cache.svg")
"""Pictures that are not made again. Commit b0560618 contains the records that they name and the drawing code."""


def made(name: str) -> bytes:
    """Make one picture in a temporary folder, with a separate store."""
    with tempfile.TemporaryDirectory(prefix="demo-") as parent:
        folder = Path(parent) / "demo"
        folder.mkdir()
        os.environ["ONECOPY_CACHE"] = str(Path(parent) / "cache")
        return PICTURES[name](folder)


def main() -> None:
    """Make the pictures named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs_pictures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for the pictures (default: docs/pictures)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in PICTURES]:
        parser.error(f"unknown picture {unknown[0]!r}; choose from {', '.join(PICTURES)}")
    for name in given.names or PICTURES:
        content = made(name)
        (given.folder / name).write_bytes(content)
        print(f"{given.folder / name}: {len(content) / 1000:.1f} kB")


if __name__ == "__main__":
    main()
