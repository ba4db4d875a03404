"""Figures of loss against training and depth: curves, depth laws, their exponents, the tied optimum."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from validate.report.drawing import (
    COLOURS,
    MOST_EXPONENT,
    NothingToDraw,
    legend_below,
    new_canvas,
    panel_grid,
    plain_ticks,
    side_by_side,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def draw_curves(table: pd.DataFrame) -> Canvas:
    """Draw predicted against trained curves: columns depth, step, trained, predicted."""
    figure = new_canvas(6.6, 4.0)
    axes = figure.add_subplot()
    for colour, (depth, group) in zip(cycle(COLOURS), table.groupby("depth"), strict=False):
        shown = group[group["step"] > 0]
        axes.plot(shown["step"], shown["trained"], color=colour, lw=3, alpha=0.35)
        axes.plot(shown["step"], shown["predicted"], color=colour, lw=1.2, label=f"L = {depth}")
    axes.set(xscale="log", yscale="log", xlabel="SGD step", ylabel="loss")
    plain_ticks(axes, x=True)
    axes.legend(frameon=False, title="thin: predicted\nthick: trained", fontsize="small", title_fontsize="small")
    return figure


def draw_depth_laws(table: pd.DataFrame) -> Canvas:
    """Draw loss against depth, one panel a spectrum, with the fitted power law and its band.

    Columns: attention, spectrum, depth, loss, standard_error, converged; fitted, low, high (NaN without a fit). Several
    rows of one depth are several seeds.

    Raises
    ------
    NothingToDraw
        If no loss is finite.
    """
    spectra = list(dict.fromkeys(table.loc[table["loss"].notna(), "spectrum"]))
    if not spectra:
        raise NothingToDraw("depth_laws: no run ended with a finite loss")
    colours = dict(zip(dict.fromkeys(table["attention"]), cycle(COLOURS), strict=False))
    figure, panels = panel_grid(len(spectra), width=3.1, height=2.9)
    for axes, spectrum in zip(panels, spectra, strict=True):
        part = table[table["spectrum"] == spectrum]
        for attention, group in part.groupby("attention", sort=False):
            colour = colours[attention]
            runs, law = group[group["loss"].notna()], group[group["fitted"].notna()].sort_values("depth")
            _points(axes, runs, colour)
            if len(law):
                axes.plot(law["depth"], law["fitted"], color=colour, lw=1)
                axes.fill_between(law["depth"], law["low"], law["high"], color=colour, alpha=0.18, lw=0)
        axes.set(xscale="log", yscale="log", xlabel="depth L", ylabel="final loss", title=str(spectrum))
        plain_ticks(axes, depths=part.loc[part["loss"].notna(), "depth"].to_numpy())
    legend_below(figure, colours, hollow="not converged")
    return figure


def _points(axes: Axes, runs: pd.DataFrame, colour: str, *, marker: str = "o") -> None:
    """Draw losses with bars of two standard errors, hollow where they have not converged, seeds side by side."""
    depth = runs["depth"].to_numpy(dtype=float) * side_by_side(runs, ["depth"])
    for converged, face in ((True, colour), (False, "white")):
        chosen = runs["converged"].to_numpy(dtype=bool) == converged
        axes.errorbar(
            depth[chosen],
            runs["loss"].to_numpy(dtype=float)[chosen],
            2 * runs["standard_error"].to_numpy(dtype=float)[chosen],
            fmt=marker,
            color=colour,
            mfc=face,
            ms=4.5,
            lw=1,
        )


def draw_linear_optimum(table: pd.DataFrame) -> Canvas:
    """Draw linear losses on their exact optima: columns spectrum, tied, depth, loss, optimum, floor, converged.

    Raises
    ------
    NothingToDraw
        If neither a loss nor an optimum is known.
    """
    if not (table[["loss", "optimum", "floor"]].to_numpy(dtype=float) > 0).any():
        raise NothingToDraw("linear_optimum: no run ended with a finite loss, and no optimum is known")
    table = table if "tied" in table else table.assign(tied=True)
    figure = new_canvas(5.6, 4.4)
    axes = figure.add_subplot()
    colours = dict(zip(dict.fromkeys(table["spectrum"]), cycle(COLOURS), strict=False))
    for spectrum, group in table.groupby("spectrum", sort=False):
        colour, law = colours[spectrum], group.drop_duplicates("depth").sort_values("depth")
        axes.plot(law["depth"], law["optimum"], color=colour, lw=1)
        axes.plot(law["depth"], law["floor"], color=colour, lw=1, ls=":")
        for tied, marker in ((True, "o"), (False, "s")):
            _points(axes, group[group["tied"].astype(bool) == tied], colour, marker=marker)
    axes.set(xscale="log", yscale="log", xlabel="depth L", ylabel="loss")
    plain_ticks(axes, depths=table["depth"].to_numpy())
    legend_below(figure, colours, hollow="not converged", styles={"tied": "o-", "untied": "s:"})
    return figure


def draw_exponents(table: pd.DataFrame) -> Canvas:
    """Draw fitted exponents with their intervals, a row a spectrum: attention, spectrum, exponent, low, high."""
    spectra = list(dict.fromkeys(table["spectrum"]))
    attentions = list(dict.fromkeys(table["attention"]))
    colours = dict(zip(attentions, cycle(COLOURS), strict=False))
    figure = new_canvas(6.0, 1.4 + 0.5 * len(spectra))
    axes = figure.add_subplot()
    shifts = 0.3 * (np.arange(len(attentions)) - (len(attentions) - 1) / 2) / max(len(attentions) - 1, 1)
    for shift, (attention, group) in zip(shifts, table.groupby("attention", sort=False), strict=True):
        colour = colours[attention]
        rows = np.array([spectra.index(name) for name in group["spectrum"]]) + shift
        for row, low, high in zip(rows, group["low"], group["high"], strict=True):
            # A bound that is not known is open: the line runs to the end of the axis.
            ends = [
                0.0 if np.isnan(low) else low,
                2 * MOST_EXPONENT if np.isnan(high) else min(high, 2 * MOST_EXPONENT),
            ]
            axes.plot(ends, [row, row], color=colour, lw=1.4)
        exponents = group["exponent"].to_numpy(dtype=float)
        for settled, face in ((True, colour), (False, "white")):
            chosen = group["settled"].to_numpy(dtype=bool) == settled
            inside = chosen & (exponents <= MOST_EXPONENT)
            axes.plot(exponents[inside], rows[inside], "o", color=colour, mfc=face)
            beyond = rows[chosen & (exponents > MOST_EXPONENT)]
            axes.plot(np.full(beyond.size, 0.98 * MOST_EXPONENT), beyond, ">", color=colour, mfc=face)
    axes.axvline(1.0, color="k", ls="--", lw=0.8)
    axes.set(xlabel="exponent alpha of L_inf + c / L^alpha", xlim=(0, MOST_EXPONENT), ylim=(len(spectra) - 0.5, -0.5))
    axes.set_yticks(range(len(spectra)), spectra)
    legend_below(figure, colours, hollow="provisional")
    return figure
