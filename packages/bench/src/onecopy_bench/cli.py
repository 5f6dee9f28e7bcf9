"""`onecopy bench SCENARIO` runs a benchmark in fresh processes and shows the results; `report` shows saved records.

Every command has its scenario's options and the common options, shows progress, and can resume an interrupted run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from onecopy.base.text import escape, parse_size
from onecopy.cli import screen
from onecopy.cli.options import Group, Quantity
from onecopy_bench import images, models, nodes, pictures, run, start, structs
from onecopy_bench.files import opening
from onecopy_bench.places import Unavailable
from onecopy_bench.record import Log, Record, lines, read
from onecopy_bench.rows import share
from onecopy_bench.runs import Progress, Settings, Watch
from onecopy_bench.scenario import Scenario, UsageError, option
from onecopy_bench.stories import page, reading
from onecopy_bench.stories.story import STORIES, Scale, Story
from onecopy_bench.tables import Table

SUFFIXES = (".md", ".svg", ".png")
SCENARIOS = {
    module.SCENARIO.name: module.SCENARIO for module in (opening, run, structs, share, images, models, start, nodes)
}

KINDS: dict[str, Any] = {
    "size": Quantity("size", parse_size, lambda nbytes: nbytes >= 1, "at least one byte"),
    "text": str,
    "integer": int,
    "count": click.IntRange(min=1),
    "existing": click.Path(exists=True, dir_okay=False),
    "folder": click.Path(exists=True, file_okay=False),
    "file": click.Path(dir_okay=False, path_type=Path),
    "words": click.UNPROCESSED,
}
BACKED = (
    "Before each sample, touch and free as much memory as it needs. If the host of a virtual machine reclaims free"
    " memory, new memory is slower than disks, and times cannot be compared with those of other machines."
)
JSON = "Write each sample to this file as it is taken; '-': write the record to stdout at the end, without tables."


@dataclass(frozen=True, slots=True)
class _Common(Settings):
    rounds: int = option(
        5, "Number of rounds; each measures every row of every case once, in random order.", "--rounds", "--iterations"
    )
    timeout: float = option(900.0, "Seconds that a phase may take.")
    idle_wait: float = option(60.0, "Seconds that the whole run may wait for an idle machine.", at_least=0.0)
    backed: bool = option(False, BACKED)
    seed: int = option(0, "Seed of the random orders and choices.", kind="integer")


@dataclass(frozen=True, slots=True)
class Output:
    """A run's folder and output files, and whether to resume an interrupted run."""

    folder: str | None = option(None, "Folder for temporary files.  [default: the working directory]", kind="folder")
    outputs: tuple[Path, ...] = option(
        (), "Write a page (.md) or a picture (.svg, .png).", "-o", "--output", kind="file",
        metavar="OUT",
    )  # fmt: skip
    json_path: str | None = option(None, JSON, "--json", metavar="OUT")
    resume: bool = option(False, "Continue the run in OUT. Without it, a new run begins.")

    def check(self, without_picture: str = "") -> None:
        """Check before the run that its output files can be written; raise a usage error otherwise."""
        for path in self.outputs:
            if path.suffix not in SUFFIXES:
                raise click.BadParameter(f"{path.name!r} must end in .md, .svg or .png", param_hint="-o")
            if without_picture and path.suffix != ".md":
                raise click.BadParameter(f"{without_picture!r} records cannot be drawn as a picture", param_hint="-o")
        for path in (*self.outputs, *([Path(self.json_path)] if self.json_path else [])):
            if not path.absolute().parent.is_dir():
                raise click.UsageError(f"the parent of '{path}' does not exist")
        if self.resume and self.json_path in (None, "-"):
            raise click.UsageError("--resume requires --json OUT, the file with the samples")

    def write(self, page: Callable[[str | None], str], draw: Callable[[Path], None]) -> None:
        """Write the output files. A page includes the first picture written with it."""
        drawn = [path.name for path in self.outputs if path.suffix != ".md"]
        for path in self.outputs:
            if path.suffix == ".md":
                path.write_text(page(drawn[0] if drawn else None))
            else:
                draw(path)

    def log(self) -> Log:
        """Return the log to which each sample is written as soon as it is taken."""
        return Log(None if self.json_path == "-" else self.json_path, resume=self.resume)


# --- options and commands of scenarios --------------------------------------------------------------------------------


def _type_of(default: Any, facts: dict[str, Any]) -> Any:
    """Return an option's click type: the one specified for the option, or else the type of its default."""
    if facts.get("choices"):
        return click.Choice(facts["choices"])
    if facts.get("kind"):
        return KINDS[facts["kind"]]
    one, at_least = default[0] if isinstance(default, tuple) and default else default, facts.get("at_least")
    if isinstance(one, bool) or not isinstance(one, int | float):
        return None
    if isinstance(one, int):
        return click.IntRange(min=1 if at_least is None else int(at_least))
    return click.FloatRange(min=at_least or 0, min_open=at_least is None)


def _without_repetitions(_: click.Context, __: click.Parameter, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(given))


def _option_of(field: dataclasses.Field[Any], default: Any) -> Callable[[Any], Any]:
    """Return the click option or argument for a field created by `scenario.option` or `scenario.argument`."""
    facts = dict(field.metadata)
    kind = _type_of(default, facts)
    if "argument" in facts:
        many = -1 if isinstance(default, tuple) else 1
        return click.argument(field.name, metavar=facts["argument"], type=kind or click.Path(), nargs=many)
    settings = {"type": kind, "default": facts.get("shown", default), "help": facts["words"], "show_default": True}
    if isinstance(default, tuple):
        settings |= {"multiple": True, "callback": _without_repetitions, "help": f"{facts['words']} Repeatable."}
        settings |= {"show_default": "all"} if facts.get("choices") and "shown" not in facts else {}
    if default is False:
        settings |= {"is_flag": True, "show_default": False}
    flags = facts["flags"] or (f"--{field.name.replace('_', '-')}",)
    return click.option(*flags, field.name, metavar=facts.get("metavar"), **settings)


def options_of(*classes: Any, defaults: Any = None) -> dict[str, Callable[[Any], Any]]:
    """Return the options of dataclasses, keyed by field name. `defaults` can override their defaults."""
    fields = [each for one in classes for each in dataclasses.fields(one) if each.metadata]
    return {each.name: _option_of(each, getattr(defaults, each.name, each.default)) for each in fields}


def command_of(scenario: Scenario) -> click.Command:
    """Return the click command for a scenario."""

    def call(**given: Any) -> int:
        names = {each.name for each in dataclasses.fields(Output)} & given.keys()
        output = Output(**{name: given.pop(name) for name in names})
        output.check("" if scenario.draw else scenario.name)
        try:
            options = scenario.adjust(dataclasses.replace(scenario.options, **given))
        except UsageError as error:
            if error.option is not None:
                raise click.BadParameter(str(error), param_hint=error.option) from error
            raise click.UsageError(str(error)) from error
        return scenario.status(_measured(scenario, output, options))

    options = options_of(type(scenario.options), _Common, Output, defaults=scenario.options)
    command: Any = call
    for each in reversed([each for name, each in options.items() if name not in scenario.without]):
        command = each(command)
    make: Any = click.command
    made: click.Command = make(scenario.name, help=scenario.help, **scenario.settings)(command)
    return made


def _measured(scenario: Scenario, output: Output, options: Any) -> Record:
    """Run a scenario in a temporary folder with a progress bar and a log; then write, show and return the record."""
    files: Any = contextlib.nullcontext(Path.cwd()) if "folder" in scenario.without else place(output)
    try:
        with interruptible(output.json_path), files as folder, progress_bar("preparing") as watch:
            record = scenario.run(folder, options, watch, output.log())
    except (ModuleNotFoundError, Unavailable) as error:
        raise click.ClickException(str(error)) from error
    output.write(partial(scenario.page, record), partial(_draw, record))
    if output.json_path == "-":
        click.echo("".join(lines(record)), nl=False)
    else:
        show(scenario.heading(record), scenario.tables(record), scenario.sentences(record))
    return record


def _draw(record: Record, path: Path) -> None:
    draw = SCENARIOS[record.scenario].draw
    if draw is not None:
        pictures.save(path, draw, record)


def show(heading: str, tables: Iterable[Table], sentences: Iterable[str]) -> None:
    """Print a heading, tables, and sentences."""
    console = screen.out()
    screen.show_line(console, heading, "bold")
    for table in tables:
        console.print()
        show_table(console, table)
    console.print()
    for sentence in sentences:
        screen.show_line(console, sentence)


def show_table(console: Any, table: Table) -> None:
    """Print a table. The lines of each cell are joined if the table then fits the screen."""
    if table.title:
        screen.show_line(console, table.title, "bold")
    for between in (" ", "\n"):
        words = [title.replace("\n", between) for title in table.header]
        rows = [tuple(between.join(map(escape, cell.split("\n"))) for cell in row) for row in table.rows]
        grid = screen.Grid([words[0], *(f">{title}" for title in words[1:])], rows)
        if between == "\n" or grid.needed() <= console.width:
            grid.show(console)
            break


@contextlib.contextmanager
def place(output: Output) -> Iterator[Path]:
    """Create a temporary folder for a scenario's files, by default in the working directory."""
    with tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=output.folder or ".") as found:
        yield Path(found).absolute()


@contextlib.contextmanager
def interruptible(json_path: str | None) -> Iterator[None]:
    """Make SIGTERM end a run like Ctrl-C, so that loop devices are unmounted, and report how to resume the run."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if json_path not in (None, "-"):
            click.echo(f"\nonecopy: the samples so far are in {json_path}; use --resume to continue", err=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def progress_bar(first: str) -> Iterator[Watch]:
    """Show a progress bar on stderr."""
    with screen.progress_bar(screen.err()) as shown:
        task = shown.add_task(first, total=None)

        def watch(now: Progress) -> None:
            shown.update(task, completed=now.done, total=now.total or None, description=now.next)

        yield watch


# --- the group --------------------------------------------------------------------------------------------------------


@click.group("bench", cls=Group)
def command() -> None:
    """Run benchmarks in fresh processes, with a defined page cache state."""


OPTIONS = options_of(Scale, Output)


@command.command("report")
@click.argument("records", nargs=-1, required=True, type=click.Path(), metavar="RECORD...")
@OPTIONS["outputs"]
def report(records: tuple[str, ...], outputs: tuple[Path, ...]) -> None:
    """Write RECORD as a page of tables or as a picture, or several records as one page.

    Without -o, the page goes to stdout. A page includes the picture written with it. A picture shows one record.
    """
    output = Output(outputs=outputs)
    output.check()
    found = [one for path in records for one in _read(path)]
    if found[0].scenario == reading.NAME:
        stories = reading.stories_of(found)
        shown = [story for story in STORIES if stories.of(story) is not None]
        page_of, draw = partial(page.to_markdown, stories, shown), partial(page.save, stories, shown)
    else:
        if len(found) > 1 and any(path.suffix != ".md" for path in outputs):
            raise click.UsageError(f"a picture shows one record, not {len(found)}")
        output.check("" if SCENARIOS[found[0].scenario].draw else found[0].scenario)
        page_of, draw = partial(_page, found), partial(_draw, found[0])
    output.write(page_of, draw)
    if not outputs:
        click.echo(page_of(None), nl=False)


def _page(records: Sequence[Record], picture: str | None) -> str:
    return "\n".join(SCENARIOS[one.scenario].page(one, picture) for one in records)


def _read(path: str) -> list[Record]:
    try:
        found = read(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    for record in found:
        if record.scenario not in {*SCENARIOS, reading.NAME}:
            raise click.ClickException(f"{path}: this version does not support records of scenario {record.scenario!r}")
    return found


_NAMES = tuple(story.name for story in STORIES)


@command.command("stories")
@click.option(
    "--story", "names", type=click.Choice(_NAMES), multiple=True, default=_NAMES, show_default="all",
    help="Story to measure. Repeatable.",
)  # fmt: skip
@OPTIONS["rounds"]
@OPTIONS["quick"]
@OPTIONS["idle_wait"]
@OPTIONS["seed"]
@OPTIONS["folder"]
@OPTIONS["json_path"]
@OPTIONS["outputs"]
@OPTIONS["resume"]
def stories(
    *, names: tuple[str, ...], outputs: tuple[Path, ...], folder: str | None, json_path: str | None, resume: bool,
    **chosen: Any,
) -> None:  # fmt: skip
    """Reproduce published measurements: mapped models, a checkpoint in 8 workers, prefetch, images, datasets, nodes.

    A story repeats a published measurement with one scenario of `onecopy bench`; all stories take under 20 minutes. It
    shows the published figure and its source, and, from a run on this machine, the figures of the published method and
    of onecopy. All data is synthetic, at most 6 GB at a time. The report names missing packages. `pip install
    'onecopy-bench[rivals]'` installs everything except nginx and the C++ programs for the index and the slow file
    system, which must be built in a checkout. `make stories` sets everything up.
    """
    output = Output(folder, outputs, json_path, resume)
    output.check()
    selected = [story for story in STORIES if story.name in names]
    with interruptible(json_path), place(output) as files, progress_bar("stories") as watch:
        found = reading.run(selected, files, Scale(**chosen), output.log(), watch=watch, ended=_report_outcome)
    shown = [story for story in STORIES if found.of(story) is not None or story in selected]
    output.write(partial(page.to_markdown, found, shown), partial(page.save, found, shown))
    if json_path == "-":
        click.echo("".join(line for each in (found.heading, *found.records.values()) for line in lines(each)), nl=False)
    else:
        show(page.heading(found), [page.overview(found, shown)], page.sentences(found, shown))
    if not any(found.of(story) for story in selected):
        raise click.ClickException("none of the selected published measurements could be repeated")


def _report_outcome(story: Story, outcome: Any) -> None:
    took = f"measured in {screen.duration(outcome.numbers.get('seconds', 0.0))}"
    words = took if outcome.state == "ok" else f"not measured: {escape(outcome.reason)}"
    click.echo(f"{story.name}: {words}", err=True)


for each in SCENARIOS.values():
    command.add_command(command_of(each))
