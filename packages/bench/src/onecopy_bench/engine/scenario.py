"""What a scenario is, the command that it becomes, and what is shown of its record.

A scenario is a function that measures, its options, and functions from a record to tables, sentences and a picture.
Every command has the same options beside those of its scenario, a progress bar, and a record that can be resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from onecopy.base.text import counted, escape, parse_size
from onecopy.cli import screen
from onecopy.cli.options import Quantity
from onecopy_bench.engine import pictures
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.record import Log, Record, Sample, lines
from onecopy_bench.engine.rounds import Progress, Settings, Watch, doubt
from onecopy_bench.engine.tables import MB, Table, text

ENOUGH_ROUNDS = 7
"""Rounds that a published number needs."""

POSITIVE, NATURAL = click.IntRange(min=1), click.IntRange(min=0)
SECONDS = click.FloatRange(min=0, min_open=True)
EXISTING = click.Path(exists=True, dir_okay=False)
FILE = click.Path(dir_okay=False, path_type=Path)
BACKED = (
    "Touch and free as much memory as a sample needs before it: where a virtual machine's host takes free memory back,"
    " new memory is slower than disks, and times cannot be compared with those of other machines."
)
JSON = "Write the record here, a line per sample as it comes; '-': to stdout at the end, without tables."


def usual_limits(record: Record) -> Iterator[str]:
    """Yield what was not measured, what went wrong, and how far the numbers can be trusted."""
    for absent in record.absent:
        yield f"{absent.name}: {absent.reason}."
    lost: dict[tuple[str, str], list[Sample]] = {}
    for sample in record.samples:
        if sample.state != "ok":
            lost.setdefault((sample.row, sample.state), []).append(sample)
    for (row, state), samples in lost.items():
        cases = "; ".join(dict.fromkeys(", ".join(s.case) for s in samples))
        yield f"{row}: {state}{f' ({cases})' if cases else ''}: {samples[0].reason}."
    if words := doubt(record.samples):
        yield words
    if (rounds := record.rounds) < ENOUGH_ROUNDS:
        yield f"{counted(rounds, 'round')}: a published number needs {ENOUGH_ROUNDS}."


def cache_state(samples: Sequence[Sample], sizes: Mapping[str, float], *, cold: bool = True) -> Iterator[str]:
    """Yield whether the declared state of the page cache was reached before every sample.

    `sizes` are those of the files that rows load: some rivals have one of their own.
    """
    known = [(s.numbers["cached_before"], sizes.get(s.row, 0)) for s in samples if "cached_before" in s.numbers]
    off = [(cached, size) for cached, size in known if (cached > 0 if cold else cached < size)]
    state = "cold" if cold else "warm"
    if len(known) < len(samples):
        yield f"It is unknown what was cached before {len(samples) - len(known)} of {len(samples)} samples."
    elif off:
        cached, size = max(off) if cold else min(off)
        much, still = ("up to", "were still") if cold else ("as little as", "was")
        part = f"{cached / MB:.1f}{f' of {size / MB:.1f}' if size else ''} MB {still} cached"
        yield f"NOT {state}: {much} {part} before {len(off)} of {len(known)} samples."
    elif known and cold:
        yield f"Cold: the kernel counted 0 cached bytes of the file before each of {len(known)} samples."
    elif known:
        yield f"Warm: the whole file was cached, always filled alike, before each of {len(known)} samples."


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    Attributes
    ----------
    options
        The defaults; fields that `option` made are options of the command.
    run
        Measures in a folder, given the options, what watches the progress, and the log; returns the record.
    heading, tables, findings, limits, status
        Given a record: a line of what was measured, tables, what the numbers say and what limits them, the exit status.
    draw
        Draws a record into a matplotlib figure.
    measures
        Numbers that are computed from a sample and are not among its numbers, by name.
    adjust
        Called with the options of the command line; returns those to run with, or raises a usage error.
    without
        Options that the command does not have.
    settings
        Of the click command.
    """

    name: str
    help: str
    options: Any
    run: Callable[..., Record]
    heading: Callable[[Record], str]
    tables: Callable[[Record], Iterable[Table]]
    findings: Callable[[Record], Iterable[str]] = lambda _: ()
    draw: Callable[[Any, Record], None] | None = None
    limits: Callable[[Record], Iterable[str]] = usual_limits
    measures: Mapping[str, Callable[[Sample], float | None]] = dataclasses.field(default_factory=dict)
    adjust: Callable[[Any], Any] = lambda options: options
    without: tuple[str, ...] = ()
    status: Callable[[Record], int] = lambda _: 0
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def sentences(self, record: Record) -> list[str]:
        """Return what the numbers say, and then what limits them."""
        return [*self.findings(record), *self.limits(record)]

    def page(self, record: Record, picture: str | None = None) -> str:
        """Return a record as a page of Markdown."""
        parts = [f"# {text(self.heading(record))}", text(record.where)]
        parts += [f"![What it costs]({picture})"] if picture else []
        parts += [table.markdown() for table in self.tables(record)]
        return "\n\n".join([*parts, "\n".join(f"* {text(each)}" for each in self.sentences(record))]) + "\n"

    def show(self, record: Record) -> None:
        """Print a record."""
        console = screen.out()
        screen.show_line(console, self.heading(record), "bold")
        for table in self.tables(record):
            console.print()
            screen.show_line(console, table.title, "bold")
            wide = _grid(table, " ")
            (wide if wide.needed() <= console.width else _grid(table, "\n")).show(console)
        console.print()
        for sentence in self.sentences(record):
            screen.show_line(console, sentence)

    def command(self) -> click.Command:
        """Return the command of the scenario."""

        def call(**given: Any) -> int:
            out = Out(**{each.name: given.pop(each.name) for each in dataclasses.fields(Out) if each.name in given})
            out.check()
            options = self.adjust(dataclasses.replace(self.options, **given))
            return self.status(self._measured(out, options))

        fields = [each for each in dataclasses.fields(self.options) if each.metadata]
        own = {each.name: _option_of(each, getattr(self.options, each.name)) for each in fields}
        without = (*self.without, *(() if self.draw else ("plot",)))
        command: Any = call
        for name, each in reversed((own | heads(self.options)).items()):
            command = command if name in without else each(command)
        make: Any = click.command
        made: click.Command = make(self.name, help=self.help, **self.settings)(command)
        return made

    def _measured(self, out: Out, options: Any) -> Record:
        """Run in a temporary folder, with a bar and a log; then write and show the record, and return it."""
        files: Any = contextlib.nullcontext(Path.cwd()) if "folder" in self.without else place(out)
        try:
            with interruptible(out.json_path), files as folder, bar("preparing") as watch:
                record = self.run(folder, options, watch, out.log())
        except (ModuleNotFoundError, Unavailable) as error:
            raise click.ClickException(str(error)) from error
        if out.plot is not None and self.draw is not None:
            pictures.save(out.plot, self.draw, record)
        if out.markdown is not None:
            Path(out.markdown).write_text(self.page(record, None if out.plot is None else Path(out.plot).name))
        if out.json_path == "-":
            click.echo("".join(lines(record)), nl=False)
        else:
            self.show(record)
        return record


def _grid(table: Table, between: str) -> screen.Grid:
    """Return a table for the screen; `between` separates the lines of a cell."""
    words = [title.replace("\n", between) for title in table.header]
    rows = [tuple(between.join(map(escape, cell.split("\n"))) for cell in row) for row in table.rows]
    return screen.Grid([words[0], *(f">{title}" for title in words[1:])], rows)


def filled(page: str, block: str, begin: str, end: str) -> str:
    """Return a page with its block replaced; raises ValueError where the page has not the two marks, once each."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs one {begin} and, after it, one {end}")
    return page[: page.index(begin)] + block + page[page.index(end) + len(end) :]


def option(default: Any, words: str, /, *flags: str, **settings: Any) -> Any:
    """Return a field of the options of a scenario that the command line sets, and the words of its help.

    Flags are given where they are not made of the name of the field. Settings are those of `click.option`; or
    `choices`, names of which several may be given, and `path`, of which the record has the name alone.
    """
    return dataclasses.field(default=default, metadata={"words": words, "flags": flags, "settings": settings})


def argument(name: str, default: Any = "", **settings: Any) -> Any:
    """Return a field that is an argument of the command, of which the record has the name alone."""
    return dataclasses.field(default=default, metadata={"argument": name, "settings": settings | {"path": True}})


_SIZE = Quantity("size", parse_size, lambda nbytes: nbytes >= 1, "at least one byte")


def size(default: str, words: str, *flags: str) -> Any:
    """Return a field that is a number of bytes; its default is shown as it is written."""
    return option(parse_size(default), words, *flags, type=_SIZE, default=default)


def _option_of(field: dataclasses.Field[Any], default: Any) -> Callable[[Any], Any]:
    """Return the option of a field: a positive number, seconds, several of them, or what its settings say."""
    settings = {name: value for name, value in field.metadata["settings"].items() if name != "path"}
    if "argument" in field.metadata:
        return click.argument(field.name, metavar=field.metadata["argument"], **settings)
    words = field.metadata["words"]
    flags = field.metadata["flags"] or (f"--{field.name.replace('_', '-')}",)
    if choices := settings.pop("choices", None):
        settings = {"type": click.Choice(choices), "show_default": "all"} | settings
    if isinstance(default, tuple):
        settings = {"multiple": True, "callback": lambda *chosen: tuple(dict.fromkeys(chosen[2]))} | settings
        settings = {"type": POSITIVE} | settings
        words = f"{words} Repeatable."
    kinds = {int: POSITIVE, float: SECONDS}
    usual = {"type": kinds.get(type(default)), "default": default, "help": words, "show_default": True}
    return click.option(*flags, field.name, **(usual | settings))


def read_ahead_of(text: str) -> int:
    """Return a read-ahead such as 128K in bytes; ValueError where it is none."""
    nbytes = int(parse_size(text.removesuffix("K") + "KiB" if text.endswith("K") else text))
    if nbytes <= 0 or nbytes % 1024:
        raise ValueError(f"{text!r} is not a multiple of 1 KiB")
    return nbytes


def places(default: tuple[str, ...], words: str, names: Sequence[str] = ("disk",)) -> Any:
    """Return a field of places: those of some names, and disks with a read-ahead such as 128K."""

    def check(_: click.Context, parameter: click.Parameter, chosen: tuple[str, ...]) -> tuple[str, ...]:
        for each in chosen:
            try:
                if each not in names:
                    read_ahead_of(each)
            except ValueError as error:
                raise click.BadParameter(f"{error}, nor one of {', '.join(names)}", param=parameter) from error
        return tuple(dict.fromkeys(chosen))

    return option(default, words, "--place", type=str, callback=check, metavar="PLACE")


@dataclass(frozen=True, slots=True)
class Out:
    """Where the files of a run are, if there are any, what is written, and whether a run that was ended is resumed."""

    folder: str | None = option(
        None, "Folder for the files.  [default: here]", type=click.Path(file_okay=False, exists=True)
    )
    plot: str | None = option(None, "Draw a picture, as .svg or .png.", metavar="OUT")
    markdown: str | None = option(None, "Write the tables here.", metavar="OUT")
    json_path: str | None = option(None, JSON, "--json", metavar="OUT")
    resume: bool = option(
        False, "Continue the run that OUT holds; else begin anew.", "--resume", is_flag=True, show_default=False
    )

    def check(self) -> None:
        """Raise a usage error where a file could not be written at the end of a long run."""
        check_folders(self.json_path, self.markdown, self.plot)
        if self.resume and self.json_path in (None, "-"):
            raise click.UsageError("--resume needs --json OUT: the samples are there")

    def log(self) -> Log:
        """Return the file that samples are kept in as they come, if there is to be one."""
        return Log(None if self.json_path == "-" else self.json_path, resume=self.resume)


def check_folders(*paths: str | None) -> None:
    """Raise a usage error where a file could not be written."""
    for path in paths:
        if path is not None and path != "-" and not Path(path).absolute().parent.is_dir():
            raise click.UsageError(f"no folder for {path!r}")


@dataclass(frozen=True, slots=True)
class _Usual(Settings):
    rounds: int = option(
        5, "Number of rounds; each measures every row of every case once, in random order.", "--rounds", "--iterations"
    )
    timeout: float = option(900.0, "Seconds that a phase may take.")
    idle_wait: float = option(
        60.0, "Seconds that the whole run may wait for an idle machine.", type=click.FloatRange(min=0)
    )
    backed: bool = option(False, BACKED, "--backed", is_flag=True, show_default=False)
    seed: int = option(0, "Seed of the random orders and choices.", type=int)


def heads(defaults: Settings) -> dict[str, Callable[[Any], Any]]:
    """Return the options that scenarios have in common, by the names of their values."""
    fields = (*dataclasses.fields(_Usual), *dataclasses.fields(Out))
    return {each.name: _option_of(each, getattr(defaults, each.name, each.default)) for each in fields}


@contextlib.contextmanager
def place(out: Out) -> Iterator[Path]:
    """Make a temporary folder for the files of a scenario, in the working folder by default."""
    with tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=out.folder or ".") as found:
        yield Path(found).absolute()


@contextlib.contextmanager
def interruptible(json_path: str | None) -> Iterator[None]:
    """Let SIGTERM end a run like Ctrl-C, so that no disk or group is left; report how it can be resumed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if json_path not in (None, "-"):
            click.echo(f"\nonecopy: the samples so far are in {json_path}: continue with --resume", err=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def bar(first: str) -> Iterator[Watch]:
    """Show a progress bar on stderr."""
    with screen.progress_bar(screen.err()) as shown:
        task = shown.add_task(first, total=None)

        def watch(now: Progress) -> None:
            shown.update(task, completed=now.done, total=now.total or None, description=now.next)

        yield watch
