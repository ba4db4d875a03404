"""Pictures of fits at paper-column width: losses with law, band and residuals; profiles; the gap above the plateau."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from theory.checks import FloatArray
from theory.results import axes_or_new
from validate.fit_intervals import PROFILE_SETTLE
from validate.fit_prediction import MORE_STARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from validate.fit_result import FitResult

# Okabe-Ito colours, told apart by all common kinds of colour blindness and in grey.
DATA_COLOUR, LAW_COLOUR, MARK_COLOUR = "#000000", "#0072B2", "#D55E00"
COLUMN_SIZE = (3.4, 2.6)
FONT_SIZE = 8
DRAWN_DEPTHS = 61
BAND_EVERY = 4
MOST_TICKS = 10
PROFILE_POINTS = 25


def draw_fit(fit: FitResult, ax: Axes | None = None) -> Axes:
    """Draw losses against depth with the law and the interval of its value; on a new figure with residuals below.

    A joint law is drawn at the medians of the other variables, and each loss is moved there by the fitted law.
    """
    below = None
    if ax is None and fit.answered:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(COLUMN_SIZE[0], 1.25 * COLUMN_SIZE[1]), layout="constrained")
        ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    ax = axes_or_new(ax, figsize=COLUMN_SIZE)
    variable = "depth" if "depth" in fit.problem.columns else fit.problem.law.variables[0]
    at, loss, spread = fit.problem.columns[variable], fit.problem.loss_values, _spread(fit)
    label = "data"
    if fit.answered:
        medians = {name: float(np.median(column)) for name, column in fit.problem.columns.items()}
        if len(medians) > 1:
            rows = {name: np.full(at.size, median) for name, median in medians.items()}
            loss = loss * fit.loss_at(**{**rows, variable: at}) / fit.problem.predicted(fit.point[None])[0]
            label = "data, moved to the medians"
        grid = np.geomspace(at.min(), at.max(), DRAWN_DEPTHS)
        columns = {name: np.full(grid.size, median) for name, median in medians.items()}
        columns[variable] = grid
        ax.plot(grid, fit.loss_at(**columns), color=LAW_COLOUR, lw=1.4, label=fit.law)
        band = fit.predict(**{name: column[::BAND_EVERY] for name, column in columns.items()})
        finite = np.isfinite(band.low) & np.isfinite(band.high)
        shown = grid[::BAND_EVERY][finite]
        ax.fill_between(shown, band.low[finite], band.high[finite], color=LAW_COLOUR, alpha=0.2, lw=0)
    ax.errorbar(at, loss, yerr=spread, fmt="o", ms=3, color=DATA_COLOUR, lw=0.8, capsize=2, label=label, zorder=3)
    _depth_axis(ax, at)
    lowest = ax
    if below is not None:
        _draw_residuals(fit, below, at)
        lowest = below
    ax.set_ylabel("loss", fontsize=FONT_SIZE)
    lowest.set_xlabel("depth L" if variable == "depth" else variable, fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.legend(frameon=False, fontsize=FONT_SIZE)
    return ax


def draw_gap(fit: FitResult, ax: Axes | None = None) -> Axes:
    """Draw the loss above the fitted plateau on log axes, where the subtraction means something.

    A point is drawn only where the gap is larger than twice the plateau's uncertainty; the others are counted in the
    title.

    Raises
    ------
    ValueError
        If the law has no plateau, or the plateau no finite interval.
    """
    plateau = fit.parameters.get("plateau")
    if plateau is None or not fit.answered or not np.all(np.isfinite(plateau.interval)) or len(fit.problem.columns) > 1:
        raise ValueError(f"law={fit.law!r}: a law of depth whose plateau has a finite interval is needed")
    ax = axes_or_new(ax, figsize=COLUMN_SIZE)
    depth, loss = fit.problem.columns["depth"], fit.problem.loss_values
    half = 0.5 * (plateau.interval[1] - plateau.interval[0])
    gap = loss - plateau.value
    shown = gap > 2.0 * half
    ax.errorbar(depth[shown], gap[shown], yerr=half, fmt="o", ms=3, color=DATA_COLOUR, lw=0.8, label="loss - plateau")
    grid = np.geomspace(depth.min(), depth.max(), DRAWN_DEPTHS)
    ax.plot(grid, fit.loss_at(grid) - plateau.value, color=LAW_COLOUR, lw=1.4, label=fit.law)
    ax.set_yscale("log")
    _depth_axis(ax, depth)
    if not shown.all():
        text = f"{int(np.sum(~shown))} of {shown.size} losses lie within the plateau's uncertainty"
        ax.set_title(text, fontsize=FONT_SIZE - 1)
    ax.set_xlabel("depth L", fontsize=FONT_SIZE)
    ax.set_ylabel("loss above the plateau", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.legend(frameon=False, fontsize=FONT_SIZE)
    return ax


def profile_curve(fit: FitResult, parameter: str) -> tuple[FloatArray, FloatArray]:
    """Return values of a parameter and, with it held there, the least cost's rise as a number of standard errors.

    Raises
    ------
    ValueError
        If the parameter is fixed or the fit has no noise scale.
    """
    from validate.fit_engine import minimise
    from validate.fit_starts import sobol_starts

    problem = fit.problem
    place = problem.law.parameter_names.index(parameter)
    if not fit.answered or fit.held[place] or not np.isfinite(fit.noise.scale):
        raise ValueError(f"parameter={parameter!r}: must be free, in an answered fit with degrees of freedom")
    low, high = problem.searched(np.array([fit.parameters[parameter].interval] * len(fit.point)).T)[:, place]
    centre = fit.point[place]
    reach = [abs(end - centre) for end in (low, high) if np.isfinite(end) and end != centre]
    width = 1.3 * (max(reach) if reach else 1.0)
    ends = max(centre - width, problem.lower[place]), min(centre + width, problem.upper[place])
    grid = np.linspace(*ends, PROFILE_POINTS)
    starts = np.concatenate([fit.point[None], sobol_starts(problem, MORE_STARTS, seed=1)])
    starts[:, fit.held] = fit.point[fit.held]
    points = np.repeat(starts, grid.size, axis=0)
    points[:, place] = np.tile(grid, len(starts))
    held = fit.held.copy()
    held[place] = True
    found = minimise(
        problem, points, weights=fit.row_weights, held=held, polish=problem.robust == "huber", settle=PROFILE_SETTLE
    )
    costs = found.costs.reshape(len(starts), grid.size).min(axis=0)
    rise = np.sqrt(np.maximum(costs - fit.objective, 0.0) / (0.5 * fit.noise.scale))
    values = np.repeat(fit.point[None], grid.size, axis=0)
    values[:, place] = grid
    return problem.natural(values)[:, place], rise


def draw_profiles(fit: FitResult, parameters: tuple[str, ...] | None = None) -> Axes:
    """Draw each free parameter's profile, in standard errors, with the level of the interval; return the first axes.

    Raises
    ------
    ValueError
        If the fit has no free parameter or no degrees of freedom.
    """
    from matplotlib.figure import Figure

    free = [n for n, hold in zip(fit.problem.law.parameter_names, fit.held, strict=True) if not hold]
    names = free if parameters is None else list(parameters)
    if not names:
        raise ValueError(f"law={fit.law!r} has no free parameter to profile")
    figure = Figure(figsize=(COLUMN_SIZE[0], 1.7 * len(names)), layout="constrained")
    axes: Any = figure.subplots(len(names), 1, squeeze=False)
    for ax, name in zip(axes[:, 0], names, strict=True):
        values, rise = profile_curve(fit, name)
        ax.plot(values, rise, color=LAW_COLOUR, lw=1.4)
        ax.axhline(fit.noise.quantile(fit.level), color=MARK_COLOUR, ls="--", lw=1.0)
        ax.axvline(fit.parameters[name].value, color=DATA_COLOUR, lw=0.8)
        ax.set_xlabel(name.replace("_", " "), fontsize=FONT_SIZE)
        ax.set_ylabel("standard errors", fontsize=FONT_SIZE)
        ax.tick_params(labelsize=FONT_SIZE)
    first: Axes = axes[0, 0]
    return first


def _spread(fit: FitResult) -> FloatArray | None:
    sigma = fit.problem.sigma
    if sigma is None:
        return None
    return sigma * fit.problem.loss_values if fit.problem.residuals == "log" else sigma


def _draw_residuals(fit: FitResult, ax: Axes, at: FloatArray) -> None:
    """Draw relative residuals in percent."""
    fitted = fit.problem.predicted(fit.point[None])[0]
    spread = _spread(fit)
    error = None if spread is None else 100.0 * spread / fitted
    ax.errorbar(
        at, 100.0 * (fit.problem.loss_values / fitted - 1.0), yerr=error, fmt="o", ms=2.5, color=DATA_COLOUR, lw=0.8
    )
    ax.axhline(0.0, color=LAW_COLOUR, lw=1.0)
    ax.set_ylabel("residual (%)", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)


def _depth_axis(ax: Axes, at: FloatArray) -> None:
    """Put ticks at the depths used, in plain decimals, thinned to what a column can hold."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    ax.set_xscale("log")
    ticks = np.unique(at)
    if ticks.size > MOST_TICKS or (
        ticks.size > 1 and np.min(np.diff(np.log10(ticks))) < 0.06 * np.ptp(np.log10(ticks))
    ):
        wanted = np.geomspace(ticks[0], ticks[-1], 6)
        ticks = np.unique(ticks[np.argmin(np.abs(np.log(ticks)[None, :] - np.log(wanted)[:, None]), axis=1)])
    ax.set_xticks(ticks)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
