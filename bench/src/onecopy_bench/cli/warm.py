"""`onecopy bench warm FILE`: each mechanism of bringing a file into memory, alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onecopy.cli.words import parse_size
from onecopy_bench.cli import outputs, passes
from onecopy_bench.passes import ablation
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.passes.series import Options, to_json
from onecopy_bench.scenarios import warm as scenario

if TYPE_CHECKING:
    from onecopy_bench.passes.series import Series

HERE = "device"


def as_read_aheads(_: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[int | None, ...]:
    """Return each read-ahead in bytes, None for the file's own device; a wrong one is a wrong command line."""
    found: list[int | None] = []
    for text in texts:
        try:
            nbytes = (
                None if text == HERE else parse_size(text.removesuffix("K") + "KiB" if text.endswith("K") else text)
            )
        except ValueError as error:
            raise click.BadParameter(f"{error}, nor {HERE!r}", param=parameter) from error
        if nbytes is not None and (nbytes <= 0 or nbytes % 1024):
            raise click.BadParameter(f"{text!r} is not a multiple of 1 KiB", param=parameter)
        found.append(nbytes)
    return tuple(dict.fromkeys(found))


@click.command("warm")
@click.argument("file", type=click.Path())
@click.option(
    "--read-ahead",
    "read_aheads",
    multiple=True,
    default=(HERE,),
    show_default=True,
    callback=as_read_aheads,
    metavar="SIZE",
    help="'device': where FILE is. A size such as 128K: a copy on a loop device beside it (root). Repeatable.",
)
@passes.orders(("file",))
@passes.options(Options())
@click.option("--markdown", metavar="OUT", help="Write the tables here.")
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
def command(
    *,
    file: str,
    read_aheads: tuple[int | None, ...],
    markdown: str | None,
    json_path: str | None,
    **chosen: object,
) -> None:
    """Measure each mechanism that brings FILE into memory, from a cold cache; then touch every page, twice."""
    passes.check_folders(json_path, markdown)
    options = dataclasses.replace(Options(), **chosen)  # type: ignore[arg-type]
    try:
        series = passes.with_bar(lambda watch: scenario.run(file, options, read_aheads, watch))
    except Unavailable as reason:
        raise click.ClickException(f"no disk with another read-ahead: {reason}") from reason
    if markdown is not None:
        Path(markdown).write_text(to_markdown(series))
    tables = [dataclasses.asdict(table) for table in ablation.tables_of(series)]
    text = to_json(series, tables=tables, sentences=ablation.sentences_of(series))
    outputs.write(json_path, text)
    if json_path != "-":
        passes.show(heading(series), ablation.tables_of(series), ablation.sentences_of(series))


def heading(series: Series) -> str:
    """Return what was measured, in one line."""
    rounds = 1 + max(sample.round for sample in series.samples)
    return f"warm {series.file}: {series.size / 1e6:.1f} MB, cold, {rounds} round{'' if rounds == 1 else 's'}"


def to_markdown(series: Series) -> str:
    """Return heading, tables and sentences as Markdown."""
    tables = [table.markdown() for table in ablation.tables_of(series)]
    return "\n\n".join([heading(series), *tables, *ablation.sentences_of(series)]) + "\n"
