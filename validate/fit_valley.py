"""Along a curved valley: the least cost at each shape, sizes solved anew, followed down in the shape alone.

An exponential that decays within the first depth, a power near a logarithm or a straight line: sizes and shape trade
off over many decades, along a valley too curved for steps in all parameters at once. With the sizes solved for, one
number is left.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from theory.checks import FloatArray
from validate.fit_problem import FitProblem

SHAPES = ("exponent", "decay_depth", "correlation")
# First step in the shape: a factor e^0.1 on a log scale, 0.01 in a correlation.
FIRST_STEPS = {"log": 0.1, "linear": 0.01}
MOST_STEPS = 60
# Accuracy of the shape at the bottom, and the relative gain at which the sizes are solved.
BOTTOM = 1e-9
SOLVED = 1e-15


def valley_bottom(problem: FitProblem, start: FloatArray, weights: FloatArray, held: np.ndarray) -> FloatArray:
    """Return the point of least cost that the valley through ``start`` leads to, (k,), on the search scale.

    ``start`` itself where the law has no free shape parameter, or more than one.
    """
    names = problem.law.parameter_names
    shapes = [names.index(name) for name in SHAPES if name in names and not held[names.index(name)]]
    if len(shapes) != 1:
        return start
    place = shapes[0]
    low, high = float(problem.lower[place]), float(problem.upper[place])
    best, least = start, np.inf

    def cost_at(shape: float) -> float:
        nonlocal best, least
        costs = []
        for near in (start, best):
            point = near.copy()
            point[place] = shape
            point, cost = _solved_sizes(problem, point, weights, held)
            costs.append(cost)
            if cost < least:
                best, least = point, cost
        return min(costs)

    at, step = float(start[place]), FIRST_STEPS[problem.law.parameters[place].scale]
    here, last = cost_at(at), 0.0
    for direction in (1.0, -1.0):
        for _ in range(MOST_STEPS):
            there = float(np.clip(at + direction * step, low, high))
            if there == at or (cost := cost_at(there)) >= here:
                break
            at, here, last = there, cost, step
            step *= 2.0
        if last > 0:
            break
    # The bottom lies between the last place but one and the first that is no lower.
    ends = max(at - max(last, step), low), min(at + max(last, step), high)
    minimize_scalar(cost_at, bounds=ends, method="bounded", options={"xatol": BOTTOM})
    return best


def _solved_sizes(
    problem: FitProblem, point: FloatArray, weights: FloatArray, held: np.ndarray
) -> tuple[FloatArray, float]:
    """Return the point with its plateau and coefficients at the least cost for its shape, and that cost.

    Gauss-Newton in the sizes themselves, in which the law is linear, however large they are beside their sum.
    """
    names = problem.law.parameter_names
    sizes = np.array([name == "plateau" or name.endswith("coefficient") for name in names]) & ~held
    lower = np.where(problem.logarithmic, 0.0, problem.lower)
    cost = float(problem.cost(point[None], weights[None])[0])
    fresh = True
    for _ in range(MOST_STEPS):
        values = problem.natural(point)
        columns = [problem.columns[name] for name in problem.law.variables]
        parts = problem.law.gradient(*columns, *values)
        basis = np.stack([np.broadcast_to(part, problem.rows) for part in parts], axis=1)
        predicted = problem.predicted(point[None])[0]
        data = problem.loss_values
        # The first solution, far away perhaps, is that of relative residuals.
        scale = (data if fresh else predicted) if problem.residuals == "log" else np.ones(problem.rows)
        if problem.sigma is not None:
            scale = scale * problem.sigma
        residual = problem.residual(point[None])[0]
        root = np.sqrt(weights) if fresh else np.sqrt(weights * problem.influence(residual)[2])
        aim = (data - predicted) / scale if fresh else -residual
        free = sizes.copy()
        for _ in range(2):
            matrix = basis[:, free] * (root / scale)[:, None]
            norm = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
            if not np.all(np.isfinite(matrix)):
                return point, cost
            change = np.zeros(values.size)
            change[free] = np.linalg.lstsq(matrix / norm, aim * root, rcond=1e-15)[0] / norm
            moved = values + change
            out = free & (moved < lower) & ~problem.logarithmic
            if not out.any():
                break
            # A plateau below its domain rests on its end, and the others are solved for again.
            aim = aim - (basis[:, out] @ (lower - values)[out]) * (1.0 / scale)
            values = np.where(out, lower, values)
            free = free & ~out
        moved = np.where(problem.logarithmic & sizes, np.maximum(moved, 0.1 * values), moved)
        trial = np.where(sizes, problem.searched(moved), point)
        found = float(problem.cost(trial[None], weights[None])[0])
        if not found < cost * (1.0 - SOLVED):
            if found < cost:
                point, cost = trial, found
            if not fresh:
                break
        else:
            point, cost = trial, found
        fresh = False
    return point, cost
