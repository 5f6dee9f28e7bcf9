"""The command line of a scenario: the options that every one has, and the run with a bar and its outputs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from onecopy.cli import reports, screen
from onecopy.cli.options import SIZE_OF_SOMETHING
from onecopy.text import parse_size
from onecopy_bench.engine import pages, pictures
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.pages import Scenario
from onecopy_bench.engine.record import Log, Record, lines
from onecopy_bench.engine.rounds import Progress, Settings, Watch

Run = Callable[[Path, Watch, Log], Record]
Measure = Callable[..., Record]
"""Called with a `Run`, and with what shows its record where that is not as usual."""

POSITIVE = click.IntRange(min=1)
SECONDS = click.FloatRange(min=0, min_open=True)
DEVICE = "device"


def option(flag: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option whose default is shown."""
    return click.option(flag, *names, **({"show_default": True} | settings))


def once(_: click.Context, __: click.Parameter, chosen: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what was chosen, each once."""
    return tuple(dict.fromkeys(chosen))


def several(flag: str, name: str, default: Sequence[Any], words: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option that may be given more than once."""
    settings = {"callback": once, "type": POSITIVE} | settings
    return option(flag, name, multiple=True, default=default, help=f"{words} Repeatable.", **settings)


def choice(flag: str, name: str, names: Sequence[str], words: str) -> Callable[[Any], Any]:
    """Return an option that takes some of several names; all if not given."""
    return several(flag, name, names, words, type=click.Choice(names), show_default="all")


def field(default: Any, words: str, /, *flags: str, **settings: Any) -> Any:
    """Return a field of the options of a scenario that the command line sets; see `common`.

    Parameters
    ----------
    default, words
        Of the field, and what `--help` says of it.
    flags
        Of the option, where these are not made of the name of the field.
    settings
        As of `option`; or `choices`, names of which several may be given.
    """
    return dataclasses.field(default=default, metadata={"words": words, "flags": flags, "settings": settings})


def option_of(field: dataclasses.Field[Any], default: Any) -> Callable[[Any], Any]:
    """Return the option of a field: a positive number, seconds, several of them, or what its settings say."""
    words, settings = field.metadata["words"], dict(field.metadata["settings"])
    flags = field.metadata["flags"] or (f"--{field.name.replace('_', '-')}",)
    if "choices" in settings:
        return choice(flags[0], field.name, settings["choices"], words)
    if isinstance(default, tuple):
        return several(flags[0], field.name, default, words, **settings)
    kinds = {int: POSITIVE, float: SECONDS}
    usual = {"type": kinds.get(type(default)), "default": default, "help": words}
    return option(*flags, field.name, **(usual | settings))


def size(default: str, words: str) -> Any:
    """Return a field that is a number of bytes; its default is shown as it is written."""
    return field(parse_size(default), words, type=SIZE_OF_SOMETHING, default=default)


def as_read_aheads(_: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[int | None, ...]:
    """Return each read-ahead in bytes, None for the file's own device; a wrong one is a wrong command line."""
    found: list[int | None] = []
    for text in texts:
        try:
            size = text.removesuffix("K") + "KiB" if text.endswith("K") else text
            nbytes = None if text == DEVICE else parse_size(size)
        except ValueError as error:
            raise click.BadParameter(f"{error}, nor {DEVICE!r}", param=parameter) from error
        if nbytes is not None and (nbytes <= 0 or nbytes % 1024):
            raise click.BadParameter(f"{text!r} is not a multiple of 1 KiB", param=parameter)
        found.append(nbytes)
    return tuple(dict.fromkeys(found))


def read_aheads(default: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return the option for the read-aheads of disks."""
    words = "'device': where the file is. A size such as 128K: a copy on a loop device beside it (root)."
    return several("--read-ahead", "read_aheads", default, words, type=str, callback=as_read_aheads, metavar="SIZE")


@dataclasses.dataclass(frozen=True, slots=True)
class Out:
    """Where the files of a run are, if there are any, what is written, and whether a run that was ended is resumed."""

    folder: str | None = None
    plot: str | None = None
    markdown: str | None = None
    json_path: str | None = None
    resume: bool = False
    in_folder: bool = True

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
        if not reports.has_folder(path):
            raise click.UsageError(f"no folder for {path!r}")


def heads(defaults: Settings) -> dict[str, Callable[[Any], Any]]:
    """Return the options that scenarios have in common, by the names of their values."""
    return {
        "rounds": option(
            "--rounds", "--iterations", "rounds", type=POSITIVE, default=defaults.rounds,
            help="Each takes every row in every case once, in random order.",
        ),
        "timeout": option("--timeout", type=SECONDS, default=defaults.timeout, help="Seconds that a phase may take."),
        "idle_wait": option(
            "--idle-wait", type=click.FloatRange(min=0), default=defaults.idle_wait,
            help="Seconds that the whole run may wait for an idle machine.",
        ),
        "backed": click.option(
            "--backed", is_flag=True,
            help="Touch and free as much memory as a sample needs before it: where a virtual machine's host takes free"
            " memory back, new memory is slower than disks, and no time says anything about other machines.",
        ),
        "seed": option("--seed", type=int, default=defaults.seed, help="Of orders and choices."),
        "folder": click.option(
            "--folder", type=click.Path(file_okay=False, exists=True), help="For the files.  [default: here]"
        ),
        "plot": click.option("--plot", metavar="OUT", help="Draw it, as .svg or .png."),
        "markdown": click.option("--markdown", metavar="OUT", help="Write the tables here."),
        "json_path": click.option(
            "--json", "json_path", metavar="OUT",
            help="Write the record here, a line per sample as it comes; '-': to stdout at the end, without tables.",
        ),
        "resume": click.option("--resume", is_flag=True, help="Continue the run that OUT holds; else begin anew."),
    }  # fmt: skip


def common(scenario: Scenario, defaults: Settings, without: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Return what gives a command the options of all scenarios and those of its fields.

    The command gets the settings as ``options`` and, as ``measure``, what runs the scenario and shows its record.
    """
    own = [each for each in dataclasses.fields(defaults) if each.metadata and each.name not in without]

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def command(**given: Any) -> Any:
            names = (field.name for field in dataclasses.fields(Out))
            known = {name: given.pop(name) for name in names if name in given}
            out = Out(**known, in_folder="folder" not in without)
            out.check()
            settings = {each.name: given.pop(each.name) for each in dataclasses.fields(defaults) if each.name in given}
            options = dataclasses.replace(defaults, **settings)
            return function(options=options, measure=functools.partial(measured, scenario, out), **given)

        for name, each in reversed(heads(defaults).items()):
            if name not in without and (name != "plot" or scenario.draw is not None):
                command = each(command)
        for field in reversed(own):
            command = option_of(field, getattr(defaults, field.name))(command)
        return command

    return decorate


def measured(scenario: Scenario, out: Out, run: Run, show: Callable[[Record], None] | None = None) -> Record:
    """Run a scenario in a temporary folder, with a bar and a log; then write and show its record, and return it."""
    try:
        with interruptible(out.json_path), place(out) as folder, bar("preparing") as watch:
            record = run(folder, watch, out.log())
    except (ModuleNotFoundError, Unavailable) as error:
        raise click.ClickException(str(error)) from error
    if out.plot is not None and scenario.draw is not None:
        draw = scenario.draw
        pictures.save(out.plot, lambda figure: draw(figure, record))
    if out.markdown is not None:
        picture = None if out.plot is None else Path(out.plot).name
        Path(out.markdown).write_text(pages.page(scenario, record, picture))
    if out.json_path == "-":
        click.echo("".join(lines(record)), nl=False)
    elif show is not None:
        show(record)
    else:
        pages.show(scenario, record)
    return record


@contextlib.contextmanager
def place(out: Out) -> Iterator[Path]:
    """Make a temporary folder for a scenario that writes files, in the working folder by default."""
    if not out.in_folder:
        yield Path.cwd()
        return
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
    with screen.progress_bar(screen.err(), left=screen.SecondsLeftColumn()) as shown:
        task = shown.add_task(first, total=None)

        def watch(now: Progress) -> None:
            shown.update(task, completed=now.done, total=now.total or None, description=now.next, left=now.seconds_left)

        yield watch
