"""`onecopy store ls|prune|path`: list, remove and find artefacts in stores, without creating a store."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onecopy.base.text import counted, size
from onecopy.cli import options, screen
from onecopy.cli.options import Group
from onecopy.cli.screen import duration
from onecopy.store import Store, default_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy.store import Artefact, Place

PLACES: tuple[Place, ...] = ("disk", "memory")
SOURCES = {None: "-", True: "present", False: "gone or changed"}


def store_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select stores."""
    place = click.option("--place", type=click.Choice(PLACES), help="Use only this default folder.")
    shared = click.option("--shared", is_flag=True, help="FOLDER is shared by users; use only this user's files.")
    return place(options.folder("Use this folder instead.")(shared(function)))


def selected_folders(folder: str | None, place: Place | None) -> list[Path]:
    """Return the selected folders. Without options, these are both default folders."""
    if folder is not None and place is not None:
        raise click.UsageError("--folder and --place cannot be combined")
    if folder is not None:
        return [Path(folder)]
    return [default_folder(one)[0] for one in (PLACES if place is None else (place,))]


def existing_stores(folders: Sequence[Path], *, shared: bool) -> list[Store]:
    """Return a store for each folder that exists."""
    trust = () if shared else None
    return [Store(folder, trust=trust) for folder in folders if folder.is_symlink() or folder.exists()]


def as_dicts(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Convert artefacts to dicts for JSON."""
    return [asdict(artefact) | {"path": str(artefact.path)} for artefact in artefacts]


def short(key: str) -> str:
    """Shorten a key: remove folders, sizes, times, inodes and entity tags, and shorten hashes."""
    if (url := re.match(r'([a-z0-9]+://.*), (?:etag (?:W/)?"[^"]*"|modified [^,]*), \d+ bytes', key)) is not None:
        return url[1]
    key = re.sub(r", \d+ bytes, written \d+(?:, changed \d+)?, inode \d+(?: of \d+)?", "", key)
    key = re.sub(r"\b([0-9a-f]{8})[0-9a-f]{24,}\b", r"\1", key)
    return re.sub(r"/(?:[^/,]+/)+([^/,]+)", r"\1", key)


def show(artefacts: Sequence[Artefact], *, whole: bool = False) -> None:
    """Print a table of artefacts."""
    now, grid = time.time(), screen.Grid("key~ >size >last_use source place state~")
    for artefact in artefacts:
        grid.add(
            (artefact.key if whole else short(artefact.key)) or artefact.path.name,
            size(artefact.bytes),
            f"{duration(now - artefact.last_used)} ago",
            SOURCES[artefact.source_present],
            artefact.place,
            artefact.reason if artefact.state == "ready" else f"{artefact.state}: {artefact.reason}",
        )
    grid.show(screen.out())


def total(artefacts: Sequence[Artefact]) -> str:
    """Return the number of artefacts and their total size, as text."""
    return f"{counted(len(artefacts), 'artefact')}, {size(sum(artefact.bytes for artefact in artefacts))}"


@click.group("store", cls=Group)
def command() -> None:
    """List, remove and find the files that programs built once per machine."""


@command.command("ls")
@store_options
@click.option("--long", "whole", is_flag=True, help="Show full keys, as prune --key expects them.")
@options.as_json()
def ls(*, folder: str | None, place: Place | None, shared: bool, whole: bool, as_json: bool) -> None:
    """List artefacts by last use. For an unfinished build, the state is shown: building, partial or stale claim.

    Without --long, keys are shortened. The last line shows the maximum size, which ONECOPY_MAX_BYTES sets.
    A build that exceeds it removes the least recently used artefacts.
    """
    folders = selected_folders(folder, place)
    stores = existing_stores(folders, shared=shared)
    artefacts = [artefact for store in stores for artefact in store.ls()]
    if as_json:
        options.show_json(as_dicts(artefacts))
        return
    if artefacts:
        show(artefacts, whole=whole)
    limits = {
        str(store.folder): " (size unlimited)" if store.max_bytes is None else f" (at most {size(store.max_bytes)})"
        for store in stores
    }
    names = [store.folder for store in stores] if shared else folders
    where = (f"{one}{limits.get(str(one), '')}" for one in names)
    screen.show_line(screen.out(), f"{total(artefacts)} in {' and '.join(where)}")


@command.command("prune")
@store_options
@click.option(
    "--max-age",
    type=options.TIME,
    is_flag=False,
    flag_value="60d",
    metavar="AGE",
    help="Remove artefacts that were not used for AGE, such as 30d, 12h or 2w; the default of AGE is 60d.",
)
@click.option(
    "--max-bytes",
    type=options.SIZE,
    help="Remove the least recently used artefacts until each folder contains at most SIZE.",
)
@click.option("--missing-source", is_flag=True, help="Remove artefacts whose source files are missing or have changed.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Remove KEY's artefact. Repeatable.")
@click.option("--all", "everything", is_flag=True, help="Remove everything.")
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Remove without confirmation.")
@options.as_json("JSON on stdout; requires --yes or --dry-run.")
def prune(
    *, folder: str | None, place: Place | None, shared: bool, dry_run: bool, yes: bool, as_json: bool, **chosen: Any
) -> None:
    """Remove the selected artefacts, and the files of abandoned builds.

    Without a selection, only the files of abandoned builds are removed. Running builds are never removed. Processes
    that have mapped a removed file can still use it.
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json cannot ask for confirmation: add --yes or --dry-run")
    stores = existing_stores(selected_folders(folder, place), shared=shared)
    if not yes:
        removed = [artefact for store in stores for artefact in store.prune(**chosen, dry_run=True).removed]
        if not as_json and removed:
            show(removed)
        if not dry_run and removed:
            click.confirm(f"Remove {total(removed)}?", abort=True, err=True)
    reports = [store.prune(**chosen, dry_run=dry_run) for store in stores]
    removed = [artefact for report in reports for artefact in report.removed]
    kept = [artefact for report in reports for artefact in report.kept]
    if as_json:
        options.show_json({"removed": as_dicts(removed), "kept": as_dicts(kept)})
        return
    for artefact in kept:
        screen.show_line(screen.err(), f"onecopy: kept {artefact.key or artefact.path.name}: {artefact.reason}")
    screen.show_line(screen.out(), f"{'would remove' if dry_run else 'removed'} {total(removed)}")


@command.command("path")
@click.argument("key")
@store_options
def path(*, key: str, folder: str | None, place: Place | None, shared: bool) -> None:
    """Print the path of KEY's artefact. If it does not exist, print its future path, and exit with status 1."""
    folders = selected_folders(folder, place)
    for store in existing_stores(folders, shared=shared):
        if (artefact := store.find(key)) is not None:
            click.echo(str(artefact.path))
            return
    click.echo(str(Store(folders[0], trust=() if shared else None).path(key)))
    raise click.exceptions.Exit(1)
