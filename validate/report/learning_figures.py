"""Figures of learning resolved by covariance direction: error maps and half-learning times."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from validate.report.drawing import COLOURS, NothingToDraw, few_whole, legend_below, new_canvas, plain_ticks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas


def draw_mode_maps(table: pd.DataFrame) -> Canvas:
    """Draw each mode's error, as a share of its first, over training: attention, spectrum, step, mode, share.

    A row a spectrum, a column an attention.
    """
    spectra, attentions = list(dict.fromkeys(table["spectrum"])), list(dict.fromkeys(table["attention"]))
    figure = new_canvas(3.1 * len(attentions) + 0.8, 1.9 * len(spectra) + 0.5)
    grid = figure.subplots(len(spectra), len(attentions), squeeze=False, sharex="col")
    image = None
    for row, spectrum in zip(grid, spectra, strict=True):
        for axes, attention in zip(row, attentions, strict=True):
            group = table[(table["spectrum"] == spectrum) & (table["attention"] == attention)]
            axes.set_title(f"{attention}, {spectrum}", fontsize="small")
            if group.empty:
                axes.set_axis_off()
                continue
            shares = group.pivot_table(index="mode", columns="step", values="share")
            steps = np.log10(1.0 + shares.columns.to_numpy(dtype=float))
            edges = np.concatenate([steps, [2 * steps[-1] - steps[-2]]]) if steps.size > 1 else np.array([0.0, 1.0])
            bounds = np.arange(0.5, len(shares) + 1)
            image = axes.pcolormesh(edges, bounds, shares.to_numpy(dtype=float), vmin=0, vmax=1, cmap="viridis")
            axes.set_yticks(few_whole(len(shares)))
            axes.invert_yaxis()
        row[0].set_ylabel("mode k")
    for axes in grid[-1]:
        axes.set_xlabel("log10(1 + step)")
    if image is not None:
        figure.colorbar(image, ax=grid.ravel().tolist(), label="error / first error", shrink=min(1.0, 2 / len(spectra)))
    return figure


def draw_half_times(table: pd.DataFrame) -> Canvas:
    """Draw half-learning times against eigenvalues: attention, spectrum, depth, eigenvalue, half_time, predicted."""
    structured = [name for name, group in table.groupby("spectrum", sort=False) if group["eigenvalue"].nunique() > 1]
    attentions = list(dict.fromkeys(table["attention"]))
    if not structured:
        raise NothingToDraw("half_times: no spectrum has modes that differ")
    columns = [name for name in ("half_time", "predicted") if name in table]
    colours = dict(zip(sorted(table["depth"].unique()), cycle(COLOURS), strict=False))
    figure = new_canvas(3.1 * len(attentions), 2.3 * len(structured) + 0.4)
    grid = figure.subplots(len(structured), len(attentions), sharex="row", sharey="row", squeeze=False)
    for row, spectrum in zip(grid, structured, strict=True):
        for axes, attention in zip(row, attentions, strict=True):
            chosen = (table["attention"] == attention) & (table["spectrum"] == spectrum) & table["half_time"].notna()
            modes = table[chosen].groupby(["depth", "eigenvalue"], as_index=False)[columns].median()
            for depth, group in modes.groupby("depth"):
                axes.plot(group["eigenvalue"], group["half_time"], "o-", color=colours[depth], ms=3.5, lw=1.2)
                if "predicted" in columns:
                    axes.plot(group["eigenvalue"], group["predicted"], "--", color=colours[depth], lw=0.9)
            axes.set(xscale="log", yscale="log", title=f"{attention}, {spectrum!s}")
            axes.title.set_fontsize("small")
        for axes in row:
            plain_ticks(axes, x=True)
        row[0].set_ylabel("half-time (steps)")
    for axes in grid[-1]:
        axes.set_xlabel("eigenvalue")
    legend_below(figure, {f"L = {depth}": colour for depth, colour in colours.items()})
    return figure
