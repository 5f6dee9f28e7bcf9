"""`onecopy bench structs`: a C++ index, opened in every way and asked questions."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onecopy.cli.quantities import SIZE
from onecopy_bench.cli import outputs, passes, rounds
from onecopy_bench.journal import Journal
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.scenarios import structs as scenario
from onecopy_bench.structs import program, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.runner import Progress
    from onecopy_bench.scenarios.structs import Measured

DEFAULTS = scenario.Options()
SHARES = {"none": None, "half": 0.5}


@click.command("structs")
@click.option(
    "--program", "binary", metavar="PATH", help="bench_structs.  [default: that of the checkout's release build]"
)
@click.option("--size", type=SIZE, default="500MB", show_default=True, help="Of the index, at least.")
@click.option("--genome", type=click.Path(exists=True, dir_okay=False), help="FASTA.  [default: made up]")
@click.option("--folder", type=click.Path(file_okay=False), help="For the files.  [default: a temporary one here]")
@click.option(
    "--questions", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="That a process answers."
)
@rounds.choice("--mode", "modes", DEFAULTS.modes, "How it is opened.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    multiple=True,
    default=DEFAULTS.threads,
    show_default=True,
    callback=lambda _, __, chosen: tuple(dict.fromkeys(chosen)),
    help="That ask. Repeatable.",
)
@click.option(
    "-n", "--processes", type=click.IntRange(min=1), default=DEFAULTS.processes, show_default=True, help="At once."
)
@click.option(
    "--fresh", type=click.IntRange(min=0), default=DEFAULTS.fresh, show_default=True, help="Short processes in a row."
)
@click.option(
    "--nested", type=click.IntRange(min=0), default=DEFAULTS.nested, show_default=True, help="Values with a span each."
)
@click.option(
    "--limit",
    type=click.Choice(list(SHARES)),
    default="none",
    show_default=True,
    help="Of memory: in a control group of half of the file (root).",
)
@click.option(
    "--iterations", "rounds", type=click.IntRange(min=1), default=DEFAULTS.rounds, show_default=True, help="Rounds."
)
@click.option(
    "--limit-s",
    type=click.IntRange(min=1),
    default=DEFAULTS.limit_s,
    show_default=True,
    help="Seconds after which a process stops asking.",
)
@passes.timeout(DEFAULTS.timeout)
@passes.idle_wait(DEFAULTS.idle_wait)
@click.option(
    "--backed",
    is_flag=True,
    help="Touch and free as much memory as a sample needs before it: see `onecopy bench open --help`.",
)
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Of the order in each round.")
@click.option("--markdown", metavar="OUT", help="Write the tables here.")
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
@click.option(
    "--resume", is_flag=True, help="Go on with a killed run, whose samples are in OUT.samples; else begin anew."
)
def command(
    *,
    binary: str | None,
    size: int,
    genome: str | None,
    folder: str | None,
    questions: int,
    limit: str,
    markdown: str | None,
    json_path: str | None,
    resume: bool,
    **chosen: object,
) -> None:
    """Measure a C++ index: opened in every way, cold and warm, then asked 1, 1,000 and all questions.

    The index is a dictionary of the k-mers of a genome (examples/structs), as large as asked for by mutation. Its rows:
    mapped, mapped and warmed, mapped and being warmed, mapped and read by single pages, copied; as a packed stream,
    mapped and loaded; read by fread into vectors; read by cereal, where the program was built with it.
    """
    passes.check_folders(json_path, markdown)
    options = dataclasses.replace(DEFAULTS, memory_share=SHARES[limit], **chosen)  # type: ignore[arg-type]
    at = program.find(binary)
    journal = outputs.journal_of(json_path, Journal, resume=resume)
    try:
        with outputs.told(journal), tempfile.TemporaryDirectory(prefix="onecopy-bench-", dir=".") as temporary:
            place = Path(folder or temporary)

            def run(watch: Callable[[Progress], None]) -> Measured:
                files = program.build(at, place, size=size, genome=genome, questions=questions)
                return scenario.run(at, files, options, watch, journal)

            measured = passes.with_bar(run, "building the index")
    except Unavailable as reason:
        raise click.ClickException(str(reason)) from reason
    if markdown is not None:
        Path(markdown).write_text(tables.to_markdown(measured))
    outputs.write(json_path, tables.to_json(measured))
    if json_path != "-":
        passes.show(tables.heading(measured), tables.tables_of(measured), tables.sentences_of(measured))
    if journal is not None:
        journal.remove()
