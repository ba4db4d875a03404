"""Predictions of a fitted law with the profile interval of the predicted value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import FloatArray
from validate.fit_engine import FitProblem, minimise

if TYPE_CHECKING:
    from validate.fit_result import FitPrediction, FitResult

ROOT_STEPS = 30
ROOT_TOLERANCE = 1e-4
# The row that pulls the law towards a value weighs this many rows.
PULL = 1e4


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
    reach = _first_reach(fit, columns, loss)
    distance = np.tile(reach, 2)
    inner, outer = np.zeros(2 * size), np.full(2 * size, np.nan)
    ends = np.full(2 * size, np.nan)
    points = np.repeat(fit.point[None], 2 * size, axis=0)
    searching = np.ones(2 * size, dtype=bool)
    for _ in range(ROOT_STEPS):
        rows = np.flatnonzero(searching)
        if not rows.size:
            break
        target = centre[rows] + signs[rows] * distance[rows]
        if fit.problem.residuals == "log":
            target = centre[rows] * np.exp(signs[rows] * distance[rows])
        points[rows], value, rise = _pulled(fit, {n: c[rows] for n, c in at.items()}, target, points[rows])
        ratio = np.sqrt(np.maximum(rise, 0.0) / level)
        for place, row in enumerate(rows):
            here = distance[row]
            if abs(ratio[place] - 1.0) < ROOT_TOLERANCE or (
                inner[row] > 0.999999 * np.nan_to_num(outer[row], nan=np.inf)
            ):
                ends[row], searching[row] = value[place], False
                continue
            if ratio[place] < 1.0:
                inner[row] = here
            else:
                outer[row] = here
            ends[row] = value[place]
            guess = here / ratio[place] if ratio[place] > 0.05 else 4.0 * here
            if np.isnan(outer[row]):
                distance[row] = np.clip(guess, 1.2 * here, 4.0 * here)
                if distance[row] > 50.0 * reach[row % size] + 50.0:
                    ends[row] = np.inf if signs[row] > 0 else (0.0 if fit.problem.residuals == "log" else -np.inf)
                    searching[row] = False
            else:
                width = outer[row] - inner[row]
                inside = inner[row] + 0.02 * width < guess < outer[row] - 0.02 * width
                distance[row] = guess if inside else 0.5 * (inner[row] + outer[row])
    return ends


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
    starts = np.concatenate([points, np.repeat(fit.point[None], batch, axis=0)])
    doubled = replace(
        wide,
        columns={name: np.concatenate([column, column]) for name, column in columns.items()},
        loss_values=np.concatenate([losses, losses]),
    )
    found = minimise(doubled, starts, weights=weights, held=fit.held, polish=problem.robust == "huber")
    best = np.where(found.costs[:batch] <= found.costs[batch:], np.arange(batch), np.arange(batch) + batch)
    chosen = found.points[best]
    value = wide.predicted(chosen)[:, -1]
    rise = problem.cost(chosen, np.broadcast_to(fit.row_weights, (batch, problem.rows))) - fit.objective
    return chosen, value, rise
