"""Floors against reference values, mpmath, brute-force minimisation and each other."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER, sampling
from theory import Spectrum, Task, quadratic_loss, tied_optimum, untied_floor
from theory.floors import tied_optimum_of, untied_floor_of

# Independent reference values: dim 1000, capacity 1.5, source 1, infinite context.
UNTIED = {1: 0.14822734591438, 2: 0.0442635574783668, 4: 0.0089231878176106, 8: 0.00129387579855}
TIED_8 = 0.018377720533655


@pytest.fixture(scope="module")
def reference_task() -> Task:
    return Task(Spectrum.power_law(1000, 1.5, 1.0))


@pytest.mark.parametrize("depth", sorted(UNTIED))
def test_untied_floor_matches_reference(reference_task: Task, depth: int) -> None:
    assert untied_floor(reference_task, depth).loss == pytest.approx(UNTIED[depth], rel=SOLVER)


def test_tied_optimum_matches_reference(reference_task: Task) -> None:
    assert tied_optimum(reference_task, 8).loss == pytest.approx(TIED_8, rel=SOLVER)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_untied_floor_is_the_christoffel_function_at_50_digits(depth: int) -> None:
    """1 / (e^T H^-1 e) with H the Hankel matrix of moments: hopeless in float64, plain at 50 digits."""
    spectrum = Spectrum.power_law(12, 1.3, 0.6)
    with mpmath.workdps(50):
        nodes = [mpmath.mpf(float(x)) for x in spectrum.eigenvalues]
        weights = [x * mpmath.mpf(float(y)) for x, y in zip(nodes, spectrum.task_power, strict=True)]
        moments = [mpmath.fsum(s * x**m for s, x in zip(weights, nodes, strict=True)) for m in range(2 * depth + 1)]
        hankel = mpmath.matrix([[moments[i + j] for j in range(depth + 1)] for i in range(depth + 1)])
        expected = 1 / (hankel**-1)[0, 0]
    assert untied_floor(Task(spectrum), depth).loss == pytest.approx(float(expected), rel=ROUNDOFF_LONG)


@pytest.mark.parametrize("context", [None, 6, 40])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_floor_gains_reach_the_floor_and_nothing_reaches_below(
    rng: np.random.Generator, context: int | None, depth: int
) -> None:
    task = Task(Spectrum.power_law(8, 1.2, 0.5), "rrs", context)
    loss = quadratic_loss(task, depth, samples=200)
    floor = untied_floor(task, depth, samples=200)
    best = min(
        minimize(loss.value, rng.uniform(0, 6, depth), jac=loss.gradient, options={"gtol": 1e-10}).fun for _ in range(8)
    )
    assert best >= floor.loss * (1 - ROUNDOFF_LONG)
    if floor.gains:
        assert loss.value(floor.gains) == pytest.approx(floor.loss, rel=ROUNDOFF_LONG)
        assert best == pytest.approx(floor.loss, rel=SOLVER * 1e3)


@pytest.mark.parametrize("context", [None, 9])
def test_floors_at_depth_one_agree(context: int | None) -> None:
    task = Task(Spectrum.power_law(6, 1.0, 1.0), "rrs", context, 0.1 if context else 0.0)
    assert tied_optimum(task, 1).loss == pytest.approx(untied_floor(task, 1).loss, rel=ROUNDOFF_LONG)


def test_untied_floor_is_zero_once_depth_counts_the_eigenvalues() -> None:
    spectrum = Spectrum(np.array([2.0, 1.0, 1.0, 0.5]))
    assert untied_floor(Task(spectrum), 2).loss > 0
    for depth in (3, 5):
        floor = untied_floor(Task(spectrum), depth)
        assert floor.loss == 0
        assert quadratic_loss(Task(spectrum), depth).value(floor.gains) <= ROUNDOFF


def test_isotropic_depth_one_optimum_has_a_closed_form() -> None:
    """E[S] = I and E[S^2] = (1 + (D + 1)/P) I give (D + 1)/(P + D + 1), which tends to 1/(1 + P/D)."""
    dim, context = 10, 20
    floor = tied_optimum(Task(Spectrum.isotropic(dim), "iso", context), 1, samples=4000)
    assert abs(floor.loss - (dim + 1) / (context + dim + 1)) <= sampling(floor.standard_error)


@pytest.mark.parametrize("depth", [20, 32])
def test_deep_untied_floor_is_the_christoffel_function_at_200_digits(depth: int) -> None:
    """Where the float64 loss of the optimal gains is astronomically wrong (their rounding is magnified by 1e40)."""
    spectrum = Spectrum.power_law(300, 1.0, 0.5)
    with mpmath.workdps(200):
        nodes = [mpmath.mpf(float(x)) for x in spectrum.eigenvalues]
        weights = [mpmath.mpf(float(s)) for s in spectrum.signal]
        powers, moments = weights, []
        for _ in range(2 * depth + 1):
            moments.append(mpmath.fsum(powers))
            powers = [p * x for p, x in zip(powers, nodes, strict=True)]
        hankel = mpmath.matrix([[moments[i + j] for j in range(depth + 1)] for i in range(depth + 1)])
        one = mpmath.matrix([1] + [0] * depth)
        expected = 1 / mpmath.lu_solve(hankel, one)[0]
    assert untied_floor(Task(spectrum), depth).loss == pytest.approx(float(expected), rel=ROUNDOFF_LONG)


@pytest.mark.parametrize("depth", [2, 5])
def test_errors_of_sampled_floors_hold_the_scatter_of_seeds(depth: int) -> None:
    """Optima are fitted to the draws that rate them, and rare contexts rule them: the claimed error must know both."""
    task = Task(Spectrum.power_law(8, 1.0, 0.5), "rrs", 16)
    seeds = [quadratic_loss(task, depth, samples=400, seed=seed) for seed in range(40)]
    many = quadratic_loss(task, depth, samples=20_000, seed=10**6)
    for floor_of in (tied_optimum_of, untied_floor_of):
        reference, floors = floor_of(many, depth), [floor_of(loss, depth) for loss in seeds]
        losses = np.array([floor.loss for floor in floors])
        errors = np.hypot([floor.standard_error for floor in floors], reference.standard_error)
        within = np.mean(np.abs(losses - reference.loss) <= 2 * errors)
        assert within >= 0.95 - sampling(np.sqrt(0.95 * 0.05 / losses.size))
        # Nor is it so wide that it says nothing: twice the scatter at most, and what the seeds decide in that.
        assert np.median(errors) <= 2 * losses.std(ddof=1) * (1 + sampling(1 / np.sqrt(2 * 39)))


def test_optimism_is_what_fitting_to_few_draws_hides() -> None:
    task = Task(Spectrum.power_law(8, 1.0, 0.5), "rrs", 16)
    assert untied_floor(Task(task.spectrum), 3).optimism == 0
    few, many = (untied_floor(task, 4, samples=samples) for samples in (120, 8000))
    assert few.optimism > 4 * many.optimism
    assert few.standard_error >= few.optimism
