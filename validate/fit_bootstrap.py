"""Bootstrap of a fit: rows, replicates within their depth, or whole groups, refitted all at once."""

from __future__ import annotations

import numpy as np

from theory.checks import FloatArray, integer
from validate.fit_checks import FitTable
from validate.fit_engine import Optima, minimise
from validate.fit_intervals import Interval
from validate.fit_problem import FitProblem


def bootstrap_weights(table: FitTable, resamples: int, seed: int) -> FloatArray:
    """Return how often each row is drawn in each resample, (resamples, n).

    With groups, whole groups are drawn; else rows are drawn from the whole table.
    """
    integer("resamples", resamples, minimum=2)
    rng = np.random.default_rng(integer("seed", seed, minimum=0))
    labels = np.arange(table.loss.size) if table.groups is None else np.unique(table.groups, return_inverse=True)[1]
    count = int(labels.max()) + 1
    if count < 2:
        raise ValueError("groups: at least 2 are needed to resample them")
    drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=resamples).astype(float)
    return drawn[:, labels]


def bootstrap_points(
    problem: FitProblem, point: FloatArray, held: np.ndarray, weights: FloatArray, *, polish: bool = False
) -> Optima:
    """Return the refits of all resamples, started at the optimum of the whole table."""
    return minimise(problem, np.repeat(point[None], len(weights), axis=0), weights=weights, held=held, polish=polish)


def bootstrap_intervals(
    problem: FitProblem,
    point: FloatArray,
    held: np.ndarray,
    table: FitTable,
    level: float,
    resamples: int,
    seed: int,
) -> list[Interval]:
    """Return percentile intervals of the refitted parameters."""
    weights = bootstrap_weights(table, resamples, seed) * table.weights
    values = problem.natural(bootstrap_points(problem, point, held, weights, polish=True).points)
    low, high = np.quantile(values, [0.5 * (1.0 - level), 0.5 * (1.0 + level)], axis=0)
    return [Interval(float(low[i]), float(high[i])) for i in range(point.size)]
