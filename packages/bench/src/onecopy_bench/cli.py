"""`onecopy bench SCENARIO`: measure in fresh processes, and show what that says; `report` shows a record again.

Every command has the same options beside those of its scenario, a progress bar, and a record that can be resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from onecopy.base.text import escape, parse_size
from onecopy.cli import screen
from onecopy.cli.groups import Group
from onecopy.cli.options import Quantity
from onecopy_bench import images, models, nodes, pictures, run, start, structs
from onecopy_bench.files import opening, passes
from onecopy_bench.places import Unavailable
from onecopy_bench.record import Log, Record, lines, read
from onecopy_bench.rows import records, share
from onecopy_bench.runs import Progress, Settings, Watch
from onecopy_bench.scenario import Scenario, UsageError, option
from onecopy_bench.stories import page, reading
from onecopy_bench.stories.story import STORIES, Scale, Story
from onecopy_bench.tables import Table

PICTURES, PAGES = (".svg", ".png"), (".md",)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        opening.SCENARIO, opening.KEYS_SCENARIO, run.SCENARIO, passes.WARM_SCENARIO, passes.CROSSOVER_SCENARIO,
        structs.SCENARIO, share.SCENARIO, records.SCENARIO, images.SCENARIO, models.SCENARIO, start.SCENARIO,
        nodes.SCENARIO,
    )
}  # fmt: skip

KINDS: dict[str, Any] = {
    "size": Quantity("size", parse_size, lambda nbytes: nbytes >= 1, "at least one byte"),
    "text": str,
    "integer": int,
    "percent": click.FloatRange(min=0, min_open=True, max=100),
    "existing": click.Path(exists=True, dir_okay=False),
    "folder": click.Path(exists=True, file_okay=False),
    "words": click.UNPROCESSED,
}
FILE = click.Path(dir_okay=False, path_type=Path)
BACKED = (
    "Touch and free as much memory as a sample needs before it: where a virtual machine's host takes free memory back,"
    " new memory is slower than disks, and times cannot be compared with those of other machines."
)
JSON = "Write the record here, a line per sample as it comes; '-': to stdout at the end, without tables."


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
    """The folder of a run, its output files, and whether an interrupted run is resumed."""

    folder: str | None = option(None, "Folder for the files.  [default: here]", kind="folder")
    plot: str | None = option(None, "Draw a picture, as .svg or .png.", metavar="OUT")
    markdown: str | None = option(None, "Write the tables here.", metavar="OUT")
    json_path: str | None = option(None, JSON, "--json", metavar="OUT")
    resume: bool = option(False, "Continue the run that OUT holds; else begin anew.")

    def check(self, *more: Path) -> None:
        """Raise a usage error where a file could not be written at the end of a long run."""
        for path in filter(None, (self.json_path, self.markdown, self.plot, *map(str, more))):
            if path != "-" and not Path(path).absolute().parent.is_dir():
                raise click.UsageError(f"no folder for {path!r}")
        if self.resume and self.json_path in (None, "-"):
            raise click.UsageError("--resume needs --json OUT: the samples are there")

    def log(self) -> Log:
        """Return the log to which samples are written as they are taken."""
        return Log(None if self.json_path == "-" else self.json_path, resume=self.resume)


# --- options and commands of scenarios --------------------------------------------------------------------------------


def _type_of(default: Any, kind: str | None, at_least: float | None, choices: Sequence[str] | None) -> Any:
    if choices:
        return click.Choice(choices)
    if kind is not None:
        return KINDS[kind]
    of_one = default[0] if isinstance(default, tuple) and default else default
    if isinstance(of_one, bool) or not isinstance(of_one, int | float):
        return None
    if isinstance(of_one, int):
        return click.IntRange(min=1 if at_least is None else int(at_least))
    return click.FloatRange(min=at_least or 0, min_open=at_least is None)


def _option_of(field: dataclasses.Field[Any], default: Any) -> Callable[[Any], Any]:
    """Return the option of a field; its type is that of the default, unless the metadata name another."""
    facts = dict(field.metadata)
    kind = _type_of(default, facts.get("kind"), facts.get("at_least"), facts.get("choices"))
    if "argument" in facts:
        many = -1 if isinstance(default, tuple) else 1
        return click.argument(field.name, metavar=facts["argument"], type=kind or click.Path(), nargs=many)
    settings = {"type": kind, "default": facts.get("shown", default), "help": facts["words"], "show_default": True}
    if isinstance(default, tuple):
        settings |= {
            "multiple": True,
            "callback": _parsed(facts.get("parse", lambda given: tuple(dict.fromkeys(given)))),
        }
        settings["help"] += " Repeatable."
        settings |= {"show_default": "all"} if facts.get("choices") and "shown" not in facts else {}
    flags = facts["flags"] or (f"--{field.name.replace('_', '-')}",)
    if default is False:
        settings |= {"is_flag": True, "show_default": False}
    return click.option(*flags, field.name, metavar=facts.get("metavar"), **settings)


def _parsed(parse: Callable[[Any], Any]) -> Callable[..., Any]:
    def callback(_: click.Context, parameter: click.Parameter, given: Any) -> Any:
        try:
            return parse(given)
        except ValueError as error:
            raise click.BadParameter(str(error), param=parameter) from error

    return callback


def common_options(defaults: Settings) -> dict[str, Callable[[Any], Any]]:
    """Return the options that scenarios have in common, by the names of their values."""
    fields = (*dataclasses.fields(_Common), *dataclasses.fields(Output))
    return {each.name: _option_of(each, getattr(defaults, each.name, each.default)) for each in fields}


def command_of(scenario: Scenario) -> click.Command:
    """Return the command of a scenario."""

    def call(**given: Any) -> int:
        output = Output(
            **{each.name: given.pop(each.name) for each in dataclasses.fields(Output) if each.name in given}
        )
        output.check()
        try:
            options = scenario.adjust(dataclasses.replace(scenario.options, **given))
        except UsageError as error:
            if error.option is not None:
                raise click.BadParameter(str(error), param_hint=error.option) from error
            raise click.UsageError(str(error)) from error
        return scenario.status(_measured(scenario, output, options))

    fields = [each for each in dataclasses.fields(scenario.options) if each.metadata]
    own = {each.name: _option_of(each, getattr(scenario.options, each.name)) for each in fields}
    without = (*scenario.without, *(() if scenario.draw else ("plot",)))
    command: Any = call
    for name, each in reversed((own | common_options(scenario.options)).items()):
        command = command if name in without else each(command)
    make: Any = click.command
    made: click.Command = make(scenario.name, help=scenario.help, **scenario.settings)(command)
    return made


def _measured(scenario: Scenario, output: Output, options: Any) -> Record:
    """Run in a temporary folder with a progress bar and a log; then write, show and return the record."""
    files: Any = contextlib.nullcontext(Path.cwd()) if "folder" in scenario.without else place(output)
    try:
        with interruptible(output.json_path), files as folder, progress_bar("preparing") as watch:
            record = scenario.run(folder, options, watch, output.log())
    except (ModuleNotFoundError, Unavailable) as error:
        raise click.ClickException(str(error)) from error
    if output.plot is not None and scenario.draw is not None:
        pictures.save(output.plot, scenario.draw, record)
    if output.markdown is not None:
        picture = None if output.plot is None else Path(output.plot).name
        Path(output.markdown).write_text(scenario.page(record, picture))
    if output.json_path == "-":
        click.echo("".join(lines(record)), nl=False)
    else:
        show(scenario, record)
    return record


def show(scenario: Scenario, record: Record) -> None:
    """Print a record."""
    console = screen.out()
    screen.show_line(console, scenario.heading(record), "bold")
    for table in scenario.tables(record):
        console.print()
        show_table(console, table)
    console.print()
    for sentence in scenario.sentences(record):
        screen.show_line(console, sentence)


def show_table(console: Any, table: Table) -> None:
    """Print a table; where it is too wide, the lines of a cell stand below each other."""
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
    """Make a temporary folder for the files of a scenario, in the working folder by default."""
    with tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=output.folder or ".") as found:
        yield Path(found).absolute()


@contextlib.contextmanager
def interruptible(json_path: str | None) -> Iterator[None]:
    """Let SIGTERM end a run like Ctrl-C, so that no disk or group is left, and report how to resume it."""
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
    """Measure in fresh processes, with a declared state of the page cache."""


@command.command("report")
@click.argument("records", nargs=-1, required=True, type=click.Path(), metavar="RECORD...")
@click.option(
    "-o", "--output", "outputs", multiple=True, type=FILE, metavar="OUT",
    help="A .md, .svg or .png file; more than once for several. Without it the page goes to stdout.",
)  # fmt: skip
def report(records: tuple[str, ...], outputs: tuple[Path, ...]) -> None:
    """Write RECORD as a page of tables and as a picture; several records as one page.

    A page that is written together with a picture shows it. A picture is of one record.
    """
    _check_suffixes(outputs, (*PAGES, *PICTURES))
    found = [one for path in records for one in _read(path)]
    drawn = [output for output in outputs if output.suffix in PICTURES]
    draw = SCENARIOS[found[0].scenario].draw
    if drawn and len(found) > 1:
        raise click.UsageError(f"a picture is of one record, not of {len(found)}")
    if drawn and draw is None:
        raise click.BadParameter(f"there is no picture of {found[0].scenario!r}", param_hint="-o")
    text = "\n".join(SCENARIOS[one.scenario].page(one, drawn[0].name if drawn else None) for one in found)
    for path in outputs:
        if path.suffix in PAGES:
            path.write_text(text)
        elif draw is not None:
            pictures.save(path, draw, found[0])
    if not outputs:
        click.echo(text, nl=False)


def _check_suffixes(outputs: Sequence[Path], suffixes: Sequence[str]) -> None:
    for output in outputs:
        if output.suffix not in suffixes:
            *others, last = suffixes
            words = f"{output.name!r} must end in {', '.join(others)} or {last}"
            raise click.BadParameter(words, param_hint="-o")


def _read(path: str) -> list[Record]:
    try:
        found = read(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    for record in found:
        if record.scenario == reading.NAME:
            raise click.ClickException(f"{path}: a record of stories: see `onecopy bench stories --from`")
        if record.scenario not in SCENARIOS:
            raise click.ClickException(f"{path}: a record of {record.scenario!r}, which this version does not have")
    return found


_NAMES = tuple(story.name for story in STORIES)
_STORIES = common_options(Settings(idle_wait=Scale().idle_wait))


@command.command("stories")
@click.option(
    "--story", "names", type=click.Choice(_NAMES), multiple=True, default=_NAMES, show_default="all",
    help="Which. Repeatable.",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), help="Number of rounds of each story.  [default: 3; share: 1]")
@click.option("--quick", is_flag=True, help="Small data, one round: to see that it works, not for figures.")
@_STORIES["idle_wait"]
@_STORIES["seed"]
@_STORIES["folder"]
@_STORIES["json_path"]
@click.option(
    "-o", "--output", "written", multiple=True, type=FILE, metavar="OUT",
    help="The page as .md or .html, or its picture as .svg; more than once for several.",
)  # fmt: skip
@_STORIES["resume"]
@click.option("--from", "source", type=KINDS["existing"], metavar="RECORD", help="Measure nothing: show a record.")
def stories(
    *, names: tuple[str, ...], written: tuple[Path, ...], source: str | None,
    folder: str | None, json_path: str | None, resume: bool, **chosen: Any,
) -> None:  # fmt: skip
    """Measure published figures again: mapped models, a checkpoint in 8 workers, prefetch, images, datasets, nodes.

    Each is a scenario of `onecopy bench` with options that fit its share of 20 minutes: what was published, with its
    source, the same done here, and onecopy, in one run. All data is made up, 6 GB at most at a time. What is not
    installed is a row or a story that says so: pip install 'onecopy-bench[rivals]' brings all but the C++ programs of
    the index and of the slow file system, which a checkout builds, and nginx. `make stories` sets all up.
    """
    output = Output(folder, json_path=json_path, resume=resume)
    output.check(*written)
    _check_suffixes(written, (".md", ".html", ".svg"))
    selected = [story for story in STORIES if story.name in names]
    if source is not None and json_path is not None:
        raise click.UsageError("--from measures nothing: there is no --json and no --resume")
    if source is None:
        with interruptible(json_path), place(output) as files, progress_bar("stories") as watch:
            found = reading.run(selected, files, Scale(**chosen), output.log(), watch=watch, ended=_report_outcome)
    else:
        found = reading.read(source)
    if json_path == "-":
        click.echo("".join(line for each in (found.heading, *found.records.values()) for line in lines(each)), nl=False)
    shown = [story for story in STORIES if found.of(story) is not None or story in selected]
    page.write(found, shown, written)
    if json_path != "-":
        _show_stories(found, shown)
    if source is None and not any(found.of(story) for story in selected):
        raise click.ClickException("no story could be measured")


def _report_outcome(story: Story, outcome: Any) -> None:
    took = f"measured in {screen.duration(outcome.numbers.get('seconds', 0.0))}"
    words = took if outcome.state == "ok" else f"not measured: {escape(outcome.reason)}"
    click.echo(f"{story.name}: {words}", err=True)


def _show_stories(found: reading.Stories, shown: Sequence[Story]) -> None:
    console = screen.out()
    if found.heading.options.get("quick"):
        screen.show_line(console, page.QUICK, "bold")
    show_table(console, page.overview(found, shown))
    for story in shown:
        samples = found.of(story)
        said = [f"not measured: {found.missing(story)}"]
        if samples is not None:
            said = [*page.headlines(story, samples), *story.scenario.limits(samples)]
        for sentence in said:
            screen.show_line(console, f"{story.name}: {sentence}")


for each in SCENARIOS.values():
    command.add_command(command_of(each))
