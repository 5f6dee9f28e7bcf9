"""`onecopy verify FILE...`: compare files with the checksums stored in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

import onecopy
from onecopy.arrays import open_arrays
from onecopy.base.text import size
from onecopy.cli import options, reports, screen
from onecopy.cli.command_line import describe

if TYPE_CHECKING:
    from onecopy.arrays.saving import VerifyReport
    from onecopy.errors import BadBlock

UNKNOWN = 3
"""Exit status if no file is damaged, but at least one has no checksums."""
SHOWN = 10
"""Maximum number of damaged blocks to print; the JSON output lists all of them."""


class Result(NamedTuple):
    """The result for one file: a report if the status is "ok", or otherwise a reason."""

    file: str
    status: Literal["ok", "damaged", "no checksums", "error"]
    report: VerifyReport | None = None
    reason: str = ""
    blocks: tuple[BadBlock, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return a dict with the fields that apply to the status."""
        fields: dict[str, Any] = {"file": self.file, "status": self.status}
        if self.report is not None:
            return fields | self.report._asdict()
        fields["reason"] = self.reason
        if self.status == "damaged":
            fields["blocks"] = [block._asdict() for block in self.blocks]
        return fields


def verify(path: str, pattern: str | None, threads: int | None) -> Result:
    """Verify one file."""
    try:
        with open_arrays(path) as file, screen.progress("verify") as watch:
            names = None if pattern is None else reports.names_matching(file, pattern)
            return Result(path, "ok", file.verify(names, threads=threads, progress=watch))
    except onecopy.ChecksumError as error:
        return Result(path, "damaged", reason=str(error), blocks=error.blocks)
    except onecopy.errors.NoChecksum as error:
        return Result(path, "no checksums", reason=str(error))
    except (OSError, ValueError) as error:
        return Result(path, "error", reason=describe(error))


def show(result: Result) -> None:
    """Print the result for one file."""
    if result.report is not None:
        speed = f"{result.report.seconds:.3g} s, {result.report.gib_per_s:.3g} GiB/s"
        line = f"all bytes match the stored checksums ({size(result.report.bytes)} in {speed})"
        screen.show_line(screen.out(), f"{result.file}: {line}")
        return
    screen.show_line(screen.err(), f"onecopy: {result.reason}", "red")
    for block in result.blocks[:SHOWN] if len(result.blocks) > 1 else ():
        names = ", ".join(block.names[:3])
        names += f" and {len(block.names) - 3} more" if len(block.names) > 3 else ""
        line = f"  block {block.number}, bytes {block.offset} to {block.offset + block.length}: {names}"
        screen.show_line(screen.err(), f"{line} (CRC-32C {block.found:08x}, but {block.expected:08x} is stored)")
    if len(result.blocks) > SHOWN:
        screen.show_line(screen.err(), f"  and {len(result.blocks) - SHOWN} more; --json lists them all")


@click.command("verify")
@options.FILES
@options.names("Only arrays whose names match GLOB, and those in the same blocks.")
@options.threads("Number of threads; default: 8.")
@options.as_json("JSON on stdout: a list with one report per file.")
def command(*, files: tuple[str, ...], pattern: str | None, threads: int | None, as_json: bool) -> None:
    """Compare each FILE with the checksums that onecopy.save stored in it.

    The exit status is 0 if all bytes of all files match the checksums; 1 if a file is damaged or cannot be read;
    otherwise 3 if a file has no checksums. All files are always verified.
    """
    results = []
    for file in files:
        results.append(verify(file, pattern, threads))
        if not as_json:
            show(results[-1])
    if as_json:
        options.show_json([result.as_json() for result in results])
    states = {result.status for result in results} - {"ok"}
    if states:
        raise click.exceptions.Exit(UNKNOWN if states == {"no checksums"} else 1)
