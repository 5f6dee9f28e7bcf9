"""`onecopy bench models`: what ONNX Runtime sessions cost, by how the model is opened."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from onecopy_bench.cli import rounds
from onecopy_bench.scenarios import models as scenario

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULTS = scenario.Options()
POSITIVE = click.IntRange(min=1)


def _several(flag: str, name: str, default: tuple[int, ...], words: str) -> Callable[[Any], Any]:
    return click.option(
        flag,
        name,
        type=POSITIVE,
        multiple=True,
        default=default,
        show_default=True,
        callback=rounds.once,
        help=f"{words} Repeatable.",
    )


@click.command("models")
@rounds.choice("--model", "models", scenario.MODELS, "Which is made up.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="An .onnx of yours, instead of those.")
@click.option("--inputs", type=click.Path(exists=True, dir_okay=False), help="An .npz of inputs, for --file.")
@rounds.choice("--way", "ways", scenario.NAMES, "How it is opened.")
@_several("--processes", "processes", DEFAULTS.processes, "That open it at once.")
@_several("--batch", "batches", DEFAULTS.batches, "Extent of the inputs' first free axis.")
@click.option("--runs", type=POSITIVE, default=DEFAULTS.runs, show_default=True, help="Of each batch, timed.")
@click.option("--threads", type=POSITIVE, default=DEFAULTS.threads, show_default=True, help="Of a session.")
@rounds.options(DEFAULTS)
def command(
    *,
    file: str | None,
    out: rounds.Out,
    **chosen: object,
) -> None:
    """Measure ONNX Runtime sessions: time to create, memory of all processes, time of a run, by how they are opened.

    Models are made up (an embedding with matrix products of 768 MB, convolutions of 94 MB, the first one with 8-bit
    weights), or yours. Each is written as .onnx with its weights inside and outside, as .ort and with packed weights.
    Needs onnx and onnxruntime, and 6 GB of disk. Outputs are compared with those of ONNX Runtime by itself, bit by bit.
    """
    if chosen["inputs"] and not file:
        raise click.UsageError("--inputs are those of a --file")
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    try:
        rounds.measured(
            out,
            lambda place, watch, journal: scenario.run(place, options, watch, journal, file),
        )
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error
