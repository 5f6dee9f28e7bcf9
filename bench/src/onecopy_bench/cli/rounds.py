"""What scenarios of rounds share on the command line: options, the run, what is written at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onecopy_bench.cli import outputs, passes
from onecopy_bench.records import picture, tables
from onecopy_bench.records.record import Run, RunJournal, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onecopy_bench.records.rounds import Settings
    from onecopy_bench.runner import Progress


def once(_: click.Context, __: click.Parameter, chosen: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what was chosen, each once."""
    return tuple(dict.fromkeys(chosen))


def choice(flag: str, name: str, names: Sequence[str], words: str) -> Callable[[Any], Any]:
    """Return an option that takes some of several names; all if not given."""
    return click.option(
        flag, name, type=click.Choice(names), multiple=True, default=names, callback=once, help=f"{words} Repeatable.",
        show_default="all",
    )  # fmt: skip


def options(defaults: Settings) -> Callable[[Any], Any]:
    """Return what gives a command these options: the settings each by its name, and where to write as ``out``."""
    each = (
        click.option(
            "--rounds",
            "--iterations",
            "rounds",
            type=click.IntRange(min=1),
            default=defaults.rounds,
            show_default=True,
            help="Each takes every row in every case once, in random order.",
        ),
        passes.timeout(defaults.timeout),
        passes.idle_wait(defaults.idle_wait),
        click.option(
            "--backed",
            is_flag=True,
            help="Touch and free as much memory as a sample needs before it: see `onecopy bench open --help`.",
        ),
        click.option("--seed", type=int, default=defaults.seed, show_default=True, help="Of the orders."),
        click.option("--folder", type=click.Path(file_okay=False, exists=True), help="For the files.  [default: here]"),
        click.option("--plot", metavar="OUT", help="Draw it, as .svg or .png (needs onecopy-bench[plots])."),
        click.option("--markdown", metavar="OUT", help="Write the tables here."),
        click.option(
            "--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables."
        ),
        click.option(
            "--resume", is_flag=True, help="Go on with a killed run, whose samples are in OUT.samples; else begin anew."
        ),
    )

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def command(**given: Any) -> Any:
            out = Out(**{field.name: given.pop(field.name) for field in dataclasses.fields(Out)})
            return function(out=out, **given)

        for option in reversed(each):
            command = option(command)
        return command

    return decorate


@dataclasses.dataclass(frozen=True, slots=True)
class Out:
    """Where files are, what is written at the end, and whether a killed run goes on."""

    folder: str | None
    plot: str | None
    markdown: str | None
    json_path: str | None
    resume: bool

    def check(self) -> None:
        """Raise a usage error where a file could not be written at the end of a long run."""
        passes.check_folders(self.json_path, self.markdown, self.plot)
        if self.plot is not None and importlib.util.find_spec("matplotlib") is None:
            raise click.ClickException("--plot needs matplotlib: pip install 'onecopy-bench[plots]'")


def measured(out: Out, run: Callable[[Path, Callable[[Progress], None], RunJournal | None], Run]) -> None:
    """Run a scenario in a temporary folder, with a bar and a journal; then write and show what it says."""
    out.check()
    journal = outputs.journal_of(out.json_path, RunJournal, resume=out.resume)
    with outputs.told(journal), _place(out.folder) as place:
        record = passes.with_bar(lambda watch: run(place, watch, journal), "making up the rows")
    found, said = tables.tables_of(record), tables.sentences_of(record)
    outputs.write(out.json_path, to_json(record, tables=[dataclasses.asdict(t) for t in found], sentences=said))
    if out.plot is not None:
        picture.draw(record, out.plot)
    if out.markdown is not None:
        Path(out.markdown).write_text(tables.to_markdown(record, None if out.plot is None else Path(out.plot).name))
    if out.json_path != "-":
        passes.show(tables.heading(record), found, said)
    if journal is not None:
        journal.remove()


@contextlib.contextmanager
def _place(folder: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=folder or ".") as place:
        yield Path(place).absolute()
