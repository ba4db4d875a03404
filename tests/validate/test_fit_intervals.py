"""Intervals against closed forms, and the share of repeated fits in which they hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.tolerances import ROUNDOFF_LONG, SAME_OPTIMUM, sampling
from theory.depth_laws import DEPTH_LAWS
from validate import fit_depth_law
from validate.fit_bootstrap import bootstrap_weights
from validate.fit_checks import FitTable
from validate.fit_problem import FitProblem
from validate.fit_roots import crossing_distances

DEPTH = np.repeat([1.0, 2.0, 4.0, 8.0, 16.0], 3)


def drawn(rng: np.random.Generator, depth: np.ndarray = DEPTH, noise: float = 0.05) -> np.ndarray:
    return 1.7 + 2.0 / depth + noise * rng.standard_normal(depth.size)


@pytest.mark.parametrize("method", ["profile", "asymptotic"])
@pytest.mark.parametrize("known", [False, True])
def test_a_linear_law_has_the_intervals_of_least_squares(rng: np.random.Generator, method: str, known: bool) -> None:
    """Inverse depth with linear residuals is a straight line in 1/L: Student's t, or the normal with known errors."""
    loss = drawn(rng)
    error = rng.uniform(0.03, 0.08, DEPTH.size) if known else None
    fit = fit_depth_law(DEPTH, loss, law="inverse-depth", residuals="linear", standard_error=error, intervals=method)
    design = np.stack([np.ones(DEPTH.size), 1 / DEPTH], axis=1)
    scale = np.ones(DEPTH.size) if error is None else 1 / error
    matrix = np.linalg.inv((design * scale[:, None] ** 2).T @ design)
    beta = matrix @ (design * scale[:, None] ** 2).T @ loss
    freedom = DEPTH.size - 2
    variance = 1.0 if known else np.sum((loss - design @ beta) ** 2) / freedom
    reach = (stats.norm.ppf(0.975) if known else stats.t.ppf(0.975, freedom)) * np.sqrt(variance * np.diag(matrix))
    plateau, coefficient = fit.parameters["plateau"], fit.parameters["coefficient"]
    np.testing.assert_allclose([plateau.value, coefficient.value], beta, rtol=SAME_OPTIMUM)
    np.testing.assert_allclose(plateau.interval, beta[0] + np.array([-1, 1]) * reach[0], rtol=SAME_OPTIMUM)
    assert plateau.stderr == pytest.approx(np.sqrt(variance * matrix[0, 0]), rel=SAME_OPTIMUM)
    assert coefficient.stderr == pytest.approx(np.sqrt(variance * matrix[1, 1]), rel=SAME_OPTIMUM)
    if method == "profile":
        np.testing.assert_allclose(coefficient.interval, beta[1] + np.array([-1, 1]) * reach[1], rtol=SAME_OPTIMUM)
    band = fit.predict([3.0])
    row = np.array([1.0, 1 / 3])
    half = reach[0] / np.sqrt(matrix[0, 0]) * np.sqrt(row @ matrix @ row)
    np.testing.assert_allclose([band.low[0], band.high[0]], row @ beta + np.array([-half, half]), rtol=SAME_OPTIMUM)


def test_a_profile_is_the_constrained_minimum(rng: np.random.Generator) -> None:
    """At each end of the exponent's interval the best fit costs exactly the level more, by an independent search."""
    from scipy.optimize import least_squares

    loss = drawn(rng, noise=0.03)
    fit = fit_depth_law(DEPTH, loss)
    freedom = DEPTH.size - 3
    level = fit.objective * (1 + stats.t.ppf(0.975, freedom) ** 2 / freedom)
    for end in fit.parameters["exponent"].interval:

        def residual(theta: np.ndarray, end: float = end) -> np.ndarray:
            return np.log(theta[0] + theta[1] * DEPTH**-end) - np.log(loss)

        best = least_squares(residual, [1.5, 2.0], bounds=([0, 0], np.inf), xtol=1e-14, ftol=1e-14, gtol=1e-14)
        assert best.cost == pytest.approx(level, rel=SAME_OPTIMUM)


def test_standard_errors_are_known_and_not_rescaled(rng: np.random.Generator) -> None:
    """Ten times the stated errors give ten times the width, whatever the residuals say."""
    loss = drawn(rng)
    widths = []
    for size in (0.05, 0.5):
        fit = fit_depth_law(DEPTH, loss, law="inverse-depth", standard_error=np.full(DEPTH.size, size))
        low, high = fit.parameters["plateau"].interval
        widths.append(high - low)
    assert widths[1] == pytest.approx(10 * widths[0], rel=SAME_OPTIMUM)


@pytest.mark.parametrize(
    ("distinct", "seeds", "tables"),
    [(5, 3, 40), *(pytest.param(*sizes, 300, marks=pytest.mark.slow) for sizes in ((5, 3), (7, 4), (12, 5)))],
)
def test_intervals_hold_at_few_depths(distinct: int, seeds: int, tables: int, rng: np.random.Generator) -> None:
    """Free exponent, noise unknown: 95 % of the intervals hold it (rescaled standard errors cover far less)."""
    depth = np.repeat(np.round(np.geomspace(1, 32, distinct)), seeds)
    held, short = 0, 0
    for _ in range(tables):
        loss = (1.0 + 2.0 / depth) * np.exp(0.02 * rng.standard_normal(depth.size))
        fit = fit_depth_law(depth, loss, starts=8)
        exponent = fit.parameters["exponent"]
        held += exponent.interval[0] <= 1.0 <= exponent.interval[1]
        short += abs(exponent.value - 1.0) <= exponent.stderr
    assert abs(held / tables - 0.95) < sampling(np.sqrt(0.95 * 0.05 / tables))
    # +-1 standard error with its Student factor holds what the t distribution says, no less.
    expected = 1 - 2 * stats.t.sf(1.0, depth.size - 3)
    assert abs(short / tables - expected) < sampling(np.sqrt(expected * (1 - expected) / tables))


def test_bootstrap_draws_groups_together() -> None:
    table = FitTable({}, np.ones(6), None, np.ones(6), np.array(["a", "a", "b", "b", "c", "c"]), ())
    weights = bootstrap_weights(table, 50, seed=0)
    np.testing.assert_array_equal(weights[:, ::2], weights[:, 1::2])
    np.testing.assert_array_equal(weights[:, ::2].sum(axis=1), 3)
    with pytest.raises(ValueError, match="at least 2"):
        bootstrap_weights(FitTable({}, np.ones(2), None, np.ones(2), np.array(["a", "a"]), ()), 50, seed=0)


def test_bootstrap_and_profile_agree_on_a_long_table(rng: np.random.Generator) -> None:
    """With 180 rows both are asymptotic: their widths agree within the bootstrap's own sampling error."""
    depth = np.repeat(2.0 ** np.arange(6), 30)
    loss = (1.0 + 2.0 / depth) * np.exp(0.02 * rng.standard_normal(depth.size))
    profile = fit_depth_law(depth, loss).parameters["exponent"].interval
    resampled = fit_depth_law(depth, loss, intervals="bootstrap", resamples=400).parameters["exponent"].interval
    # The relative error of a 2.5 % quantile from 400 draws is about 0.08, of the noise from 180 rows 0.05.
    assert np.diff(resampled)[0] == pytest.approx(np.diff(profile)[0], rel=float(sampling(0.1)))


def test_roots_of_known_profiles() -> None:
    """Parabolas, a kink, a step, and one that never rises."""
    places = np.array([1.0, 3.0, 0.02, 2.5, np.inf])

    def ratio_at(rows: np.ndarray, distance: np.ndarray) -> np.ndarray:
        shapes = np.stack(
            [
                distance / places[0],
                (distance / places[1]) ** 3,
                np.sqrt(distance / places[2]),
                np.where(distance < places[3], 0.5, 1.5),
                0.0 * distance,
            ]
        )
        return shapes[rows, np.arange(rows.size)]

    found, met = crossing_distances(np.full(5, 0.1), np.full(5, 50.0), ratio_at)
    np.testing.assert_allclose(found[:4], places[:4], rtol=SAME_OPTIMUM)
    assert met.tolist() == [True, True, True, True, False]
    assert found[4] == 50.0


def test_a_profile_with_two_valleys_keeps_its_far_side() -> None:
    """Four depths, one degree of freedom: the band matches a scan of all parameters within the grid's step."""
    depth, loss = np.array([1.0, 2, 3, 4]), np.array([0.31065954, 0.10753693, 0.05388434, 0.03150494])
    fit = fit_depth_law(depth, loss)
    limit = fit.objective + 0.5 * fit.noise.scale * fit.noise.quantile(0.95) ** 2
    plateau = np.linspace(0.0, 0.08, 161)[:, None]
    exponent = np.geomspace(0.1, 20, 200)[None, :]
    least, most = np.inf, -np.inf
    for coefficient in loss[0] * np.exp(np.linspace(-2, 1.2, 321)):
        predicted = plateau[..., None] + coefficient * depth ** -exponent[..., None]
        inside = 0.5 * np.sum(np.log(predicted / loss) ** 2, axis=-1) <= limit
        if inside.any():
            at = (plateau + coefficient * 1.4**-exponent)[inside]
            least, most = min(least, at.min()), max(most, at.max())
    band = fit.predict([1.4])
    step = 0.05  # of the grid, on the log scale
    assert np.log(band.low[0]) == pytest.approx(np.log(least), abs=step)
    assert np.log(band.high[0]) == pytest.approx(np.log(most), abs=step)
    assert band.low[0] <= least
    assert band.high[0] >= most


def test_fixing_everything_leaves_no_interval() -> None:
    fit = fit_depth_law(DEPTH, 1.7 + 2 / DEPTH, law="inverse-depth", fixed={"plateau": 1.0, "coefficient": 2.0})
    assert all(item.status == "fixed" for item in fit.parameters.values())
    given = FitProblem(DEPTH_LAWS["inverse-depth"], {"depth": DEPTH}, 1.7 + 2 / DEPTH)
    expected = given.cost(given.searched(np.array([[1.0, 2.0]])), np.ones((1, DEPTH.size)))[0]
    assert fit.objective == pytest.approx(expected, rel=ROUNDOFF_LONG)
