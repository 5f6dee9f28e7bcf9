"""`onecopy plot RUN -o PICTURE`: a recording as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onecopy.cli.command_line import describe
from onecopy.cli.targets import has_folder
from onecopy.cli.words import plain
from onecopy.memory.pictures import THEMES, draw
from onecopy.memory.recording import Recording, read_recording

if TYPE_CHECKING:
    from onecopy.memory.series import Series

ENDINGS = (".svg", ".html", ".png")


def read(path: str) -> Recording:
    """Read a recording that can be shown; warn of a cut one."""
    recording = read_recording(path)
    if not len(recording.series.total):
        raise click.ClickException(f"{path}: there is no look in it")
    if recording.cut:
        click.echo(f"onecopy: warning: {plain(path)}: the last line is cut, and is left out", err=True)
    return recording


def check_output(path: str) -> None:
    """Raise click.BadParameter where no picture can be written there."""
    if not path.lower().endswith(ENDINGS):
        raise click.BadParameter(f"{path!r} must end in {', '.join(ENDINGS)}", param_hint="-o")
    if not has_folder(path):
        raise click.BadParameter(f"no folder for {path!r}", param_hint="-o")


def show(runs: list[tuple[str, Series]], output: str, title: str, theme: str, processes: int) -> None:
    """Draw, and turn a library that is missing into a line."""
    try:
        draw(runs, output, title=title, theme=theme, processes=processes)
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(describe(error)) from None


OUTPUT_HELP = "The picture: .svg, .html (numbers under the pointer; one file) or .png (needs pyvips)."
THEME_HELP = "auto follows the reader's screen; a .png is light then."
theme_option = click.option("--theme", type=click.Choice(THEMES), default="auto", show_default=True, help=THEME_HELP)
processes_option = click.option(
    "--processes",
    type=click.IntRange(0, 100),
    default=8,
    show_default=True,
    help="How many processes have a panel of their own: those that held most.",
)


@click.command("plot")
@click.argument("recording", type=click.Path(), metavar="RUN")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="PICTURE", help=OUTPUT_HELP)
@click.option("--title", default="", help="Above the picture; the command if not given.")
@theme_option
@processes_option
def command(*, recording: str, output: str, title: str, theme: str, processes: int) -> None:
    """Draw RUN, which onecopy record wrote: anonymous memory, files, shared memory over time, in total and per process.

    The dashed line is what a sum of RSS would say. PICTURE is written over if it is there.
    """
    check_output(output)
    run = read(recording)
    show([("", run.series)], output, title or run.title, theme, processes)
