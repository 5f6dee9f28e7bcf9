"""`onecopy store ls|prune|path`: what was built once for this machine, how much it takes, and how it goes.

Without --folder or --place both default places are looked at, the disk and memory. Looking makes no folder.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onecopy.cli import screen
from onecopy.cli.quantities import SIZE, TIME
from onecopy.cli.words import duration, plain, size
from onecopy.store import Store, default_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy.store import Artefact, Place, PruneReport

COLUMNS = (
    screen.Column("key", folds=True),
    screen.Column("size", right=True),
    screen.Column("last use", right=True),
    screen.Column("source"),
    screen.Column("place"),
    screen.Column("state", folds=True),
)
PLACES: tuple[Place, ...] = ("disk", "memory")
SOURCES = {None: "-", True: "present", False: "gone or changed"}


def which(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which store is meant."""
    place = click.option("--place", type=click.Choice(PLACES), help="Only the default folder on disk, or in memory.")
    folder = click.option("--folder", type=click.Path(), metavar="FOLDER", help="This folder instead.")
    return place(folder(function))


def folders(folder: str | None, place: Place | None) -> list[Path]:
    """Return the folders that are meant."""
    if folder is not None and place is not None:
        raise click.UsageError("--folder and --place: one of them is enough")
    if folder is not None:
        return [Path(folder)]
    return [default_folder(one)[0] for one in (PLACES if place is None else (place,))]


def stores(meant: Sequence[Path]) -> list[Store]:
    """Return the stores of those folders that are there."""
    return [Store(folder) for folder in meant if folder.is_symlink() or folder.exists()]


def facts_of(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return artefacts for JSON."""
    return [asdict(artefact) | {"path": str(artefact.path)} for artefact in artefacts]


def short(key: str) -> str:
    """Return a key without what tells versions of a file apart, and the file without its folders.

    Examples
    --------
    >>> short("/data/a b/slide.ndpi, 58 bytes, written 17, inode 22, version 1 of level 0")
    'slide.ndpi, version 1 of level 0'
    """
    return re.sub(r"/(?:[^/,]+/)+([^/,]+)", r"\1", re.sub(r", \d+ bytes, written \d+, inode \d+", "", key))


def show(artefacts: Sequence[Artefact], *, whole: bool = False) -> None:
    """Print artefacts as a table; what has no key goes by the name of its file."""
    now, grid = time.time(), screen.Grid(COLUMNS)
    for artefact in artefacts:
        cells = (
            (artefact.key if whole else short(artefact.key)) or artefact.path.name,
            size(artefact.bytes),
            f"{duration(now - artefact.last_used)} ago",
            SOURCES[artefact.source_present],
            artefact.place,
            artefact.reason if artefact.state == "ready" else f"{artefact.state}: {artefact.reason}",
        )
        grid.rows.append(tuple(plain(cell) for cell in cells))
    grid.show(screen.out())


def counted(artefacts: Sequence[Artefact]) -> str:
    """Return how many there are, and how much."""
    number = f"{len(artefacts)} artefact{'' if len(artefacts) == 1 else 's'}"
    return f"{number}, {size(sum(artefact.bytes for artefact in artefacts))}"


@click.group("store", cls=screen.Group)
def command() -> None:
    """List and remove what programs built once for this machine, and keep in its cache folders."""


@command.command("ls")
@which
@click.option("--long", "whole", is_flag=True, help="Whole keys, as prune --key takes them.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def ls(*, folder: str | None, place: Place | None, whole: bool, as_json: bool) -> None:
    """List what is there, the last used first; what is being built and what dead builders left included.

    Keys are shown without the folders, sizes, times and inodes that belong to them.
    """
    meant = folders(folder, place)
    artefacts = [artefact for store in stores(meant) for artefact in store.ls()]
    if as_json:
        click.echo(json.dumps(facts_of(artefacts), indent=1))
        return
    if artefacts:
        show(artefacts, whole=whole)
    screen.show_line(screen.out(), f"{counted(artefacts)} in {' and '.join(map(str, meant))}")


@command.command("prune")
@which
@click.option(
    "--max-age",
    type=TIME,
    is_flag=False,
    flag_value="60d",
    metavar="AGE",
    help="What was not used for so long: 30d, 12h, 2w; without AGE 60 days.",
)
@click.option("--max-size", type=SIZE, help="Per folder, such as 20GiB; the oldest go first.")
@click.option("--missing-source", is_flag=True, help="What was built from a file that is gone or has changed.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="This one; may be given again.")
@click.option("--all", "everything", is_flag=True, help="Everything.")
@click.option("--dry-run", is_flag=True, help="Tell, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; with --yes or --dry-run.")
def prune(*, folder: str | None, place: Place | None, dry_run: bool, yes: bool, as_json: bool, **asked: Any) -> None:
    """Remove what is asked for, and what dead builders left; never what is being built.

    Without an option only the leftovers go. Who has a file mapped keeps it.
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json asks nothing: give --yes or --dry-run too")
    found = stores(folders(folder, place))
    asked["max_bytes"] = asked.pop("max_size")
    if not yes:
        removed = [artefact for store in found for artefact in store.prune(**asked, dry_run=True).removed]
        if not as_json and removed:
            show(removed)
        if not dry_run and removed:
            click.confirm(f"Remove {counted(removed)}?", abort=True, err=True)
    tell([store.prune(**asked, dry_run=dry_run) for store in found], dry_run, as_json)


def tell(reports: Sequence[PruneReport], dry_run: bool, as_json: bool) -> None:
    """Print what was removed, and what was not and why."""
    removed = [artefact for report in reports for artefact in report.removed]
    kept = [artefact for report in reports for artefact in report.kept]
    if as_json:
        click.echo(json.dumps({"removed": facts_of(removed), "kept": facts_of(kept)}, indent=1))
        return
    for artefact in kept:
        screen.show_line(screen.err(), f"onecopy: kept {artefact.key or artefact.path.name}: {artefact.reason}")
    screen.show_line(screen.out(), f"{'would remove' if dry_run else 'removed'} {counted(removed)}")


@command.command("path")
@click.argument("key")
@which
def path(*, key: str, folder: str | None, place: Place | None) -> None:
    """Print where the artefact of KEY is; where it would be, with exit status 1, if it is not there."""
    meant = folders(folder, place)
    for store in stores(meant):
        if (artefact := store.find(key)) is not None:
            click.echo(str(artefact.path))
            return
    click.echo(str(Store(meant[0]).path(key)))
    raise click.exceptions.Exit(1)
