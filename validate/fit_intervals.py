"""Intervals of fitted parameters: profile likelihood, bootstrap, asymptotic; a side that does not close says so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from theory.checks import FloatArray
from validate.fit_engine import Optima, minimise
from validate.fit_problem import ROUNDING_RESIDUAL, FitProblem
from validate.fit_roots import crossing_distances

# Search distances beyond which a profile counts as flat: factors e^25 on a log scale.
LONGEST_LOG = 25.0
# Relative to the cost: far below the root's tolerance times any rise that a level asks for.
PROFILE_SETTLE = 1e-12
# A profile this much lower than the optimum, relatively, has found another one.
LOWER = 1e-7


@dataclass(frozen=True)
class Interval:
    """An interval with the state of each side: ``closed``, ``bound`` (the domain's end) or ``open`` (flat)."""

    low: float
    high: float
    low_side: str = "closed"
    high_side: str = "closed"


@dataclass(frozen=True)
class NoiseScale:
    """What turns a rise of the cost into a number of standard errors.

    Attributes
    ----------
    scale
        The rise of the cost is ``scale t^2 / 2`` at t standard errors: the noise variance for least squares, the
        ratio of mean psi^2 to mean psi' for a robust cost, 1 where standard errors are given.
    degrees
        Degrees of freedom of Student's t, infinite where standard errors are given.
    """

    scale: float
    degrees: float

    def quantile(self, level: float) -> float:
        """Return the number of standard errors on either side that hold ``level`` between them."""
        share = 0.5 * (1.0 + level)
        return float(stats.norm.ppf(share) if np.isinf(self.degrees) else stats.t.ppf(share, self.degrees))


def noise_scale(problem: FitProblem, point: FloatArray, weights: FloatArray, free: int, known: bool) -> NoiseScale:
    """Return the noise scale at an optimum with ``free`` free parameters; NaN where no row is left to judge it."""
    if known:
        return NoiseScale(1.0, np.inf)
    degrees = problem.rows - free
    if degrees <= 0:
        return NoiseScale(np.nan, np.nan)
    residual = problem.residual(point[None])[0]
    psi, slope, _ = problem.influence(residual)
    curvature = np.sum(weights * slope) / np.sum(weights)
    if curvature <= 0:
        return NoiseScale(np.nan, float(degrees))
    rounding = ROUNDING_RESIDUAL**2 * problem.unit
    return NoiseScale(max(float(np.sum(weights * psi**2) / degrees / curvature), rounding), float(degrees))


def covariance(
    problem: FitProblem, point: FloatArray, weights: FloatArray, free: np.ndarray, scale: float
) -> FloatArray:
    """Return the asymptotic covariance on the search scale, (k, k), NaN where a parameter is not free or singular."""
    out = np.full((point.size, point.size), np.nan)
    places = np.flatnonzero(free)
    if not places.size:
        return out
    hessian = problem.hessian(point[None], np.asarray(weights)[None])[0][np.ix_(places, places)]
    if not np.all(np.isfinite(hessian)):
        return out
    unit = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    values, vectors = np.linalg.eigh(hessian / np.outer(unit, unit))
    if values.min() <= 1e-13:
        return out
    inverse = (vectors / values) @ vectors.T / np.outer(unit, unit)
    out[np.ix_(places, places)] = scale * inverse
    return out


def asymptotic_intervals(
    problem: FitProblem, point: FloatArray, spread: FloatArray, noise: NoiseScale, level: float
) -> list[Interval]:
    """Return value ± t times the standard error on the search scale, cut at the domain."""
    reach = noise.quantile(level) * np.sqrt(np.diag(spread))
    low, high = problem.natural(point - reach), problem.natural(point + reach)
    ends = problem.natural(problem.lower), problem.natural(problem.upper)
    return [
        Interval(
            float(max(low[i], ends[0][i])) if np.isfinite(reach[i]) else np.nan,
            float(min(high[i], ends[1][i])) if np.isfinite(reach[i]) else np.nan,
        )
        for i in range(point.size)
    ]


def profile_intervals(
    problem: FitProblem,
    point: FloatArray,
    cost: float,
    spread: FloatArray,
    noise: NoiseScale,
    level: float,
    *,
    weights: FloatArray,
    held: np.ndarray,
    starts: FloatArray | None = None,
) -> tuple[list[Interval], FloatArray | None]:
    """Return where the profile of each free parameter rises by the level's amount, and a better optimum if met.

    A parameter that rests on an end of its domain has a one-sided interval, from there to the other side. A side whose
    profile reaches the domain's end, or stays low over a factor e^25, is reported as such; its end is that of the
    domain, or infinite.
    """
    places = np.flatnonzero(~held)
    intervals = [Interval(np.nan, np.nan) for _ in range(point.size)]
    if not places.size or not np.isfinite(noise.scale):
        return intervals, None
    problems, signs = np.repeat(places, 2), np.tile([-1.0, 1.0], places.size)
    target = max(0.5 * noise.scale * noise.quantile(level) ** 2, 1e-12 * cost)
    end = np.where(signs < 0, problem.lower[problems], problem.upper[problems])
    limit = np.where(problem.logarithmic[problems], LONGEST_LOG, _longest(problem, point)[problems])
    reach = np.minimum(np.abs(end - point[problems]), limit)
    error = np.sqrt(np.diag(spread))[problems]
    first = np.where(np.isfinite(error) & (error > 0), error, 0.05 * np.maximum(np.abs(point[problems]), 0.1))
    path = np.repeat(point[None], problems.size, axis=0)

    def ratio_at(rows: np.ndarray, distance: FloatArray) -> FloatArray:
        found = _held_minimum(problem, point, path, spread, problems, signs, distance, rows, weights, held, starts)
        if found.costs.min() < cost * (1.0 - LOWER) - 1e-300:
            raise _LowerOptimumError(found.points[int(np.argmin(found.costs))])
        path[rows] = found.points
        return np.sqrt(np.maximum(found.costs - cost, 0.0) / target)

    try:
        distance, met = crossing_distances(2.0 * first, reach, ratio_at)
    except _LowerOptimumError as lower:
        return intervals, lower.point
    for place in places.tolist():
        ends, sides = [], []
        for sign in (-1.0, 1.0):
            row = int(np.flatnonzero((problems == place) & (signs == sign))[0])
            side, value = _side(problem, point, place, sign, bool(met[row]), float(distance[row]))
            ends.append(value)
            sides.append(side)
        intervals[place] = Interval(ends[0], ends[1], sides[0], sides[1])
    return intervals, None


class _LowerOptimumError(Exception):
    """A profile met a lower cost than the optimum's."""

    def __init__(self, point: FloatArray) -> None:
        super().__init__("a profile met a lower cost than the optimum's")
        self.point = point


def _longest(problem: FitProblem, point: FloatArray) -> FloatArray:
    size = float(np.max(np.abs(problem.loss_values)))
    return 1e3 * np.maximum(np.abs(point), size)


def _side(
    problem: FitProblem, point: FloatArray, place: int, sign: float, met: bool, distance: float
) -> tuple[str, float]:
    """Return how one side of a profile ended, and where, in natural units."""
    parameter = problem.law.parameters[place]
    end = problem.lower[place] if sign < 0 else problem.upper[place]
    if met:
        moved = point.copy()
        moved[place] += sign * distance
        return "closed", float(problem.natural(moved)[place])
    touches = abs(point[place] + sign * distance - end) <= 1e-12 * max(1.0, abs(end))
    searched_end = parameter.name.endswith("exponent") or parameter.name == "decay_depth"
    if touches and not searched_end:
        return "bound", float(parameter.lower if sign < 0 else parameter.upper)
    if sign > 0:
        return "open", np.inf
    return "open", 0.0 if parameter.scale == "log" else -np.inf


def _held_minimum(
    problem: FitProblem,
    point: FloatArray,
    path: FloatArray,
    spread: FloatArray,
    problems: np.ndarray,
    signs: FloatArray,
    distance: FloatArray,
    rows: np.ndarray,
    weights: FloatArray,
    held: np.ndarray,
    starts: FloatArray | None,
) -> Optima:
    """Return the best minimum with one parameter held, started at the optimum, along the covariance and at the last."""
    count = point.size
    value = point[problems[rows]] + signs[rows] * distance
    hold = np.broadcast_to(held, (rows.size, count)).copy()
    hold[np.arange(rows.size), problems[rows]] = True
    tries = [np.repeat(point[None], rows.size, axis=0), path[rows].copy()]
    if np.all(np.isfinite(np.diag(spread)[~held])):
        slope = np.nan_to_num(spread[problems[rows]]) / np.diag(spread)[problems[rows]][:, None]
        tries.append(tries[0] + slope * (value - point[problems[rows]])[:, None])
    if starts is not None:
        tries += [np.repeat(start[None], rows.size, axis=0) for start in starts]
    for start in tries:
        start[np.arange(rows.size), problems[rows]] = value
    found = minimise(
        problem,
        np.concatenate(tries),
        weights=weights,
        held=np.concatenate([hold] * len(tries)),
        polish=problem.robust == "huber",
        settle=PROFILE_SETTLE,
    )
    costs = found.costs.reshape(len(tries), rows.size)
    best = np.argmin(costs, axis=0) * rows.size + np.arange(rows.size)
    return found.take(best)
