"""`onecopy plot RUN -o PICTURE`: draw a recording."""

from __future__ import annotations

from pathlib import Path

import click

from onecopy.base.text import escape
from onecopy_monitor.pictures import THEMES, draw
from onecopy_monitor.recording import Recording, read_recording

ENDINGS = (".svg", ".html", ".png")


def read(path: str) -> Recording:
    """Read a recording, with a warning if its last line is cut; click.ClickException if it has no samples."""
    recording = read_recording(path)
    if not len(recording.series.total):
        raise click.ClickException(f"{path}: the recording has no samples")
    if recording.cut:
        click.echo(f"onecopy: warning: {escape(path)}: the last line is cut and was ignored", err=True)
    return recording


def check_output(path: str) -> None:
    """Raise click.BadParameter if the path has another suffix than `ENDINGS`, or if its folder is missing."""
    if not path.lower().endswith(ENDINGS):
        raise click.BadParameter(f"{path!r} must end in {', '.join(ENDINGS)}", param_hint="-o")
    if not Path(path).absolute().parent.is_dir():
        raise click.BadParameter(f"no folder for {path!r}", param_hint="-o")


OUTPUT_HELP = "Path of the picture: .svg, .html (one file, with values at the pointer) or .png."
THEME_HELP = "Colours; auto follows the settings of the viewer, and makes a light .png."
theme_option = click.option("--theme", type=click.Choice(THEMES), default="auto", show_default=True, help=THEME_HELP)
processes_option = click.option(
    "--processes",
    type=click.IntRange(0, 100),
    default=8,
    show_default=True,
    help="Number of processes with a panel each: those with the most memory.",
)


@click.command("plot")
@click.argument("recording", type=click.Path(), metavar="RUN")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="PICTURE", help=OUTPUT_HELP)
@click.option("--title", default="", help="Title of the picture; default: the recorded command.")
@theme_option
@processes_option
def command(*, recording: str, output: str, title: str, theme: str, processes: int) -> None:
    """Draw RUN, a file of onecopy record: anonymous memory, files and shared memory over time, total and per process.

    The dashed line is the sum of RSS. An existing PICTURE is replaced.
    """
    check_output(output)
    run = read(recording)
    draw([("", run.series)], output, title=title or run.title, theme=theme, processes=processes)
