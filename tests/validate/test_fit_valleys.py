"""Valleys too curved for steps in all parameters: fits there converge, and end where scipy's reduced search ends."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tests.tolerances import ROUNDOFF_LONG, SAME_OPTIMUM
from theory.depth_laws import DEPTH_LAWS
from validate import fit_depth_law
from validate.fit_engine import minimise
from validate.fit_problem import FitProblem
from validate.fit_valley import valley_bottom

STEP = np.array([2.0, 3, 7, 8, 10, 15, 20, 31])


def least_linear(depth: np.ndarray, loss: np.ndarray, basis: np.ndarray) -> float:
    """Return half the least sum of squares of loss on 1 and ``basis``."""
    design = np.stack([np.ones(depth.size), basis], axis=1)
    solved = np.linalg.lstsq(design, loss, rcond=None)[0]
    return 0.5 * float(np.sum((design @ solved - loss) ** 2))


def test_an_exponential_that_is_a_step(rng: np.random.Generator) -> None:
    """The first depth alone is high: the decay depth tends to 0 while the coefficient grows without end."""
    loss = np.where(STEP > 2, 0.294, 1.293) + 1e-4 * rng.standard_normal(STEP.size)
    fit = fit_depth_law(STEP, loss, law="exponential", residuals="linear")
    limit = 0.5 * float(np.sum((loss[1:] - loss[1:].mean()) ** 2))
    assert fit.answered
    assert fit.objective == pytest.approx(limit, rel=SAME_OPTIMUM)
    assert fit.parameters["decay_depth"].status.startswith("not identified")
    assert fit.parameters["decay_depth"].interval[0] == 0.0


@pytest.mark.parametrize("law", ["power", "exponential"])
def test_a_straight_line_without_a_floor(law: str, rng: np.random.Generator) -> None:
    """With a plateau free to be negative a line is a slow exponential; the power tends to a logarithm."""
    depth = np.array([3.0, 4, 6, 13, 15, 25, 40, 70])
    loss = 0.8 - 0.007 * depth + 1e-5 * rng.standard_normal(depth.size)
    fit = fit_depth_law(depth, loss, law=law, residuals="linear", plateau_minimum=-np.inf)

    def reduced(logarithm: float) -> float:
        shape = np.exp(logarithm)
        basis = depth**-shape if law == "power" else np.exp(-depth / shape)
        return least_linear(depth, loss, basis)

    ends = (np.log(1e-3), np.log(1.0)) if law == "power" else (np.log(10.0), np.log(1e5))
    found = minimize_scalar(reduced, bounds=ends, method="bounded", options={"xatol": 1e-9})
    assert fit.objective <= min(found.fun, reduced(ends[0]), reduced(ends[1])) * (1 + SAME_OPTIMUM)


@pytest.mark.parametrize("unit", [1e-3, 1e5])
def test_depths_in_other_units(unit: float, rng: np.random.Generator) -> None:
    """The correlation of layers a hundred thousand apart says nothing, and stops nothing."""
    depth = unit * STEP
    loss = (1 + depth[0] / depth) * np.exp(1e-6 * rng.standard_normal(STEP.size))
    for law in ("inverse-depth", "power", "ar1"):
        if law == "ar1" and unit < 1:
            continue
        fit = fit_depth_law(depth, loss, law=law)
        assert fit.parameters["plateau"].value == pytest.approx(1.0, abs=SAME_OPTIMUM)


def test_the_bottom_of_a_valley_is_lower_than_its_start() -> None:
    """From far up the valley of a noise-free exponential to its exact bottom; a law without a shape stays put."""
    depth = np.arange(1.0, 13.0)
    loss = 0.5 + 3.0 * np.exp(-depth / 2.0)
    given = FitProblem(DEPTH_LAWS["exponential"], {"depth": depth}, loss)
    start = given.searched(np.array([0.4, 900.0, 0.3]))
    bottom = valley_bottom(given, start, np.ones(12), np.zeros(3, dtype=bool))
    np.testing.assert_allclose(given.natural(bottom), [0.5, 3.0, 2.0], rtol=SAME_OPTIMUM)
    straight = FitProblem(DEPTH_LAWS["inverse-depth"], {"depth": depth}, loss)
    point = np.array([0.3, 0.1])
    assert valley_bottom(straight, point, np.ones(12), np.zeros(2, dtype=bool)) is point


def test_the_curvature_of_a_flat_valley_is_exact() -> None:
    """Second derivatives near the logarithm, where differences lose them, against 50 digits."""
    depth = np.array([1.0, 2, 4, 8])
    loss = np.array([3.0, 2.8, 2.61, 2.4])
    given = FitProblem(DEPTH_LAWS["power"], {"depth": depth}, loss)
    point = np.array([-95.0, np.log(98.0), np.log(2.9e-3)])
    found = given.hessian(point[None], np.ones((1, 4)))[0]
    with mpmath.workdps(50):

        def cost(*theta: mpmath.mpf) -> mpmath.mpf:
            terms = [
                mpmath.log((theta[0] + mpmath.exp(theta[1]) * mpmath.mpf(d) ** -mpmath.exp(theta[2])) / mpmath.mpf(y))
                for d, y in zip(depth, loss, strict=True)
            ]
            return sum(term**2 for term in terms) / 2

        expected = np.empty((3, 3))
        for row in range(3):
            for column in range(3):
                orders = [0, 0, 0]
                orders[row] += 1
                orders[column] += 1
                expected[row, column] = float(mpmath.diff(cost, tuple(map(mpmath.mpf, point)), tuple(orders)))
    np.testing.assert_allclose(found, expected, rtol=ROUNDOFF_LONG)


def test_points_that_rounding_cannot_tell_apart_converge() -> None:
    """Residuals of 1e-8 standard errors: the cost is blind there, the gradient is not."""
    depth = np.repeat(171.06 * np.array([1.0, 2, 6, 7, 9]), 3)
    error = np.full(15, 0.2)
    loss = (1 + 171.06 / depth) * (1 + 1e-8 * np.cos(7.0 * np.arange(15)))
    given = FitProblem(DEPTH_LAWS["inverse-depth"], {"depth": depth}, loss, error, "linear")
    starts = given.searched(np.array([[0.2, 10.0], [1.5, 400.0], [0.9, 170.0]]))
    assert minimise(given, starts).converged.all()
