"""Every shape of a law at once: the reduced cost against plain minimisation, the scan against many starts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from benchmarks.recovery import draw_table
from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SAME_OPTIMUM
from theory.depth_laws import DEPTH_LAWS, additive_law
from validate import fit_depth_law
from validate.fit_engine import minimise
from validate.fit_problem import FitProblem
from validate.fit_shapes import falling_terms, least_cost, shape_costs, shape_grid, shape_table
from validate.fit_starts import sobol_starts

DEPTH = np.repeat([2.0, 3.0, 5.0, 9.0, 17.0], [3, 1, 2, 4, 1])


def problem(rng: np.random.Generator, law: str = "power", *, known: bool = False, residuals: str = "log") -> FitProblem:
    loss = (1.3 + 2.0 / DEPTH**0.8) * np.exp(0.02 * rng.standard_normal(DEPTH.size))
    sigma = rng.uniform(0.01, 0.03, DEPTH.size) if known else None
    return FitProblem(DEPTH_LAWS[law], {"depth": DEPTH}, loss, sigma, residuals)


@pytest.mark.parametrize("law", DEPTH_LAWS)
def test_terms_are_the_laws(law: str) -> None:
    """Size times h is the law itself without its plateau, at every depth and shape of the grid."""
    depth = np.unique(DEPTH)
    shapes = shape_grid(law)
    # Decay depths at which the law itself underflows have nothing to compare with.
    shapes = shapes[shapes > 0.1] if law == "exponential" else shapes
    term, size = falling_terms(law, depth, shapes)
    for place in range(0, shapes.size, 16):
        shape = shapes[place]
        given = {"plateau": 0.0, "coefficient": 1.0, "exponent": shape, "decay_depth": shape, "correlation": shape}
        if law == "inverse-depth-corrected":
            given |= {"coefficient": np.cos(shape), "second_coefficient": np.sin(shape)}
        expected = DEPTH_LAWS[law](depth, **{name: given[name] for name in DEPTH_LAWS[law].parameter_names})
        np.testing.assert_allclose(size[place] * term[place], expected, rtol=ROUNDOFF_LONG, atol=ROUNDOFF)
    if law != "inverse-depth-corrected":
        np.testing.assert_allclose(term[:, 0], 1.0, rtol=ROUNDOFF)


@pytest.mark.parametrize("residuals", ["log", "linear"])
@pytest.mark.parametrize("known", [False, True])
def test_the_size_is_solved_for(rng: np.random.Generator, residuals: str, known: bool) -> None:
    """Against a search over the size on all rows, not on the means."""
    given = problem(rng, known=known, residuals=residuals)
    weights = rng.uniform(0.5, 2.0, DEPTH.size)
    table = shape_table(given, weights)
    term = falling_terms("power", table.depth, np.array([0.7]))[0]
    for share in (0.0, 0.2, 0.9):
        cost, size = shape_costs(table, term, np.array([share]))

        def at(logarithm: float, share: float = share) -> float:
            values = np.exp(logarithm) * np.array([share, (1 - share) * 2.0**0.7])
            point = np.array([[values[0], np.log(values[1]), np.log(0.7)]])
            return float(given.cost(point, weights[None])[0])

        found = minimize_scalar(at, bracket=(-1.0, 1.0), tol=1e-12)
        assert cost[0] == pytest.approx(found.fun, rel=ROUNDOFF_LONG)
        assert size[0] == pytest.approx(np.exp(found.x), rel=SAME_OPTIMUM)


@pytest.mark.parametrize("law", DEPTH_LAWS)
def test_the_scan_finds_what_many_starts_find(law: str) -> None:
    """Neither the fit nor 512 starts followed down end lower or higher than the scan of all shapes."""
    searched = 0
    for index in range(20_000, 20_004):
        depth, loss, _, _ = draw_table(law, index)
        fit = fit_depth_law(depth, loss, law=law, intervals="none", starts=16)
        if not fit.answered or searched == 2:
            continue
        searched += 1
        cost, point = least_cost(fit.problem, fit.row_weights)
        starts = minimise(fit.problem, sobol_starts(fit.problem, 512, seed=9), polish=False)
        assert cost <= starts.costs.min() * (1 + ROUNDOFF_LONG)
        assert cost == pytest.approx(fit.objective, rel=ROUNDOFF_LONG)
        assert fit.problem.cost(point[None], fit.row_weights[None])[0] == pytest.approx(cost, rel=ROUNDOFF_LONG)
    assert searched == 2


def test_the_scan_sees_both_valleys() -> None:
    """Losses with two local optima of the exponential: descents from either side part, the scan takes the lower."""
    depth = np.array([1.0, 2, 3, 50, 60, 70])
    loss = np.array([3.0, 1.9, 1.95, 1.92, 1.4, 1.0])
    given = FitProblem(DEPTH_LAWS["exponential"], {"depth": depth}, loss)
    ends = minimise(given, given.searched(np.array([[1.6, 5.0, 0.6], [0.1, 2.0, 80.0]]))).costs
    assert ends.max() > 1.002 * ends.min()
    assert least_cost(given, np.ones(6))[0] == pytest.approx(ends.min(), rel=ROUNDOFF_LONG)


def test_the_scan_is_not_caught_on_a_flat(rng: np.random.Generator) -> None:
    """A step: every short decay depth costs the same to rounding, and the least of them is a limit."""
    depth = np.array([10.0, 17, 19, 21, 30, 38, 42, 60])
    loss = np.where(depth < 11, 0.7, 0.636) * np.exp(0.02 * rng.standard_normal(8))
    given = FitProblem(DEPTH_LAWS["exponential"], {"depth": depth}, loss)
    limit = 0.5 * float(np.sum((np.log(loss[1:]) - np.log(loss[1:]).mean()) ** 2))
    assert least_cost(given, np.ones(8))[0] <= limit * (1 + SAME_OPTIMUM)


def test_other_problems_are_refused() -> None:
    joint = FitProblem(additive_law(("width", "depth")), {"width": DEPTH, "depth": DEPTH}, DEPTH)
    robust = FitProblem(DEPTH_LAWS["power"], {"depth": DEPTH}, DEPTH, robust="huber")
    for given in (joint, robust):
        with pytest.raises(ValueError, match="least squares"):
            least_cost(given, np.ones(DEPTH.size))
