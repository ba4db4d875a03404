"""Many fits at once: damped Gauss-Newton, then Newton, on a batch of starts, resamples or profile points.

Every fit of the batch minimises its problem's cost with its own start, row weights and held parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from theory.checks import FloatArray
from validate.fit_problem import ROUNDING_RESIDUAL, FitProblem, slope_of_cost

# A fit has converged when a Newton step would lower the cost by less than this share of it.
DECREMENT = 1e-10
# Along a flat valley differences of the gradient are mostly rounding: this is accepted there. At 100 rows it moves
# the parameters along the valley by a hundredth of a standard error.
FLAT_DECREMENT = 1e-6
# Least eigenvalue of the Hessian, scaled to a unit diagonal, below which a valley counts as flat.
FLAT_CURVATURE = 1e-6
# Points whose Newton step gains less than this share of the cost are refined by further Newton steps, which need not
# lower a cost that rounding leaves as it is.
NEARLY = 1e-6
REFINEMENTS = 4
# A few units in the last place of a parameter.
PARAMETER_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
# Steps of the two phases.
GAUSS_NEWTON_STEPS = 60
NEWTON_STEPS = 25
# A parameter that descends to an end of its domain rests on it from this distance on, in units of its size.
TOUCHING = 1e-7
# Numbers in one Jacobian of a batch: larger batches are cut.
LARGEST_BATCH = 4_000_000
# No step is longer than this on the search scale.
LONGEST_STEP = 1e6


@dataclass(frozen=True)
class Optima:
    """What a batch of fits ended with.

    Attributes
    ----------
    points
        Parameters on their search scale, (B, k).
    costs
        (B,).
    decrements
        What a Newton step would still gain, as a share of the cost, (B,).
    converged
        Whether that is below ``DECREMENT``, or the residuals are rounding, (B,).
    flat
        Whether the cost is flat to rounding along some direction of the free parameters, (B,).
    """

    points: FloatArray
    costs: FloatArray
    decrements: FloatArray
    converged: np.ndarray
    flat: np.ndarray

    def take(self, rows: slice | np.ndarray) -> Optima:
        """Return some of the fits."""
        return Optima(self.points[rows], self.costs[rows], self.decrements[rows], self.converged[rows], self.flat[rows])


# Trial points far from the data overflow: they cost infinity and are never taken.
@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def minimise(
    problem: FitProblem,
    starts: FloatArray,
    *,
    weights: FloatArray | None = None,
    held: np.ndarray | None = None,
    polish: bool = True,
    settle: float = 1e-15,
    newton_steps: int = NEWTON_STEPS,
) -> Optima:
    """Return the local minimum that each start leads to.

    Parameters
    ----------
    starts
        Parameters on their search scale, (B, k).
    weights
        Row weights, (n,) or (B, n); 1 if ``None``.
    held
        Which parameters stay where they start, (k,) or (B, k); none if ``None``.
    polish
        Whether Newton steps on the exact Hessian follow.
    settle
        A fit stops when a step lowers its cost by less than this share of it.
    newton_steps
        Most Newton steps.
    """
    points = np.clip(np.array(starts, dtype=float, ndmin=2), problem.lower, problem.upper)
    batch = len(points)
    row_weights = np.broadcast_to(np.ones(problem.rows) if weights is None else weights, (batch, problem.rows))
    fixed = np.broadcast_to(np.zeros(points.shape[1], dtype=bool) if held is None else held, points.shape)
    most = max(LARGEST_BATCH // (problem.rows * points.shape[1]), 1)
    if batch > most:
        places = [np.arange(first, min(first + most, batch)) for first in range(0, batch, most)]
        options: dict[str, Any] = {"polish": polish, "settle": settle, "newton_steps": newton_steps}
        parts = [
            minimise(problem.members(rows), points[rows], weights=row_weights[rows], held=fixed[rows], **options)
            for rows in places
        ]
        return Optima(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Optima)))
    points, costs = _descend(problem, points, row_weights, fixed, exact=False, limit=GAUSS_NEWTON_STEPS, settle=settle)
    if polish:
        points, costs = _descend(problem, points, row_weights, fixed, exact=True, limit=newton_steps, settle=settle)
    points, costs, decrements, flat = _settled(problem, points, costs, row_weights, fixed)
    converged = (decrements < DECREMENT) | (costs <= rounding_cost(problem, row_weights))
    doubtful = np.flatnonzero(~converged & np.isfinite(costs))
    if doubtful.size:
        floor = _representable_cost(problem.members(doubtful), points[doubtful], row_weights[doubtful])
        converged[doubtful] = costs[doubtful] <= floor
    return Optima(points, costs, decrements, converged, flat)


def rounding_cost(problem: FitProblem, weights: FloatArray) -> FloatArray:
    """Return the cost of residuals that are rounding, for row weights (..., n)."""
    return np.asarray(0.5 * ROUNDING_RESIDUAL**2 * np.sum(weights, axis=-1) * problem.unit)


def _representable_cost(problem: FitProblem, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the cost of the residuals that the rounding of the parameters themselves makes, (B,)."""
    residual = np.abs(problem.jacobian(points)) @ np.abs(points)[:, :, None] * PARAMETER_ROUNDING
    return np.asarray(0.5 * np.sum(weights * residual[:, :, 0] ** 2, axis=-1))


def _frozen(problem: FitProblem, points: FloatArray, gradient: FloatArray, fixed: np.ndarray) -> np.ndarray:
    """Return which parameters cannot move: held ones, and those at an end with the descent pointing out."""
    at_lower = (points <= problem.lower) & (gradient > 0)
    at_upper = (points >= problem.upper) & (gradient < 0)
    return fixed | at_lower | at_upper


def _snapped(problem: FitProblem, points: FloatArray, gradient: FloatArray, fixed: np.ndarray) -> FloatArray:
    """Return the points with parameters moved onto an end of their domain that they all but touch and descend to."""
    low = ~fixed & (points - problem.lower < TOUCHING * problem.sizes) & (gradient > 0)
    high = ~fixed & (problem.upper - points < TOUCHING * problem.sizes) & (gradient < 0)
    return np.where(low, problem.lower, np.where(high, problem.upper, points))


def _quadratic(
    problem: FitProblem, points: FloatArray, weights: FloatArray, *, exact: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the gradient (B, k) and the curvature (B, k, k): exact, or that of the reweighted normal equations."""
    residual, jacobian = problem.linearised(points)
    psi, _, reweighting = problem.influence(residual)
    gradient = slope_of_cost(weights * psi, jacobian)
    normal = np.swapaxes(jacobian, 1, 2) @ ((weights * reweighting)[:, :, None] * jacobian)
    if not exact:
        return gradient, normal
    hessian = problem.hessian(points, weights)
    # Next to where the law is undefined the differences are too: the normal equations stand in.
    defined = np.all(np.isfinite(hessian), axis=(1, 2))
    return gradient, np.where(defined[:, None, None], hessian, normal)


def _steps(curvature: FloatArray, gradient: FloatArray, frozen: np.ndarray, damping: FloatArray) -> FloatArray:
    """Return damped steps that lower the cost, frozen parameters left where they are."""
    free = ~frozen
    matrix = curvature * (free[:, :, None] & free[:, None, :])
    diagonal = np.einsum("bkk->bk", matrix)
    scale = np.sqrt(np.maximum(np.abs(diagonal), 1e-300))
    scale = np.where(free, scale, 1.0)
    matrix = matrix / (scale[:, :, None] * scale[:, None, :])
    matrix = np.nan_to_num(matrix, posinf=0.0, neginf=0.0) + np.eye(matrix.shape[1]) * frozen[:, None, :]
    values, vectors = np.linalg.eigh(matrix)
    # A negative curvature is turned round, so that the step goes down; a vanishing one is left to the damping.
    values = np.maximum(np.abs(values), 1e-14) + damping[:, None]
    with np.errstate(over="ignore"):
        along = np.einsum("bkj,bk->bj", vectors, np.where(free, gradient, 0.0) / scale) / values
        step = np.where(free, -np.einsum("bkj,bj->bk", vectors, along) / scale, 0.0)
    return np.nan_to_num(np.clip(step, -LONGEST_STEP, LONGEST_STEP))


def _descend(
    problem: FitProblem,
    points: FloatArray,
    weights: FloatArray,
    fixed: np.ndarray,
    *,
    exact: bool,
    limit: int,
    settle: float,
) -> tuple[FloatArray, FloatArray]:
    points = points.copy()
    costs = problem.cost(points, weights)
    damping = np.full(len(points), 0.0 if exact else 1e-3)
    active = np.isfinite(costs)
    for _ in range(limit):
        rows = np.flatnonzero(active)
        if not rows.size:
            break
        part = problem.members(rows)
        here, weight = points[rows], weights[rows]
        gradient, curvature = _quadratic(part, here, weight, exact=exact)
        here = _snapped(problem, here, gradient, fixed[rows])
        frozen = _frozen(problem, here, gradient, fixed[rows])
        whole = _steps(curvature, gradient, frozen, damping[rows])
        settled = -0.5 * np.einsum("bk,bk->b", gradient, whole) <= settle * costs[rows]
        waiting = np.flatnonzero(~settled)
        # Shorter steps until the cost falls; a fit whose cost no step lowers has settled.
        for attempt in range(12):
            if not waiting.size:
                break
            index = rows[waiting]
            step = whole[waiting]
            if attempt:
                step = _steps(curvature[waiting], gradient[waiting], frozen[waiting], damping[index])
            trial = np.clip(here[waiting] + step, problem.lower, problem.upper)
            cost = part.members(waiting).cost(trial, weight[waiting])
            gain = costs[index] - cost
            better = gain > 0
            chosen = index[better]
            points[chosen], costs[chosen] = trial[better], cost[better]
            settled[waiting[better]] = gain[better] <= settle * costs[chosen]
            damping[chosen] = np.where(damping[chosen] < 1e-11, 0.0, damping[chosen] / 8.0)
            waiting = waiting[~better]
            damping[rows[waiting]] = np.maximum(damping[rows[waiting]] * 8.0, 1e-6)
        settled[waiting] = True
        active[rows[settled]] = False
    return points, costs


def _settled(
    problem: FitProblem, points: FloatArray, costs: FloatArray, weights: FloatArray, fixed: np.ndarray
) -> tuple[FloatArray, FloatArray, FloatArray, np.ndarray]:
    """Return the points resting on the ends they touch, their costs, what a Newton step would gain, and flatness."""
    points, costs, decrements = points.copy(), costs.copy(), np.full(len(points), np.inf)
    flat = np.zeros(len(points), dtype=bool)
    rows = np.flatnonzero(np.isfinite(costs))
    if not rows.size:
        return points, costs, decrements, flat
    part = problem.members(rows)
    points[rows] = _snapped(part, points[rows], part.gradient(points[rows], weights[rows]), fixed[rows])
    step = np.zeros((rows.size, points.shape[1]))
    for trial in range(REFINEMENTS):
        part, weight = problem.members(rows), weights[rows]
        here = np.clip(points[rows] + step, problem.lower, problem.upper)
        cost = part.cost(here, weight)
        gradient, curvature = _quadratic(part, here, weight, exact=True)
        frozen = _frozen(part, here, gradient, fixed[rows])
        step = _steps(curvature, gradient, frozen, np.full(rows.size, 1e-12))
        gain = 0.5 * np.abs(np.einsum("bk,bk->b", gradient, step))
        share = np.where(gain == 0, 0.0, gain / np.maximum(cost, 1e-300))
        share = np.where(np.isfinite(share), share, np.inf)
        # The cost no longer tells such points apart; the gradient does.
        rounding = 2.0 * np.sqrt(costs[rows] * rounding_cost(problem, weight))
        better = (share < decrements[rows]) & (cost <= costs[rows] + rounding) | (trial == 0)
        chosen = rows[better]
        points[chosen], costs[chosen], decrements[chosen] = here[better], cost[better], share[better]
        flat[chosen] = _flatness(curvature[better], frozen[better])
        waiting = better & (share >= DECREMENT) & (share < NEARLY)
        rows, step = rows[waiting], step[waiting]
        if not rows.size:
            break
    return points, costs, decrements, flat


def _flatness(curvature: FloatArray, frozen: np.ndarray) -> np.ndarray:
    """Return whether the curvature among free parameters, scaled to a unit diagonal, vanishes along a direction."""
    free = ~frozen
    scale = np.sqrt(np.maximum(np.abs(np.einsum("bkk->bk", curvature)), 1e-300))
    matrix = curvature / (scale[:, :, None] * scale[:, None, :]) * (free[:, :, None] & free[:, None, :])
    matrix = np.nan_to_num(matrix, posinf=0.0, neginf=0.0) + np.eye(matrix.shape[1]) * frozen[:, None, :]
    return np.asarray(np.linalg.eigvalsh(matrix).min(axis=1) < FLAT_CURVATURE)
