"""`onecopy verify FILE...`: compare files with the checksums stored in them."""

from __future__ import annotations

from typing import Any

import click

import onecopy
from onecopy.arrays import open_arrays
from onecopy.base.text import escape, size
from onecopy.cli import options, reports, screen
from onecopy.cli.command_line import describe

UNKNOWN = 3
"""Exit status if no file is damaged, but one has no checksums."""
SHOWN = 10
"""Maximum number of damaged blocks that are printed; the JSON has all."""


def verify(path: str, pattern: str | None, threads: int | None) -> dict[str, Any]:
    """Verify one file; return a report with the status "ok", "damaged", "no checksums" or "error"."""
    report: dict[str, Any] = {"file": path}
    try:
        with open_arrays(path) as file, screen.progress("verify") as watch:
            names = None if pattern is None else reports.names_matching(file, pattern)
            verified = file.verify(names, threads=threads, progress=watch)
        return {**report, "status": "ok", **verified._asdict()}
    except onecopy.ChecksumError as error:
        blocks = [block._asdict() for block in error.blocks]
        return {**report, "status": "damaged", "reason": str(error), "blocks": blocks}
    except onecopy.errors.NoChecksum as error:
        return {**report, "status": "no checksums", "reason": str(error)}
    except (OSError, ValueError) as error:
        return {**report, "status": "error", "reason": describe(error)}


def show(report: dict[str, Any]) -> None:
    """Print the report of one file."""
    if report["status"] == "ok":
        speed = f"{size(report['bytes'])} in {report['seconds']:.3g} s, {report['gib_per_s']:.3g} GiB/s"
        screen.show_line(screen.out(), f"{escape(report['file'])}: every byte is as it was written ({speed})")
        return
    screen.show_line(screen.err(), f"onecopy: {escape(report['reason'])}", "red")
    blocks = report.get("blocks", [])
    for one in blocks[:SHOWN] if len(blocks) > 1 else ():
        block = onecopy.errors.BadBlock(**one)
        names = ", ".join(escape(name) for name in block.names[:3])
        names += f" and {len(block.names) - 3} more" if len(block.names) > 3 else ""
        line = f"  block {block.number}, bytes {block.offset} to {block.offset + block.length}: {names}"
        screen.show_line(screen.err(), f"{line} (CRC-32C {block.found:08x}, {block.expected:08x} stored)")
    if len(blocks) > SHOWN:
        screen.show_line(screen.err(), f"  and {len(blocks) - SHOWN} more; --json has them all")


@click.command("verify")
@options.FILES
@options.names("Only arrays whose names match, and what shares their blocks.")
@options.threads("Number of threads; default: 8.")
@options.as_json("JSON on stdout: a list with one report per file.")
def command(*, files: tuple[str, ...], pattern: str | None, threads: int | None, as_json: bool) -> None:
    """Compare each FILE with the checksums that onecopy.save stored in it.

    The exit status is 0 if every byte of every file is as it was written; 1 if a file is damaged or cannot be read;
    else 3, if a file has no checksums. All files are verified, even after a damaged one.
    """
    results = []
    for file in files:
        results.append(verify(file, pattern, threads))
        if not as_json:
            show(results[-1])
    if as_json:
        options.show_json(results)
    states = {report["status"] for report in results} - {"ok"}
    if states:
        raise click.exceptions.Exit(UNKNOWN if states == {"no checksums"} else 1)
