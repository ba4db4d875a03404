"""The report's figures: each draws from one table that is stored beside it, and can be redrawn alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import choice

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito's colours: told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Right end of the exponent axis.
MOST_EXPONENT = 4.0


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Parameters
    ----------
    name, title, caption : str
        As the report shows them; ``name`` is its file's.
    table : str
        The table it draws.
    draw : callable
        From the table to a matplotlib figure.
    """

    name: str
    title: str
    caption: str
    table: str
    draw: Callable[[pd.DataFrame], Canvas]


def new_canvas(width: float, height: float) -> Canvas:
    """Return an empty figure that needs no display."""
    from matplotlib.figure import Figure as MatplotlibFigure

    return MatplotlibFigure(figsize=(width, height), layout="constrained")


def plain_ticks(axes: Axes, *, depths: np.ndarray | None = None, x: bool = False) -> None:
    """Label log axes with plain decimals, at least three of them: y always, x if asked, or with the depths used."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    if depths is not None:
        axes.xaxis.set_major_locator(FixedLocator([float(depth) for depth in np.unique(depths)]))
    elif x:
        axes.xaxis.set_major_locator(FixedLocator(readable_ticks(*sorted(axes.get_xlim()))))
    if depths is not None or x:
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if depths is not None:
            axes.xaxis.set_minor_locator(NullLocator())
    low, high = sorted(axes.get_ylim())
    axes.yaxis.set_major_locator(FixedLocator(readable_ticks(low, high)))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(low, high)


def readable_ticks(low: float, high: float) -> list[float]:
    """Return at least three ticks for a log axis from ``low`` to ``high``: 1, 10, 100, or 1, 2, 5, or even steps."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    decades = np.log10(high / low)
    locators = [LogLocator(subs=(1.0, 2.0, 5.0)), MaxNLocator(5)]
    if decades >= 3:
        locators.insert(0, LogLocator(numticks=8))
    for locator in locators:
        shown = [float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high]
        if len(shown) >= 3:
            break
    return shown


def _plain(value: float, _: float) -> str:
    return f"{value:.6g}"


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
    axes.legend(frameon=False, title="thin: predicted; thick: trained")
    return figure


def draw_depth_laws(table: pd.DataFrame) -> Canvas:
    """Draw loss against depth, one panel a spectrum, with the fitted power law and its band.

    Columns: attention, spectrum, depth, loss, standard_error, converged; fitted, low, high (NaN without a fit).
    """
    spectra = table["spectrum"].unique()
    figure = new_canvas(3.6 * len(spectra), 3.7)
    panels = figure.subplots(1, len(spectra), squeeze=False)[0]
    for axes, spectrum in zip(panels, spectra, strict=True):
        part = table[table["spectrum"] == spectrum]
        for colour, (attention, group) in zip(cycle(COLOURS), part.groupby("attention"), strict=False):
            runs, law = group[group["loss"].notna()], group[group["loss"].isna()].sort_values("depth")
            for converged, marker in ((True, colour), (False, "white")):
                chosen = runs[runs["converged"] == converged]
                label = f"{attention}" if converged else None
                axes.errorbar(
                    chosen["depth"],
                    chosen["loss"],
                    2 * chosen["standard_error"],
                    fmt="o",
                    color=colour,
                    mfc=marker,
                    ms=5,
                    label=label,
                )
            if len(law):
                axes.plot(law["depth"], law["fitted"], color=colour, lw=1)
                axes.fill_between(law["depth"], law["low"], law["high"], color=colour, alpha=0.18, lw=0)
        axes.set(xscale="log", yscale="log", xlabel="depth L", title=str(spectrum))
        plain_ticks(axes, depths=part.loc[part["loss"].notna(), "depth"].to_numpy())
    panels[0].set_ylabel("final loss")
    panels[0].legend(frameon=False)
    return figure


def draw_linear_optimum(table: pd.DataFrame) -> Canvas:
    """Draw converged tied linear losses on the exact tied optimum: columns source, depth, loss, optimum, floor."""
    figure = new_canvas(5.2, 3.8)
    axes = figure.add_subplot()
    for colour, (source, group) in zip(cycle(COLOURS), table.groupby("source"), strict=False):
        ordered = group.sort_values("depth")
        axes.plot(ordered["depth"], ordered["optimum"], color=colour, lw=1, label=f"tied optimum, β = {source:g}")
        axes.plot(ordered["depth"], ordered["floor"], color=colour, lw=1, ls=":", label=f"untied floor, β = {source:g}")
        for converged, face in ((True, colour), (False, "white")):
            chosen = ordered[ordered["converged"] == converged]
            axes.errorbar(
                chosen["depth"], chosen["loss"], 2 * chosen["standard_error"], fmt="o", color=colour, mfc=face
            )
    axes.set(xscale="log", yscale="log", xlabel="depth L", ylabel="loss")
    plain_ticks(axes, depths=table["depth"].to_numpy())
    axes.legend(frameon=False, fontsize="small")
    return figure


def draw_half_times(table: pd.DataFrame) -> Canvas:
    """Draw half-learning times against eigenvalues: columns attention, spectrum, depth, eigenvalue, half_time."""
    structured = [name for name, group in table.groupby("spectrum", sort=False) if group["eigenvalue"].nunique() > 1]
    figure = new_canvas(6.4, 0.8 + 2.8 * max(len(structured), 1))
    grid = figure.subplots(max(len(structured), 1), 2, sharex="row", sharey="row", squeeze=False)
    for row, spectrum in zip(grid, structured, strict=False):
        for axes, attention in zip(row, ("linear", "softmax"), strict=True):
            chosen = (table["attention"] == attention) & (table["spectrum"] == spectrum) & table["half_time"].notna()
            modes = table[chosen].groupby(["depth", "eigenvalue"], as_index=False)["half_time"].median()
            for colour, (depth, group) in zip(cycle(COLOURS), modes.groupby("depth"), strict=False):
                axes.plot(group["eigenvalue"], group["half_time"], "o-", color=colour, ms=4, label=f"L = {depth}")
            axes.set(xscale="log", yscale="log", xlabel="eigenvalue", title=f"{attention}, {spectrum!s}")
        plain_ticks(row[0], x=True)
        plain_ticks(row[1], x=True)
    panels = grid[0]
    panels[0].set_ylabel("half-learning time (steps)")
    panels[0].legend(frameon=False, fontsize="small")
    return figure


def draw_exponents(table: pd.DataFrame) -> Canvas:
    """Draw fitted exponents with their intervals, a row a spectrum: attention, spectrum, exponent, low, high."""
    spectra = list(dict.fromkeys(table["spectrum"]))
    figure = new_canvas(5.4, 1.3 + 0.45 * len(spectra))
    axes = figure.add_subplot()
    groups = table.groupby("attention", sort=False)
    for shift, (colour, (attention, group)) in enumerate(zip(cycle(COLOURS), groups, strict=False)):
        rows = np.array([spectra.index(name) for name in group["spectrum"]]) + 0.18 * shift - 0.09
        for row, low, high in zip(rows, group["low"], group["high"], strict=True):
            axes.plot([low, min(high, 2 * MOST_EXPONENT)], [row, row], color=colour, lw=1.4)
        for settled, face in ((True, colour), (False, "white")):
            chosen = group["settled"].to_numpy(dtype=bool) == settled
            points = group["exponent"].to_numpy(dtype=float)[chosen]
            axes.plot(points, rows[chosen], "o", color=colour, mfc=face, label=str(attention) if settled else None)
    axes.axvline(1.0, color="k", ls="--", lw=0.8)
    axes.set(xlabel="exponent alpha of L_inf + c / L^alpha", xlim=(0, MOST_EXPONENT), ylim=(len(spectra) - 0.5, -0.5))
    axes.set_yticks(range(len(spectra)), spectra)
    axes.legend(frameon=False)
    return figure


def draw_mode_maps(table: pd.DataFrame) -> Canvas:
    """Draw each mode's error, as a share of its first, over training: attention, spectrum, step, mode, share."""
    panels = list(table.groupby(["spectrum", "attention"], sort=False))
    rows = -(-len(panels) // 2)
    figure = new_canvas(6.8, 2.2 * rows + 0.6)
    grid = figure.subplots(rows, 2, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    image = None
    for axes, ((spectrum, attention), group) in zip(grid.flat, panels, strict=False):
        shares = group.pivot_table(index="mode", columns="step", values="share")
        steps = np.log10(1.0 + shares.columns.to_numpy(dtype=float))
        edges = np.concatenate([steps, [2 * steps[-1] - steps[-2]]]) if steps.size > 1 else np.array([0.0, 1.0])
        modes = np.arange(0.5, len(shares) + 1)
        image = axes.pcolormesh(edges, modes, shares.to_numpy(dtype=float), vmin=0, vmax=1, cmap="viridis")
        axes.set(title=f"{attention}, {spectrum}", xlabel="log10(1 + step)", ylabel="mode k")
        axes.title.set_fontsize("small")
        axes.invert_yaxis()
    if image is not None:
        figure.colorbar(image, ax=grid.ravel().tolist(), label="error / first error", shrink=0.8)
    return figure


def draw_layer_errors(table: pd.DataFrame) -> Canvas:
    """Draw observed losses against those predicted from another depth's layer errors: spectrum, predicted, "
    "observed."""
    figure = new_canvas(4.4, 4.0)
    axes = figure.add_subplot()
    for colour, (spectrum, group) in zip(cycle(COLOURS), table.groupby("spectrum"), strict=False):
        axes.plot(group["predicted"], group["observed"], "o", color=colour, label=str(spectrum))
    values = table[["predicted", "observed"]].to_numpy(dtype=float)
    ends = [values.min(), values.max()]
    axes.plot(ends, ends, "k--", lw=0.8)
    axes.set(xlabel="predicted: shared + specific / L", ylabel="observed loss")
    axes.legend(frameon=False)
    return figure


def draw_focus(table: pd.DataFrame) -> Canvas:
    """Draw the participation number of each layer as a share of the context: spectrum, depth, layer, participation."""
    spectra = table["spectrum"].unique()
    figure = new_canvas(3.6 * len(spectra), 3.4)
    panels = figure.subplots(1, len(spectra), squeeze=False, sharey=True)[0]
    for axes, spectrum in zip(panels, spectra, strict=True):
        part = table[table["spectrum"] == spectrum]
        for colour, (depth, group) in zip(cycle(COLOURS), part.groupby("depth"), strict=False):
            mean = group.groupby("layer")[["participation", "context"]].mean()
            share = mean["participation"] / mean["context"]
            axes.plot(mean.index / depth, share, "o-", color=colour, ms=4, label=f"L = {depth}")
        axes.set(xlabel="layer / L", title=str(spectrum), ylim=(0, 1.02))
    panels[0].set_ylabel("participation / context")
    panels[0].legend(frameon=False, fontsize="small")
    return figure


FIGURES = (
    Figure(
        "curves",
        "Predicted and trained curves of linear attention",
        "Loss of the training batch before each step (thick, centred 11-step mean) and the recursion computed "
        "from the "
        "spectrum alone (thin). Nothing is fitted.",
        "curves",
        draw_curves,
    ),
    Figure(
        "depth-laws",
        "Loss against depth: linear and softmax attention on the same data",
        "Final loss on fresh contexts, bars of two standard errors. Hollow: not converged, left out of the "
        "fit. Lines: "
        "L_inf + c / L^alpha fitted to converged runs (to all runs where too few converged), with its 95 % band.",
        "depth_laws",
        draw_depth_laws,
    ),
    Figure(
        "linear-optimum",
        "The depth law of linear attention follows the spectrum",
        "Converged tied linear runs at infinite context (points) on the exact tied optimum (lines); dotted, the floor "
        "of untied gains.",
        "linear_optimum",
        draw_linear_optimum,
    ),
    Figure(
        "exponents",
        "Exponent against spectrum",
        "Fitted exponents with 95 % intervals, linear and softmax attention on the same spectra; hollow where "
        "the fit is "
        "provisional. The claim puts softmax on the dashed line on every spectrum.",
        "exponents",
        draw_exponents,
    ),
    Figure(
        "mode-maps",
        "Learning resolved by covariance direction",
        "Error along each eigen-direction (mode 1 is the strongest) as a share of its first value, at the "
        "deepest trained "
        "model; a slanted front is one direction after another, a vertical one all in parallel.",
        "mode_maps",
        draw_mode_maps,
    ),
    Figure(
        "half-times",
        "When each covariance direction is half learned",
        "Step at which a mode's squared error has fallen half of its way, against the mode's eigenvalue.",
        "half_times",
        draw_half_times,
    ),
    Figure(
        "focus",
        "How many tokens each layer attends to",
        "Participation number of the softmax attention over the context length: 1 is even attention, 1/P a single "
        "token. Converged runs.",
        "focus",
        draw_focus,
    ),
    Figure(
        "layer-errors",
        "Does the error of single layers predict the loss at another depth?",
        "The layer-error matrix of a run predicts the loss of the next deeper run as shared + specific / L. On the "
        "dashed line the central-limit picture is exact.",
        "layers",
        draw_layer_errors,
    ),
)


def figure_named(name: str) -> Figure:
    """Return a figure of the report by its name.

    Raises
    ------
    ValueError
        If there is none.
    """
    choice("figure", name, [figure.name for figure in FIGURES])
    return next(figure for figure in FIGURES if figure.name == name)
