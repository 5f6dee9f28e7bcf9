"""Files that the benchmarks write at their end: looked at before the long run, written after it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onecopy.cli import targets
from onecopy_bench.journal import SUFFIX, JournalOf

if TYPE_CHECKING:
    from collections.abc import Iterator

AnyJournal = TypeVar("AnyJournal", bound=JournalOf[Any])


def check_json(path: str | None) -> None:
    """Raise click.BadParameter where the folder of a record does not exist."""
    if not targets.has_folder(path):
        raise click.BadParameter(f"no folder for {path!r}", param_hint="--json")


def write(path: str | None, text: str) -> None:
    """Write a record to a file, or to stdout for "-"."""
    if path == "-":
        click.echo(text, nl=False)
    elif path is not None:
        Path(path).write_text(text)


def journal_of(json_path: str | None, kind: type[AnyJournal], *, resume: bool) -> AnyJournal | None:
    """Return where the samples of a run are kept, which is beside its record."""
    if json_path in (None, "-"):
        if resume:
            raise click.UsageError("--resume needs --json OUT: the samples are kept beside it")
        return None
    check_json(json_path)
    return kind(str(json_path) + SUFFIX, resume=resume)


@contextlib.contextmanager
def told(journal: JournalOf[Any] | None) -> Iterator[None]:
    """Say where the samples are and how to go on, should the run be interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        if journal is not None:
            click.echo(f"\nonecopy: the samples so far are in {journal.path.name}: go on with --resume", err=True)
        raise
