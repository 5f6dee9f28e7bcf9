"""Who wins where, as a picture: a grid of cells for each place and order, coloured by the winner.

Needs matplotlib (``pip install 'onecopy-bench[plots]'``), which is imported by `draw` alone. The colours are those of
Okabe and Ito, which colour-blind people tell apart; every cell says its winner in words too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onecopy_bench.passes.series import times_transfer
from onecopy_bench.passes.tables import number
from onecopy_bench.passes.winners import COPY, passes_of, verdicts_of

if TYPE_CHECKING:
    import os

    from onecopy_bench.passes.series import Series
    from onecopy_bench.passes.winners import Verdict

COLOURS = {
    "copy": "#E69F00",
    "map": "#56B4E9",
    "advise": "#0072B2",
    "warm": "#009E73",
    "huge": "#009E73",
    "small": "#F0E442",
    "part": "#CC79A7",
}
NOBODY = "#DDDDDD"


def draw(series: Series, path: str | os.PathLike[str]) -> None:
    """Write the picture; the suffix decides on the format (.svg, .png, .pdf).

    Raises
    ------
    ModuleNotFoundError
        Without matplotlib.
    ValueError
        If matplotlib does not know the suffix.
    """
    figures = importlib.import_module("matplotlib.figure")
    places, orders = series.places, series.options.orders
    size = (1.2 + 4.6 * len(orders), 1.3 + 0.62 * len(series.options.shares) * len(places) + 0.8 * (len(places) - 1))
    figure = figures.Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(places), len(orders), squeeze=False)
    verdicts = verdicts_of(series)
    for place, line in zip(places, axes, strict=True):
        for order, axis in zip(orders, line, strict=True):
            mine = [v for v in verdicts if (v.place, v.order) == (place.name, order)]
            _grid(axis, mine, series)
            axis.set_title(f"{place.name}: {_order(order)}", fontsize=10, loc="left")
    names = ", ".join(entry.name for entry in series.entries if entry.role == "row")
    figure.suptitle(f"The fastest of {names}; {series.size / 1e6:.0f} MB, cold", fontsize=11, x=0.01, ha="left")
    if not times_transfer(series):
        figure.supxlabel(
            "Fresh memory is slow here: times of copies hold for this machine alone.", fontsize=8, x=0.01, ha="left"
        )
    with importlib.import_module("matplotlib").rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(path, dpi=150)


def _order(order: str) -> str:
    return "in the order of the file" if order == "file" else "in random order"


def _grid(axis: Any, verdicts: list[Verdict], series: Series) -> None:
    shares, passes = series.options.shares, passes_of(series)
    for verdict in verdicts:
        x, y = passes.index(verdict.passes), shares.index(verdict.share)
        colour = COLOURS.get(verdict.winners[0], NOBODY) if verdict.winners else NOBODY
        patch = {"facecolor": colour, "alpha": 0.55, "edgecolor": "white", "linewidth": 2}
        axis.add_patch(importlib.import_module("matplotlib.patches").Rectangle((x, y), 1, 1, **patch))
        axis.text(x + 0.5, y + 0.5, _text(verdict), ha="center", va="center", fontsize=7.5, linespacing=1.25)
    axis.set(xlim=(0, len(passes)), ylim=(len(shares), 0))
    axis.set_xticks([i + 0.5 for i in range(len(passes))], [f"{p} pass{'es' if p > 1 else ''}" for p in passes])
    axis.set_yticks([i + 0.5 for i in range(len(shares))], [f"{100 * share:g} %" for share in shares])
    axis.tick_params(length=0, labelsize=8)
    axis.spines[:].set_visible(False)


def _text(verdict: Verdict) -> str:
    if not verdict.winners:
        return "none got\nso far"
    names = list(verdict.winners[:2]) + (["..."] if len(verdict.winners) > 2 else [])
    line = f"{number(verdict.times[verdict.winners[0]].median)} ms"
    if verdict.copy_ratio is not None and COPY not in verdict.winners:
        line += f", copy x{verdict.copy_ratio:.2g}"
    elif COPY in verdict.lost:
        line += f", copy {verdict.lost[COPY]}"
    return " = ".join(names) + "\n" + line
