"""`onecopy plot RUN -o PICTURE`: draw a recording."""

from __future__ import annotations

from pathlib import Path

import click

from onecopy.base.text import escape
from onecopy_monitor.pictures import THEMES, draw
from onecopy_monitor.recording import Recording, read_recording

ENDINGS = (".svg", ".html", ".png")


def read(path: str) -> Recording:
    """Read a recording, and warn if its last line is incomplete. Raise click.ClickException if it has no samples."""
    recording = read_recording(path)
    if not len(recording.series.total):
        raise click.ClickException(f"{path}: the recording has no samples")
    if recording.cut:
        click.echo(f"onecopy: warning: {escape(path)}: ignored the last line, which is incomplete", err=True)
    return recording


def check_output(path: str) -> None:
    """Raise click.BadParameter if the suffix of the path is not in `ENDINGS`, or its parent is missing."""
    if not path.lower().endswith(ENDINGS):
        raise click.BadParameter(f"{path!r} must end in {', '.join(ENDINGS)}", param_hint="-o")
    if not Path(path).absolute().parent.is_dir():
        raise click.BadParameter(f"the parent of {path!r} does not exist", param_hint="-o")


OUTPUT_HELP = "Path of the picture: .svg, .html (a single file that shows values at the pointer) or .png."
THEME_HELP = "Colours; auto follows the viewer's theme; a .png is light."
theme_option = click.option("--theme", type=click.Choice(THEMES), default="auto", show_default=True, help=THEME_HELP)
processes_option = click.option(
    "--processes",
    type=click.IntRange(0, 100),
    default=8,
    show_default=True,
    help="Number of processes that have a panel: those with the most memory.",
)


@click.command("plot")
@click.argument("recording", type=click.Path(), metavar="RUN")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="PICTURE", help=OUTPUT_HELP)
@click.option("--title", default="", help="Title of the picture; default: the recorded command.")
@theme_option
@processes_option
def command(*, recording: str, output: str, title: str, theme: str, processes: int) -> None:
    """Draw RUN, a file from onecopy record: anonymous memory, files and shared memory over time, total and per process.

    The dashed line is the sum of RSS. An existing PICTURE is replaced.
    """
    check_output(output)
    run = read(recording)
    draw([("", run.series)], output, title=title or run.title, theme=theme, processes=processes)
