"""Predictions of a fitted law with the profile interval of the predicted value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import FloatArray
from validate.fit_engine import minimise
from validate.fit_problem import FitProblem
from validate.fit_roots import crossing_distances
from validate.fit_starts import sobol_starts

if TYPE_CHECKING:
    from validate.fit_result import FitPrediction, FitResult

# Factor e^this is as far as an interval of a predicted loss is followed.
LONGEST_LOG = 7.0
# Further starts, besides the optimum and the last point of the trace.
MORE_STARTS = 6
# The row that pulls the law towards a value weighs this many rows.
PULL = 1e4
PULL_SETTLE = 1e-12


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def predict_loss(fit: FitResult, columns: dict[str, FloatArray]) -> FitPrediction:
    """Return the law at ``columns``, each (m,), with the profile interval of its value.

    The profile of a predicted value is traced by one more row, at the new point, that pulls the law to a target: every
    minimum with that row is the cheapest fit with the value that it has there, whatever the row's weight.
    """
    from validate.fit_result import FitPrediction

    loss = fit.loss_at(**columns)
    low, high = np.full(loss.size, np.nan), np.full(loss.size, np.nan)
    if np.isfinite(fit.noise.scale) and not fit.held.all():
        ends = _trace(fit, columns, loss)
        low, high = ends[: loss.size], ends[loss.size :]
    return FitPrediction(columns, loss, low, high, fit.level)


def _trace(fit: FitResult, columns: dict[str, FloatArray], loss: FloatArray) -> FloatArray:
    size = loss.size
    signs = np.repeat([-1.0, 1.0], size)
    at = {name: np.tile(column, 2) for name, column in columns.items()}
    centre = np.tile(loss, 2)
    level = 0.5 * fit.noise.scale * fit.noise.quantile(fit.level) ** 2
    level = max(level, 1e-12 * fit.objective)
    first = np.tile(_first_reach(fit, columns, loss), 2)
    logarithmic = fit.problem.residuals == "log"
    # A linear fit may predict down to nothing below and a thousand times the loss above.
    longest = np.full(2 * size, LONGEST_LOG) if logarithmic else np.where(signs < 0, 2.0, 1e3) * np.abs(centre)
    points = np.repeat(fit.point[None], 2 * size, axis=0)
    ends = centre.copy()

    def ratio_at(rows: np.ndarray, distance: FloatArray) -> FloatArray:
        step = signs[rows] * distance
        target = centre[rows] * np.exp(step) if logarithmic else centre[rows] + step
        points[rows], ends[rows], rise = _pulled(fit, {n: c[rows] for n, c in at.items()}, target, points[rows])
        return np.asarray(np.sqrt(np.maximum(rise, 0.0) / level))

    _, met = crossing_distances(first, longest, ratio_at)
    lowest = 0.0 if logarithmic else -np.inf
    return np.where(met, ends, np.where(signs > 0, np.inf, lowest))


def _first_reach(fit: FitResult, columns: dict[str, FloatArray], loss: FloatArray) -> FloatArray:
    """Return twice the asymptotic standard error of the prediction, on the scale of the residuals, (m,)."""
    at = replace(fit.problem, columns=columns, loss_values=loss, sigma=None)
    slopes = at.jacobian(fit.point[None])[0][:, ~fit.held]
    spread = fit.spread[np.ix_(~fit.held, ~fit.held)]
    unit = 0.02 * (np.ones(loss.size) if fit.problem.residuals == "log" else np.abs(loss))
    if not np.all(np.isfinite(spread)):
        return unit
    variance = np.einsum("mk,kj,mj->m", slopes, spread, slopes)
    return np.where(variance > 0, 2.0 * np.sqrt(np.maximum(variance, 1e-300)), unit)


def _pulled(
    fit: FitResult, at: dict[str, FloatArray], target: FloatArray, points: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the fits pulled to ``target`` at the new points, their values there, and the rises of the cost."""
    problem, batch = fit.problem, target.size
    columns = {
        name: np.concatenate([np.broadcast_to(column, (batch, problem.rows)), at[name][:, None]], axis=1)
        for name, column in problem.columns.items()
    }
    losses = np.concatenate([np.broadcast_to(problem.loss_values, (batch, problem.rows)), target[:, None]], axis=1)
    sigma = None if problem.sigma is None else np.append(problem.sigma, np.median(problem.sigma))
    wide: FitProblem = replace(problem, columns=columns, loss_values=losses, sigma=sigma, pulled=True)
    weights = np.append(fit.row_weights, PULL * np.mean(fit.row_weights))
    more = sobol_starts(problem, MORE_STARTS, seed=1)
    more[:, fit.held] = fit.point[fit.held]
    tries = [points, *(np.repeat(start[None], batch, axis=0) for start in (fit.point, *more))]
    many = replace(
        wide,
        columns={name: np.concatenate([column] * len(tries)) for name, column in columns.items()},
        loss_values=np.concatenate([losses] * len(tries)),
    )
    polish = problem.robust == "huber"
    found = minimise(many, np.concatenate(tries), weights=weights, held=fit.held, polish=polish, settle=PULL_SETTLE)
    best = np.argmin(found.costs.reshape(len(tries), batch), axis=0) * batch + np.arange(batch)
    chosen = found.points[best]
    value = wide.predicted(chosen)[:, -1]
    rise = problem.cost(chosen, np.broadcast_to(fit.row_weights, (batch, problem.rows))) - fit.objective
    return chosen, value, rise
