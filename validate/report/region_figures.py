"""Figures of where a depth law holds: exponents against context, label noise, gain, data, kernel and model."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from validate.report.drawing import (
    COLOURS,
    LEAST_EXPONENT,
    MOST_EXPONENT,
    NothingToDraw,
    columns_for,
    legend_below,
    new_canvas,
    plain_ticks,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.image import AxesImage

# What tells one place of a map from another, depth apart.
PLACE = ["map", "variant", "model", "attention", "spectrum", "dim", "context", "label_noise"]
# The heat maps, and whether what varies on them runs across or down.
MAPS = {"noise": "across", "gain": "across", "data": "down", "kernel": "down", "architecture": "down"}
TITLES = {
    "noise": "label noise",
    "gain": "softmax with a fixed gain b",
    "data": "law of the covariates",
    "kernel": "kernel",
    "architecture": "architecture",
}
# A larger standard error tells no exponent from another.
LARGEST_ERROR = 0.25
# Exponents this far from 1 take the deepest colours.
COLOUR_REACH = 1.5


def deepest_triples(exponents: pd.DataFrame) -> pd.DataFrame:
    """Return one row a place of a map: the deepest three depths whose runs converged, or else the deepest three.

    Chosen by convergence alone, whatever the exponent.
    """
    ordered = exponents.sort_values(["converged", "depth"], kind="stable")
    return ordered.groupby(PLACE, sort=False, dropna=False).tail(1).sort_index()


def agreement_with_one(exponents: pd.DataFrame) -> np.ndarray:
    """Return ``yes`` where an exponent is within two standard errors of 1, ``no`` where it is not, else ``?``.

    No exponent, or one that agrees for want of precision (`LARGEST_ERROR`), is no answer.
    """
    off, error = (exponents["exponent"] - 1).abs().to_numpy(), exponents["standard_error"].to_numpy(dtype=float)
    return np.where(off > 2 * error, "no", np.where((off <= 2 * error) & (error <= LARGEST_ERROR), "yes", "?"))


def draw_crossover(exponents: pd.DataFrame, losses: pd.DataFrame) -> Canvas:
    """Draw exponent, whether it is 1, and the loss at the largest depth against P / D: three panels a spectrum.

    Columns of ``exponents``: map, variant, model, attention, spectrum, dim, context, label_noise, depth, exponent,
    standard_error, converged; ``losses`` has loss in place of exponent.
    """
    exponents, losses = context_map(exponents), context_map(losses)
    spectra = list(dict.fromkeys(losses["spectrum"]))
    colours = dict(zip(dict.fromkeys(losses["attention"]), cycle(COLOURS), strict=False))
    across = columns_for(len(spectra))
    blocks = -(-len(spectra) // across)
    figure = new_canvas(0.6 + 2.9 * across, 0.4 + 4.9 * blocks)
    grid = figure.subplots(3 * blocks, across, squeeze=False, height_ratios=[3, 0.3 * len(colours), 2] * blocks)
    for hidden in range(len(spectra), blocks * across):
        for row in range(3):
            grid[3 * (hidden // across) + row, hidden % across].set_axis_off()
    chosen = deepest_triples(exponents)
    largest = losses[losses["depth"] == losses.groupby(PLACE, dropna=False)["depth"].transform("max")]
    for place, spectrum in enumerate(spectra):
        above, between, below = (grid[3 * (place // across) + row, place % across] for row in range(3))
        for turn, (attention, colour) in enumerate(colours.items()):
            # Bars of several attentions at one context stand side by side.
            aside = 1.04 ** (turn - (len(colours) - 1) / 2)
            for axes, table, value in ((above, chosen, "exponent"), (below, largest, "loss")):
                part = table[(table["spectrum"] == spectrum) & (table["attention"] == attention)]
                _line(axes, part.sort_values("context"), value, colour, aside)
        _answers(between, chosen[chosen["spectrum"] == spectrum], colours)
        above.axhline(1.0, color="k", ls="--", lw=0.8)
        ratios = np.unique(losses["context"] / losses["dim"])
        above.set(title=str(spectrum), xscale="log", ylim=(LEAST_EXPONENT, MOST_EXPONENT))
        below.set(xscale="log", yscale="log", xlabel="P / D")
        plain_ticks(above, depths=ratios, y=False)
        between.set(xscale="log")
        plain_ticks(between, depths=ratios, y=False)
        plain_ticks(below, depths=ratios)
        # From the contexts, not from the points: there may be no exponent to draw, or one context alone.
        room = max(ratios[-1] / ratios[0], 2.0) ** 0.09
        for axes in (above, between):
            axes.tick_params(axis="x", labelbottom=False)
        for axes in (above, between, below):
            axes.set_xlim(ratios[0] / room, ratios[-1] * room)
        if place % across == 0:
            above.set_ylabel("exponent")
            between.set_ylabel("is it 1?")
            below.set_ylabel("loss, deepest")
    legend_below(figure, colours, hollow="not converged")
    return figure


def context_map(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the map over finite contexts.

    Raises
    ------
    NothingToDraw
        If there are none.
    """
    chosen = table[(table["map"] == "context") & table["context"].notna()]
    if chosen.empty:
        raise NothingToDraw("regions: no run belongs to the map over contexts")
    return chosen


def _answers(axes: Axes, chosen: pd.DataFrame, colours: dict[str, str]) -> None:
    """Write a row an attention: yes, no or ? at each P / D, in brackets where the runs have not converged."""
    for (_, row), answer in zip(chosen.iterrows(), agreement_with_one(chosen), strict=True):
        text, height = answer if row["converged"] else f"({answer})", list(colours).index(row["attention"])
        weight = "bold" if answer == "yes" else "normal"
        axes.text(
            *(row["context"] / row["dim"], height, text),
            ha="center",
            va="center",
            fontsize=8,
            weight=weight,
            color=colours[row["attention"]],
        )
    axes.set_yticks(range(len(colours)), list(colours), fontsize="small")
    axes.set_ylim(len(colours) - 0.5, -0.5)
    axes.tick_params(axis="both", length=0)


def _line(axes: Axes, part: pd.DataFrame, value: str, colour: str, aside: float) -> None:
    """Draw values against P / D with bars of two standard errors; hollow: not converged; arrows: beyond the axis."""
    ratio = (part["context"] / part["dim"]).to_numpy(dtype=float) * aside
    numbers, errors = part[value].to_numpy(dtype=float), part["standard_error"].to_numpy(dtype=float)
    axes.plot(ratio, numbers, color=colour, lw=1, alpha=0.7)
    for converged in (True, False):
        chosen = (part["converged"].to_numpy(dtype=bool) == converged) & np.isfinite(numbers)
        face = colour if converged else "white"
        axes.errorbar(ratio[chosen], numbers[chosen], 2 * errors[chosen], fmt="o", color=colour, mfc=face, ms=4.5, lw=1)
        if value == "exponent":
            for outside, marker, end in (
                (chosen & (numbers > MOST_EXPONENT), "^", MOST_EXPONENT - 0.12),
                (chosen & (numbers < LEAST_EXPONENT), "v", LEAST_EXPONENT + 0.12),
            ):
                axes.plot(ratio[outside], np.full(outside.sum(), end), marker, color=colour, mfc=face, ms=5)


def draw_regions(exponents: pd.DataFrame) -> Canvas:
    """Draw the maps over label noise, gain, data, kernel and architecture, a cell a setting, coloured by its exponent.

    Columns: as `draw_crossover` has them.
    """
    maps = [name for name in MAPS if (exponents["map"] == name).any()]
    if not maps:
        raise NothingToDraw("region_exponents: no map but that over contexts")
    chosen = deepest_triples(exponents)
    grids = [_cells(chosen[chosen["map"] == name], name) for name in maps]
    heights = [len(rows) for rows, _, _ in grids]
    widest = max(len(columns) for _, columns, _ in grids)
    figure = new_canvas(2.3 + 1.05 * max(widest, 4), 1.1 + 0.29 * sum(heights) + 0.75 * len(maps))
    panels = figure.subplots(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
    image = None
    for axes, name, (rows, columns, cells) in zip(panels, maps, grids, strict=True):
        image = _heat(axes, rows, columns, cells)
        axes.set_title(f"{TITLES[name]}: exponent ± standard error", fontsize="medium", loc="left")
    assert image is not None
    bar = figure.colorbar(image, ax=panels.tolist(), location="bottom", shrink=0.6, aspect=40, pad=0.02, extend="both")
    bar.set_label("exponent (white: 1); hatched: not converged; grey: none")
    bar.ax.xaxis.label.set_fontsize("small")
    return figure


def _cells(part: pd.DataFrame, name: str) -> tuple[list[str], list[str], dict[tuple[int, int], pd.Series]]:
    """Return the names of rows and columns, and each cell's row of the table."""
    across, down = ("variant", "spectrum") if MAPS[name] == "across" else ("spectrum", "variant")
    # Fields that part places of one spectrum and variant are named with the row.
    groups = part.groupby(["variant", "spectrum"], dropna=False)
    varying = [field for field in PLACE[2:] if field != "spectrum" and groups[field].nunique(dropna=False).max() > 1]
    names = [
        ", ".join([*(_field(field, row[field]) for field in varying), str(row[down])]) for _, row in part.iterrows()
    ]
    labels = [str(value) for value in part[across]]
    rows, columns = list(dict.fromkeys(names)), list(dict.fromkeys(labels))
    places = zip(names, labels, (row for _, row in part.iterrows()), strict=True)
    return rows, columns, {(rows.index(row), columns.index(column)): cell for row, column, cell in places}


def _field(field: str, value: object) -> str:
    if field in ("model", "attention"):
        return str(value)
    symbol = {"dim": "D", "context": "P", "label_noise": "σ²"}[field]
    return f"{symbol} = {'inf' if value != value or value is None else format(value, 'g')}"


def _heat(axes: Axes, rows: list[str], columns: list[str], cells: dict[tuple[int, int], pd.Series]) -> AxesImage:
    from matplotlib.patches import Rectangle

    values = np.full((len(rows), len(columns)), np.nan)
    for place, cell in cells.items():
        values[place] = cell["exponent"]
    image = axes.imshow(
        np.ma.masked_invalid(values), cmap="RdBu_r", vmin=1 - COLOUR_REACH, vmax=1 + COLOUR_REACH, aspect="auto"
    )
    axes.set_facecolor("white")
    for (row, column), cell in cells.items():
        corner = (column - 0.5, row - 0.5)
        if np.isnan(cell["exponent"]):
            axes.add_patch(Rectangle(corner, 1, 1, lw=0, fc="0.88"))
            axes.text(column, row, "none", ha="center", va="center", fontsize=8, color="0.35")
            continue
        if not cell["converged"]:
            axes.add_patch(Rectangle(corner, 1, 1, lw=0, fill=False, hatch="////", ec="0.55"))
        text = f"{cell['exponent']:.2f} ± {cell['standard_error']:.2f}"
        dark = abs(cell["exponent"] - 1) > 0.75 * COLOUR_REACH
        axes.text(
            *(column, row, text),
            ha="center",
            va="center",
            fontsize=7.5,
            color="white" if dark else "black",
            bbox=None if cell["converged"] else {"fc": image.cmap(image.norm(cell["exponent"])), "lw": 0, "pad": 1},
        )
    axes.set_xticks(range(len(columns)), columns, fontsize="small")
    axes.set_yticks(range(len(rows)), rows, fontsize="small")
    axes.tick_params(length=0)
    for edge in np.arange(0.5, len(columns) - 1):
        axes.axvline(edge, color="white", lw=1.5)
    for edge in np.arange(0.5, len(rows) - 1):
        axes.axhline(edge, color="white", lw=1.5)
    return image
