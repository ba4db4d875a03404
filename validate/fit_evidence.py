"""Probabilities of depth laws: the likelihood of the losses averaged over each law's shapes, sizes and noise.

AICc plugs in the best parameters and the best noise; on a dozen rows that promises far too much. Here they are
integrated out. Every law is ``A [w + (1-w) h(L; shape)]`` (`validate.fit_shapes`). The size A and, where no standard
errors are given, the noise have the scale-free priors 1/A and 1/noise, the same for all laws, and leave closed forms;
the plateau's share w at the smallest depth is uniform on (0, 1), and the shape has the range that the fit's starts
have. With n rows the evidence is ``integral prior (cost)^(-(n-1)/2)`` with unknown noise and
``integral prior exp(-cost)`` with known; both integrals are done by nested adaptive quadrature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp

from theory.checks import FloatArray
from validate.fit_problem import FitProblem
from validate.fit_shapes import ShapeTable, falling_terms, rounding_cost, shape_costs, shape_table
from validate.fit_starts import CORRELATIONS, EXPONENTS

# Nodes of one pass of Simpson's rule; narrowing ends when the part that matters fills half of them.
NODES = 33
MOST_NODES = 1025
# Change of a log integral at which doubling the nodes ends.
SETTLED = 1e-3
FILLED = 16
MOST_PASSES = 24
# What lies this far below the maximum, in logarithms, does not matter.
DROP = 18.0


def log_evidence(problem: FitProblem, weights: FloatArray, held: np.ndarray, point: FloatArray) -> float:
    """Return the log evidence of a depth law, up to a constant that all laws on one table share.

    NaN where the law's parameters are held so that it has no such form (a plateau other than 0, a coefficient), where
    the plateau's domain does not start at 0, where the cost is not least squares, and, with unknown noise, where the
    rows are no more than the free parameters.

    Parameters
    ----------
    problem, weights
        The fit's; weights (n,).
    held, point
        Which parameters are held, and where, (k,), on the search scale.
    """
    names = problem.law.parameter_names
    known = problem.sigma is not None
    if problem.law.variables != ("depth",) or problem.robust != "linear":
        return np.nan
    if not known and problem.rows <= int(np.sum(~held)):
        return np.nan
    places = {name: place for place, name in enumerate(names)}
    flat = "plateau" not in names
    if not flat:
        plateau = places["plateau"]
        flat = bool(held[plateau])
        if (flat and point[plateau] != 0) or (not flat and problem.lower[plateau] != 0):
            return np.nan
    if held[places["coefficient"]]:
        return np.nan
    table = shape_table(problem, weights / np.mean(weights))
    shape = next(
        (name for name in ("exponent", "decay_depth", "correlation", "second_coefficient") if name in names), ""
    )
    if shape == "second_coefficient" and held[places[shape]]:
        return np.nan
    given = problem.natural(point)[places[shape]] if shape and held[places[shape]] else None
    law, depth = problem.law.name, table.depth

    def over_shares(unit: FloatArray) -> FloatArray:
        """Return the log evidence at prior quantiles of the shape, (T,)."""
        at = np.full(unit.size, given) if given is not None else _shape_of(shape, unit, depth)
        term = falling_terms(law, depth, at)[0]
        if flat:
            return _log_likelihood(table, term, np.zeros(unit.size), known)
        return log_integrals(
            lambda rows, share: _log_likelihood(table, term[rows, None, :], share, known), unit.size, together=True
        )

    if not shape or given is not None:
        return float(over_shares(np.full(1, 0.5))[0])
    return float(log_integrals(lambda _, unit: over_shares(unit[0])[None], 1)[0])


def law_probabilities(evidence: Sequence[float] | FloatArray) -> FloatArray:
    """Return the probability of each law, all equally likely before; NaN for one without evidence."""
    values = np.asarray(evidence, dtype=np.float64)
    some = np.isfinite(values)
    out = np.full(values.shape, np.nan)
    if some.any():
        out[some] = np.exp(values[some] - logsumexp(values[some]))
    return out


def log_integrals(
    function: Callable[[np.ndarray, FloatArray], FloatArray], rows: int, *, together: bool = False
) -> FloatArray:
    """Return the logarithm of the integral of ``exp(function)`` over (0, 1) for each of ``rows`` functions.

    Simpson's rule on the part of the interval that matters: found by narrowing until it fills half of the nodes, then
    refined by doubling the nodes until the integral settles.

    Parameters
    ----------
    function
        ``function(rows, u)``: the values of the functions ``rows``, (R,), at their nodes u, (R, N).
    rows
        How many functions there are.
    together
        Whether the integrals will be summed: those that do not matter in the sum are then left rough.
    """
    low, high, out = np.zeros(rows), np.ones(rows), np.full(rows, -np.inf)
    active = np.arange(rows)
    for _ in range(MOST_PASSES):
        width = high[active] - low[active]
        values, out[active] = _simpson(function, active, low[active], width, NODES)
        top = values.max(axis=1)
        matters = values > top[:, None] - DROP
        first = np.maximum(np.argmax(matters, axis=1) - 1, 0)
        last = np.minimum(NODES - np.argmax(matters[:, ::-1], axis=1), NODES - 1)
        narrow = np.isfinite(top) & (last - first < FILLED)
        low[active] += width * first / (NODES - 1)
        high[active] = low[active] + width * (last - first) / (NODES - 1)
        active = active[narrow]
        if not active.size:
            break
    matters = np.isfinite(out) & (not together or out > out.max() - DROP)
    active, nodes = np.flatnonzero(matters), NODES
    while active.size and nodes < MOST_NODES:
        nodes = 2 * nodes - 1
        _, finer = _simpson(function, active, low[active], high[active] - low[active], nodes)
        moved = np.abs(finer - out[active]) > SETTLED
        out[active] = finer
        active = active[moved]
    return out


def _simpson(
    function: Callable[[np.ndarray, FloatArray], FloatArray],
    rows: np.ndarray,
    low: FloatArray,
    width: FloatArray,
    nodes: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the values at the nodes, (R, N), and the log integrals over the intervals, (R,)."""
    weight = np.full(nodes, 2.0)
    weight[1::2] = 4.0
    weight[[0, -1]] = 1.0
    values = function(rows, low[:, None] + width[:, None] * np.linspace(0.0, 1.0, nodes))
    top = values.max(axis=1)
    usable = np.isfinite(top)
    shifted = np.exp(values - np.where(usable, top, 0.0)[:, None])
    with np.errstate(divide="ignore"):
        sums = np.log(shifted @ weight * width / (3.0 * (nodes - 1)))
    return values, np.where(usable, top + sums, -np.inf)


def _shape_of(name: str, unit: FloatArray, depth: FloatArray) -> FloatArray:
    """Return the shape at prior quantiles: log-uniform exponents and decay depths, uniform correlations.

    The corrected law's ``second_coefficient / coefficient`` is Cauchy about 0 with a scale of one layer: an expansion
    in 1/L has coefficients of order one.
    """
    if name == "exponent":
        return EXPONENTS[0] * (EXPONENTS[1] / EXPONENTS[0]) ** unit
    if name == "decay_depth":
        low, high = 0.2 * depth[0], 5.0 * depth[-1]
        return np.asarray(low * (high / low) ** unit, dtype=np.float64)
    if name == "correlation":
        return CORRELATIONS[0] + unit * (CORRELATIONS[1] - CORRELATIONS[0])
    return np.pi * (unit - 0.5)


def _log_likelihood(table: ShapeTable, term: FloatArray, share: FloatArray, known: bool) -> FloatArray:
    """Return the log likelihood with the size, and the noise unless known, integrated out."""
    costs, size = shape_costs(table, term, share)
    if known:
        out = -costs
    else:
        with np.errstate(divide="ignore"):
            out = -0.5 * (table.rows - 1) * np.log(np.maximum(costs, rounding_cost(table)))
    if not table.logarithmic:
        level = share[..., None] + (1.0 - share[..., None]) * term
        with np.errstate(invalid="ignore", divide="ignore"):
            out = out - np.log(size) - 0.5 * np.log(level**2 @ table.weight)
    return np.where(np.isnan(out), -np.inf, out)
