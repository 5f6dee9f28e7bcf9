"""The help and the options of `onecopy run -- COMMAND...`; `runner` runs the command."""

from __future__ import annotations

import click

from onecopy.cli import runner


@click.command("run")
@click.option(
    "--report",
    "output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the report as JSON when COMMAND ends.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no report.")
@click.option("--keep", is_flag=True, help="Keep the shared copies in the store, on disk, for the next run.")
@click.option(
    "--map",
    "mapped",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    metavar="FOLDER",
    help="Map the files in FOLDER without copying them. Nobody may change them: writing to a file would change what "
    "the processes have loaded, and truncating it would kill them. Repeatable; also ONECOPY_MAP.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND...")
def command(*, output: str | None, quiet: bool, keep: bool, mapped: tuple[str, ...], command: tuple[str, ...]) -> int:
    """Run COMMAND so that its Python processes share what they load.

    Model weights and arrays that torch, transformers, safetensors, ONNX Runtime, NumPy and joblib load from files
    are mapped copy-on-write from a single snapshot, which this process keeps until COMMAND ends. The first process that
    loads a file copies it; all others, including those in other runs of this user, map the copy. The file may be
    modified or replaced during the run. A report states what was shared, what was not, and why. It is printed on stderr
    when COMMAND ends, and whenever this process receives SIGUSR2. Other signals are forwarded to COMMAND.

    The exit status is that of COMMAND, or 128 + N if signal N ended it. onecopy must be installed in COMMAND's
    environment. Processes that ignore PYTHONPATH (python -I, -E) share nothing.
    """
    return runner.run(command, output=output, quiet=quiet, keep=keep, mapped=mapped)
