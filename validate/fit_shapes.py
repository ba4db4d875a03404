"""Every shape of a depth law at once: with its size solved for, a law is its plateau's share and one shape parameter.

A depth law is ``A [w + (1-w) h(L)]``: A its size, w the plateau's share, h the falling term, 1 at the smallest depth
(at most 1 in size there for the corrected law). The least squares size for given w and h is a closed form, on log
residuals and on linear ones, and the losses enter by their means at each depth; so what is left of any table is a
function of at most two bounded numbers, which can be scanned whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from theory.checks import FloatArray
from theory.depth_laws import EXPONENT_RANGE, LARGEST_CORRELATION, ar1
from validate.fit_engine import minimise
from validate.fit_problem import LARGEST_LOG, ROUNDING_RESIDUAL, FitProblem

# The scan: plateau's shares evenly on the logit scale, shapes evenly on the scale that `shape_grid` names.
LOGITS = np.linspace(-25.0, 25.0, 251)
SHAPES = 321
# Local minima of the scan that are followed down.
MOST_MINIMA = 24


@dataclass(frozen=True)
class ShapeTable:
    """A table as its depths' means, each (J,): all that least squares needs besides the scatter within depths.

    Attributes
    ----------
    depth, mean, weight
        Distinct depths, the weighted mean of the losses (of their logarithms, if ``logarithmic``), total weight.
    within
        Weighted sum of squares about the means.
    rows
        Number of rows.
    logarithmic
        Whether residuals are those of log loss.
    """

    depth: FloatArray
    mean: FloatArray
    weight: FloatArray
    within: float
    rows: int
    logarithmic: bool


def shape_table(problem: FitProblem, weights: FloatArray) -> ShapeTable:
    """Return the means of a problem's rows at each depth.

    Raises
    ------
    ValueError
        If the law has other variables than depth, or the cost is not least squares.
    """
    if problem.law.variables != ("depth",) or problem.robust != "linear":
        raise ValueError(f"law={problem.law.name!r}: only depth laws with a least squares cost have a table of shapes")
    logarithmic = problem.residuals == "log"
    losses = np.log(problem.loss_values) if logarithmic else problem.loss_values
    share = weights if problem.sigma is None else weights / problem.sigma**2
    depth, place = np.unique(problem.columns["depth"], return_inverse=True)
    weight = np.bincount(place, weights=share).astype(np.float64)
    mean = np.bincount(place, weights=share * losses) / weight
    within = float(np.sum(share * (losses - mean[place]) ** 2))
    return ShapeTable(depth, mean, weight, within, problem.rows, logarithmic)


def falling_terms(law: str, depth: FloatArray, shape: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return h at each depth, (T, J), for shapes (T,), and the size of the law's own term where h is 1, (T,).

    The shape is the law's exponent, decay depth or correlation; for the corrected law the angle of
    (coefficient, second_coefficient / layer); it is not used by laws that have none.
    """
    first, x = depth[0], depth[0] / depth
    given = np.asarray(shape, dtype=np.float64)[:, None]
    if law in {"power", "spectral"}:
        return np.exp(given * np.log(x)), np.exp(-given[:, 0] * np.log(first))
    if law == "exponential":
        return np.exp(-(depth - first) / given), np.exp(-first / given[:, 0])
    if law == "ar1":
        size = ar1(first, 0.0, 1.0, given)
        return ar1(depth, 0.0, 1.0, given) / size, size[:, 0]
    if law == "inverse-depth-corrected":
        size = np.cos(given) / first + np.abs(np.sin(given)) / first**2
        return (np.cos(given) / depth + np.sin(given) / depth**2) / size, size[:, 0]
    power = {"inverse-depth": 1.0, "discretisation": 2.0}[law]
    return np.broadcast_to(x**power, (given.shape[0], depth.size)), np.full(given.shape[0], first**-power)


def shape_grid(law: str) -> FloatArray:
    """Return shapes over the whole domain of a law, even on the log scale or in angle; one where it has none."""
    if law in {"power", "spectral"}:
        return np.geomspace(*EXPONENT_RANGE, SHAPES)
    if law == "exponential":
        return np.geomspace(1e-2, 1e6, SHAPES)
    if law == "ar1":
        # Even in the sum of the correlations (1+r)/(1-r), on the log scale.
        longest = (1.0 + LARGEST_CORRELATION) / (1.0 - LARGEST_CORRELATION)
        sums = np.geomspace(1.0, longest, SHAPES)
        return np.clip((sums - 1.0) / (sums + 1.0), 0.0, LARGEST_CORRELATION)
    if law == "inverse-depth-corrected":
        return np.linspace(-0.5 * np.pi, 0.5 * np.pi, SHAPES + 2)[1:-1]
    return np.ones(1)


# A corrected law may be negative at some depth: its logarithm is not defined there, and the cost is infinite.
@np.errstate(invalid="ignore", divide="ignore")
def shape_costs(table: ShapeTable, term: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the cost at the best size, and that size, for terms (..., J) and plateau's shares (...)."""
    level = share[..., None] + (1.0 - share[..., None]) * term
    weight = table.weight
    if table.logarithmic:
        off = np.where(level > 0, np.log(level), np.nan) - table.mean
        centre = off @ weight / weight.sum()
        squares = (off - centre[..., None]) ** 2 @ weight
        size = np.exp(-centre)
    else:
        size = (level * table.mean) @ weight / (level**2 @ weight)
        squares = (size[..., None] * level - table.mean) ** 2 @ weight
        squares = np.where(size > 0, squares, np.nan)
    return np.where(np.isnan(squares), np.inf, 0.5 * (squares + table.within)), size


def least_cost(problem: FitProblem, weights: FloatArray) -> tuple[float, FloatArray]:
    """Return the least cost over every shape of a depth law, and its point on the search scale, (k,).

    The scan covers the domain of the shape and shares of the plateau from 1e-11 to 1 - 1e-11; each of its local
    minima is followed down. A minimum that the scan does not see is narrower than a step of the grid in both: the
    exponent (or decay depth) to 3 % (6 %), and the odds of the plateau's share to 20 %.

    Raises
    ------
    ValueError
        If the law has other variables than depth, or the cost is not least squares.
    """
    table, law = shape_table(problem, weights), problem.law.name
    shape = shape_grid(law)
    term, unit = falling_terms(law, table.depth, shape)
    share = np.zeros(1) if law == "spectral" else np.append(0.0, 1.0 / (1.0 + np.exp(-LOGITS)))
    costs, size = shape_costs(table, term[:, None, :], np.broadcast_to(share, (shape.size, share.size)))
    # A coefficient too large for float64 belongs to a term that is a step: so do smaller ones, with the same cost.
    with np.errstate(divide="ignore"):
        logarithm = np.log(size * (1.0 - share)) - np.log(unit)[:, None]
    where = np.argwhere(_local_minima(np.where(logarithm < LARGEST_LOG, costs, np.inf)))
    where = where[np.argsort(costs[where[:, 0], where[:, 1]])][:MOST_MINIMA]
    at, of = where[:, 0], where[:, 1]
    plateau, fall = size[at, of] * share[of], size[at, of] * (1.0 - share[of]) / unit[at]
    values = {"plateau": plateau, "coefficient": fall, "exponent": shape[at], "decay_depth": shape[at]}
    values["correlation"] = shape[at]
    if law == "inverse-depth-corrected":
        values |= {"coefficient": fall * np.cos(shape[at]), "second_coefficient": fall * np.sin(shape[at])}
    points = problem.searched(np.stack([values[name] for name in problem.law.parameter_names], axis=1))
    found = minimise(problem, points, weights=weights)
    best = int(np.argmin(found.costs))
    return float(found.costs[best]), found.points[best]


def rounding_cost(table: ShapeTable) -> float:
    """Return the cost of residuals that are rounding."""
    size = 1.0 if table.logarithmic else float(np.max(np.abs(table.mean)))
    return 0.5 * ROUNDING_RESIDUAL**2 * size**2 * float(table.weight.sum())


def _local_minima(costs: FloatArray) -> np.ndarray:
    """Return which entries of a grid, (T, W), are least among their neighbours; of equal ones in a row, the last."""
    padded = np.pad(costs, 1, constant_values=np.inf)
    out = np.isfinite(costs)
    rows, columns = costs.shape
    for down in range(3):
        for right in range(3):
            neighbour = padded[down : down + rows, right : right + columns]
            later = (down, right) > (1, 1)
            out &= (costs < neighbour) if later else (costs <= neighbour)
    return np.asarray(out)
