"""Pictures of fits: losses against depth with the law and its interval band, at paper-column width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from theory.results import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from validate.fit_result import FitResult

# Two of the Okabe-Ito colours, told apart by all common kinds of colour blindness and in grey.
DATA_COLOUR, LAW_COLOUR = "#000000", "#0072B2"
COLUMN_SIZE = (3.4, 2.6)
DRAWN_DEPTHS = 60


def draw_fit(fit: FitResult, ax: Axes | None = None) -> Axes:
    """Draw losses against depth with the law and the interval of its value; a joint law at the medians of the rest."""
    from matplotlib.ticker import NullLocator, ScalarFormatter

    ax = axes_or_new(ax, figsize=COLUMN_SIZE)
    depth, loss = fit.problem.columns["depth"], fit.problem.loss_values
    sigma = fit.problem.sigma
    spread = None if sigma is None else sigma * (loss if fit.problem.residuals == "log" else 1.0)
    ax.errorbar(depth, loss, yerr=spread, fmt="o", ms=3.5, color=DATA_COLOUR, lw=0.8, capsize=2, label="data", zorder=3)
    if fit.answered:
        grid = np.geomspace(depth.min(), depth.max(), DRAWN_DEPTHS)
        others = {
            name: float(np.exp(np.median(np.log(column))))
            for name, column in fit.problem.columns.items()
            if name != "depth"
        }
        ax.plot(grid, fit.loss_at(grid, **others), color=LAW_COLOUR, lw=1.4, label=fit.law)
        band = fit.predict(grid[::4], **others)
        finite = np.isfinite(band.low) & np.isfinite(band.high)
        ax.fill_between(grid[::4][finite], band.low[finite], band.high[finite], color=LAW_COLOUR, alpha=0.2, lw=0)
    ax.set_xscale("log")
    ticks = np.unique(depth)
    if ticks.size <= 12:
        ax.set_xticks(ticks)
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set(xlabel="depth L", ylabel="loss")
    ax.legend(frameon=False, fontsize=8)
    return ax
