"""Files that the benchmarks write at their end: looked at before the long run, written after it."""

from __future__ import annotations

from pathlib import Path

import click


def has_folder(path: str | None) -> bool:
    """Tell whether a file could be written: its folder is there, or it is stdout ("-") or nothing."""
    return path in (None, "-") or Path(str(path)).absolute().parent.is_dir()


def check_json(path: str | None) -> None:
    """Raise click.BadParameter where the folder of a record does not exist."""
    if not has_folder(path):
        raise click.BadParameter(f"no folder for {path!r}", param_hint="--json")


def write(path: str | None, text: str) -> None:
    """Write a record to a file, or to stdout for "-"."""
    if path == "-":
        click.echo(text, nl=False)
    elif path is not None:
        Path(path).write_text(text)
