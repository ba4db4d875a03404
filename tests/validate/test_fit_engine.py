"""The batch of descents against scipy: costs, gradients, optima, bounds, and batch against single."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, least_squares

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SAME_OPTIMUM
from theory.depth_laws import DEPTH_LAWS, additive_law
from validate.fit_engine import minimise
from validate.fit_problem import FitProblem
from validate.fit_starts import sobol_starts

DEPTH = np.repeat([1.0, 2.0, 3.0, 5.0, 9.0, 17.0], 3)
DIFFERENCE = 1e-6


def problem(rng: np.random.Generator, **options: object) -> FitProblem:
    loss = (1.3 + 2.0 / DEPTH**0.8) * np.exp(0.02 * rng.standard_normal(DEPTH.size))
    loss[4] *= 1.2
    return FitProblem(DEPTH_LAWS["power"], {"depth": DEPTH}, loss, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("robust", ["linear", "soft_l1", "huber"])
@pytest.mark.parametrize("residuals", ["log", "linear"])
def test_cost_and_optimum_are_those_of_scipy(rng: np.random.Generator, robust: str, residuals: str) -> None:
    given = problem(rng, robust=robust, robust_scale=0.02, residuals=residuals)

    def residual(theta: np.ndarray) -> np.ndarray:
        predicted = theta[0] + theta[1] * DEPTH ** -theta[2]
        return np.log(predicted / given.loss_values) if residuals == "log" else predicted - given.loss_values

    theirs = least_squares(
        residual, [1.0, 2.0, 1.0], loss=robust, f_scale=0.02, x_scale="jac", xtol=1e-15, ftol=1e-15, gtol=1e-15
    )
    ours = minimise(given, sobol_starts(given, 16))
    best = int(np.argmin(ours.costs))
    assert ours.converged[best]
    assert ours.costs[best] == pytest.approx(theirs.cost, rel=ROUNDOFF_LONG)
    np.testing.assert_allclose(given.natural(ours.points)[best], theirs.x, rtol=SAME_OPTIMUM)


@pytest.mark.parametrize("robust", ["linear", "soft_l1", "huber"])
def test_gradient_and_hessian_against_differences(rng: np.random.Generator, robust: str) -> None:
    given = problem(rng, robust=robust, robust_scale=0.5)
    point = np.array([1.1, 0.6, -0.3])
    weights = rng.uniform(0.5, 2.0, DEPTH.size)[None]
    numeric = approx_fprime(point, lambda p: given.cost(p[None], weights)[0], DIFFERENCE)
    gradient = given.gradient(point[None], weights)[0]
    np.testing.assert_allclose(gradient, numeric, atol=100 * DIFFERENCE)
    rows = [
        (given.gradient((point + step)[None], weights) - given.gradient((point - step)[None], weights))[0]
        / (2 * DIFFERENCE)
        for step in DIFFERENCE * np.eye(3)
    ]
    np.testing.assert_allclose(given.hessian(point[None], weights)[0], rows, atol=100 * DIFFERENCE)


def test_a_batch_is_its_members(rng: np.random.Generator) -> None:
    given = problem(rng, robust="soft_l1", robust_scale=0.02)
    starts = sobol_starts(given, 8)
    weights = rng.integers(0, 3, (8, DEPTH.size)).astype(float)
    weights[:, :9] += 1
    together = minimise(given, starts, weights=weights)
    for row in range(8):
        alone = minimise(given, starts[[row]], weights=weights[row])
        np.testing.assert_allclose(together.points[row], alone.points[0], rtol=ROUNDOFF_LONG, atol=ROUNDOFF_LONG)


def test_a_cut_batch_is_the_whole_one(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(rng)
    starts = sobol_starts(given, 8)
    whole = minimise(given, starts)
    monkeypatch.setattr("validate.fit_engine.LARGEST_BATCH", 3 * DEPTH.size * 3)
    cut = minimise(given, starts)
    np.testing.assert_allclose(cut.points, whole.points, rtol=ROUNDOFF_LONG, atol=ROUNDOFF_LONG)
    assert cut.flat.shape == cut.converged.shape == (8,)


def test_integer_weights_are_repeated_rows(rng: np.random.Generator) -> None:
    given = problem(rng)
    counts = rng.integers(1, 4, DEPTH.size)
    weighted = minimise(given, sobol_starts(given, 8), weights=counts.astype(float))
    repeated = given.take(np.repeat(np.arange(DEPTH.size), counts))
    plain = minimise(repeated, sobol_starts(given, 8))
    assert weighted.costs.min() == pytest.approx(plain.costs.min(), rel=ROUNDOFF_LONG)


def test_a_bound_is_met_exactly() -> None:
    """The unconstrained plateau is negative: the best on the bound is the law without a plateau."""
    loss = 2.0 * DEPTH**-0.5 * np.exp(-0.01 * DEPTH)
    given = FitProblem(DEPTH_LAWS["power"], {"depth": DEPTH}, loss)
    ours = minimise(given, sobol_starts(given, 16))
    best = int(np.argmin(ours.costs))
    assert ours.points[best, 0] == 0.0
    assert ours.converged[best]
    slope, level = np.polyfit(np.log(DEPTH), np.log(loss), 1)
    np.testing.assert_allclose(given.natural(ours.points)[best, 1:], [np.exp(level), -slope], rtol=ROUNDOFF_LONG)


def test_held_parameters_stay(rng: np.random.Generator) -> None:
    given = problem(rng)
    starts = sobol_starts(given, 4)
    starts[:, 2] = np.log(0.5)
    ours = minimise(given, starts, held=np.array([False, False, True]))
    np.testing.assert_array_equal(ours.points[:, 2], np.log(0.5))


def test_starts_lie_in_the_domain_and_differ(rng: np.random.Generator) -> None:
    given = problem(rng)
    for law in (*DEPTH_LAWS.values(), additive_law(("depth",))):
        other = FitProblem(law, {"depth": DEPTH}, given.loss_values)
        starts = sobol_starts(other, 16)
        assert starts.shape == (16, len(law.parameters))
        assert np.all((starts >= other.lower) & (starts <= other.upper))
        assert len(np.unique(starts, axis=0)) > 8


def test_log_residuals_where_the_law_is_negative_cost_infinity(rng: np.random.Generator) -> None:
    given = problem(rng, lower=np.array([-np.inf, -np.inf, -np.inf]), upper=np.full(3, np.inf))
    assert given.cost(np.array([[-5.0, 0.0, 0.0]]), np.ones((1, DEPTH.size)))[0] == np.inf
    done = minimise(given, np.array([[-5.0, 0.0, 0.0]]))
    assert not done.converged[0]


def test_soft_l1_keeps_its_digits_at_tiny_and_huge_residuals(rng: np.random.Generator) -> None:
    given = problem(rng, robust="soft_l1", robust_scale=0.01)
    for size in (1e-12, 1e12):
        residual = np.full((1, 1), size)
        expected = 0.5 * size**2 if size < 1 else 0.01 * size
        assert given.row_costs(residual)[0, 0] == pytest.approx(expected, rel=ROUNDOFF)
