"""Figures of single layers: their errors, what those predict, and where their attention goes."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from validate.report.drawing import COLOURS, few_whole, legend_below, new_canvas, panel_grid, plain_ticks, signed_log

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

# What the split draws: columns and their marker and line.
SPLIT_STYLES = {"shared": "o-", "specific": "s--", "loss": "x:"}


def draw_layer_errors(table: pd.DataFrame) -> Canvas:
    """Draw observed losses against those predicted from another depth's layer errors.

    Columns: spectrum, predicted, observed. Log axes; where a prediction is
    negative, as no loss can be, the axis of predictions is log on both sides of zero.
    """
    figure = new_canvas(5.0, 4.8)
    axes = figure.add_subplot()
    colours = dict(zip(dict.fromkeys(table["spectrum"]), cycle(COLOURS), strict=False))
    for spectrum, group in table.groupby("spectrum", sort=False):
        axes.plot(group["predicted"], group["observed"], "o", color=colours[spectrum], ms=5, alpha=0.8)
    observed = table["observed"].to_numpy(dtype=float)
    ends = np.array([0.7 * observed.min(), 1.4 * observed.max()])
    axes.plot(ends, ends, "k--", lw=0.8)
    axes.set(xlabel="predicted: shared + specific / L", ylabel="observed loss", yscale="log")
    if table["predicted"].min() > 0:
        axes.set_xscale("log")
        plain_ticks(axes, x=True)
    else:
        signed_log(axes, "x", np.concatenate([table["predicted"].to_numpy(dtype=float), ends]))
        axes.set_title("right of the grey line, predictions that a loss can take", fontsize="small")
        plain_ticks(axes)
    legend_below(figure, colours)
    return figure


def draw_layer_split(table: pd.DataFrame) -> Canvas:
    """Draw shared and specific layer error against depth: attention, spectrum, depth, shared, specific, loss."""
    spectra = list(dict.fromkeys(table["spectrum"]))
    colours = dict(zip(dict.fromkeys(table["attention"]), cycle(COLOURS), strict=False))
    figure, panels = panel_grid(len(spectra), width=3.1, height=2.9)
    for axes, spectrum in zip(panels, spectra, strict=True):
        part = table[table["spectrum"] == spectrum]
        for attention, group in part.groupby("attention", sort=False):
            means = group.groupby("depth")[["shared", "specific", "loss"]].mean()
            for name, style in SPLIT_STYLES.items():
                axes.plot(means.index, means[name], style, color=colours[attention], ms=5, lw=1.1, mfc="white")
        axes.set(xscale="log", xlabel="depth L", ylabel="squared error", title=str(spectrum))
        values = part[["shared", "specific", "loss"]].to_numpy(dtype=float)
        positive = np.nanmin(values) > 0
        if positive:
            axes.set_yscale("log")
        else:
            signed_log(axes, "y", values)
        plain_ticks(axes, depths=part["depth"].to_numpy(), y=positive)
    legend_below(figure, colours, styles=SPLIT_STYLES)
    return figure


def draw_focus(table: pd.DataFrame) -> Canvas:
    """Draw the participation number of each layer as a share of the context: spectrum, depth, layer, participation."""
    spectra = list(dict.fromkeys(table["spectrum"]))
    colours = dict(zip(sorted(table["depth"].unique()), cycle(COLOURS), strict=False))
    figure, panels = panel_grid(len(spectra), width=3.1, height=2.6)
    for axes, spectrum in zip(panels, spectra, strict=True):
        part = table[table["spectrum"] == spectrum]
        for depth, group in part.groupby("depth"):
            mean = group.groupby("layer")[["participation", "context"]].mean()
            share = mean["participation"] / mean["context"]
            axes.plot(mean.index / depth, share, "o-", color=colours[depth], ms=3.5, lw=1.2)
        axes.set(xlabel="layer / L", ylabel="participation / P", title=str(spectrum), ylim=(0, 1.02), xlim=(0, 1.05))
    legend_below(figure, {f"L = {depth}": colour for depth, colour in colours.items()})
    return figure


def draw_focus_maps(table: pd.DataFrame) -> Canvas:
    """Draw the attention mass of each layer on tokens ranked by relevance: spectrum, depth, layer, token, mass."""
    spectra = list(dict.fromkeys(table["spectrum"]))
    figure, panels = panel_grid(len(spectra), width=3.1, height=2.6)
    maps = []
    for spectrum in spectra:
        part = table[table["spectrum"] == spectrum]
        deepest = part[part["depth"] == part["depth"].max()]
        maps.append((deepest["depth"].max(), deepest.pivot_table(index="layer", columns="token", values="mass")))
    most = max(float(mass.to_numpy().max()) for _, mass in maps)
    image = None
    for axes, spectrum, (depth, mass) in zip(panels, spectra, maps, strict=True):
        layers, tokens = len(mass), len(mass.columns)
        edges = np.arange(0.5, tokens + 1), np.arange(0.5, layers + 1)
        image = axes.pcolormesh(*edges, mass.to_numpy(dtype=float), vmin=0, vmax=most, cmap="magma")
        axes.set(xlabel="token, by relevance", ylabel="layer", title=f"{spectrum}, L = {depth}")
        axes.title.set_fontsize("medium")
        axes.set_yticks(few_whole(layers, 6))
        axes.set_xticks(few_whole(tokens))
        axes.invert_yaxis()
    if image is not None:
        figure.colorbar(image, ax=panels, label="attention mass", shrink=0.8)
    return figure
