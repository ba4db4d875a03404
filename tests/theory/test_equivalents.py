from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, model_error, sampling
from theory import Spectrum, Task
from theory import equivalents as eq
from theory import marchenko_pastur as mp
from theory.fixed_basis import SampledModes
from theory.floors import untied_floor_of
from theory.losses import jackknife_error, quadratic_loss
from theory.wishart import polynomial_moments

# Given with the problem, recomputed here by mpmath quadrature of the density as well.
TIED_OPTIMA = {
    (0.5, 1): 2 / 3,
    (0.5, 2): 0.592592592593,
    (0.5, 4): 0.541380887060,
    (2.0, 1): 1 / 3,
    (2.0, 2): 0.185185185185,
    (2.0, 4): 0.0827617741198,
    (4.0, 8): 0.0010998081454,
}


def density_average(function, alpha: float) -> float:  # type: ignore[no-untyped-def]
    """Integral over the Marchenko-Pastur density, its atom at zero included, at 30 digits."""
    with mpmath.workdps(30):
        c = 1 / mpmath.mpf(alpha)
        low, high = (1 - mpmath.sqrt(c)) ** 2, (1 + mpmath.sqrt(c)) ** 2
        middle, half = (low + high) / 2, (high - low) / 2
        bulk = mpmath.quad(
            lambda a: (
                (half * mpmath.sin(a)) ** 2
                / (2 * mpmath.pi * c * (middle + half * mpmath.cos(a)))
                * function(middle + half * mpmath.cos(a))
            ),
            [0, mpmath.pi / 2, mpmath.pi],
        )
        return float(bulk + max(0, 1 - 1 / c) * function(mpmath.mpf(0)))


@pytest.mark.parametrize(("alpha", "depth"), TIED_OPTIMA)
def test_isotropic_tied_optima(alpha: float, depth: int) -> None:
    gain, loss = mp.isotropic_tied_optimum(alpha, depth)
    assert abs(loss - TIED_OPTIMA[alpha, depth]) <= 1e-12
    direct = density_average(lambda x: (1 - gain * x / depth) ** (2 * depth), alpha)
    np.testing.assert_allclose(loss, direct, rtol=ROUNDOFF)


@pytest.mark.parametrize("alpha", [0.3, 1.25, 2.5])
def test_isotropic_noise_and_untied_floor(alpha: float) -> None:
    gains = np.array([0.9, 0.2, 1.4])

    def integrand(x):  # type: ignore[no-untyped-def]
        q = mpmath.fprod(1 - g * x / 3 for g in gains)
        r = (1 - q) / x if x else sum(gains) / 3
        return q**2 + 0.25 / alpha * x * r**2

    found = mp.isotropic_loss(alpha, gains, label_noise=0.25)
    np.testing.assert_allclose(found, density_average(integrand, alpha), rtol=ROUNDOFF)
    nodes, weights = mp.marchenko_pastur_rule(alpha, 8)
    basis = nodes[:, None] ** np.arange(1, 4)
    coefficients, *_ = np.linalg.lstsq(np.sqrt(weights)[:, None] * basis, -np.sqrt(weights), rcond=None)
    least = weights @ (1 + basis @ coefficients) ** 2
    np.testing.assert_allclose(mp.isotropic_untied_floor(alpha, 3), least, rtol=ROUNDOFF_LONG)


@pytest.mark.parametrize(("dim", "context"), [(40, 80), (40, 20), (7, 7), (1, 3)])
@pytest.mark.parametrize("depth", [1, 3, 16])
def test_equal_eigenvalues_recover_the_marchenko_pastur_integral(dim: int, context: int, depth: int) -> None:
    task = Task(Spectrum.isotropic(dim), "iso", context, 0.3)
    limit = eq.deterministic_limit(task, depth)
    gains = np.linspace(0.5, 1.0, depth)
    expected = mp.isotropic_loss(context / dim, gains, label_noise=0.3)
    np.testing.assert_allclose(limit.loss(gains), expected, rtol=ROUNDOFF)
    np.testing.assert_allclose(
        limit.untied_floor(), mp.isotropic_untied_floor(context / dim, depth), rtol=1e3 * ROUNDOFF_LONG
    )


@settings(max_examples=25, deadline=None)
@given(
    lam=st.lists(st.floats(0.0, 2.0), min_size=0, max_size=6),
    context=st.integers(1, 10**6),
    gain=st.floats(0.05, 2.0),
)
def test_depth_one_lacks_exactly_the_term_it_names(lam: list[float], context: int, gain: float) -> None:
    task = Task(Spectrum([1.0, *lam]), "rrs", context)
    limit = eq.deterministic_limit(task, 1)
    moments = polynomial_moments(task)
    exact = moments[0, 0] - 2 * gain * moments[0, 1] + gain**2 * moments[1, 1]
    np.testing.assert_allclose(exact - limit.loss(np.array([gain])), limit.missing(np.array([gain])), atol=ROUNDOFF)


@pytest.mark.parametrize(
    ("dim", "capacity", "context", "depth", "gain"),
    [
        (45, 1.75, 512, 8, 1.3),
        (100, 1.5, 30, 4, 0.5),
        (100, 1.5, 30, 16, 2.0),
        (20, 0.5, 60, 4, 3.0),
        (5, 1.0, 50, 3, 1.0),
    ],
)
def test_structured_limit_agrees_with_sampled_contexts(
    dim: int, capacity: float, context: int, depth: int, gain: float, rng: np.random.Generator
) -> None:
    task = Task(Spectrum.power_law(dim, capacity, 1.0), "rrs", context, 0.1)
    lam, omega = task.spectrum.eigenvalues, task.spectrum.task_power
    losses = []
    for _ in range(600):
        rows = rng.standard_normal((context, dim)) * np.sqrt(lam)
        step = np.eye(dim) - gain / depth * rows.T @ rows / context
        residual = np.linalg.matrix_power(step, depth)
        # Labels are linear in the noise: the weight on it is (I - q(S)) S^+ X^T/P, formed layer by layer.
        weight = np.zeros((dim, context))
        for _layer in range(depth):
            weight = step @ weight + gain / depth * rows.T / context
        losses.append(np.einsum("ij,j,ij,i->", residual, omega, residual, lam) + 0.1 * np.sum(lam[:, None] * weight**2))
    gains = np.full(depth, gain)
    limit = eq.deterministic_limit(task, depth)
    error = np.std(losses) / np.sqrt(len(losses))
    assert abs(np.mean(losses) - limit.loss(gains)) <= sampling(error) + 2 * limit.missing(gains)
    assert limit.missing(gains) < 0.25 * limit.loss(gains)


@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("depth", [1, 2, 7])
def test_the_quadratic_form_is_the_same_loss(depth: int, noise: float, rng: np.random.Generator) -> None:
    limit = eq.deterministic_limit(Task(Spectrum.power_law(20, 1.2, 0.7), "rrs", 30, noise), depth)
    form = limit.quadratic_loss()
    for _ in range(3):
        gains = rng.uniform(0, 2, depth)
        np.testing.assert_allclose(form.value(gains), limit.loss(gains), rtol=ROUNDOFF)
    if noise == 0:
        np.testing.assert_allclose(untied_floor_of(form, depth).loss, limit.untied_floor(), rtol=ROUNDOFF_LONG)


def test_the_error_falls_like_one_over_the_context() -> None:
    # One mode: S = chi^2_P / P, whose moments are products.
    def exact(context: int, depth: int, gain: float) -> float:
        total = 0.0
        for power in range(2 * depth + 1):
            moment = np.prod(1 + 2 * np.arange(power) / context)
            total += float(mpmath.binomial(2 * depth, power)) * (-gain / depth) ** power * moment
        return total

    contexts = np.array([50, 200, 800])
    errors = []
    for context in contexts:
        task = Task(Spectrum([1.0]), "rrs", int(context))
        errors.append(exact(context, 3, 0.8) - eq.deterministic_limit(task, 3).loss(np.full(3, 0.8)))
    slopes = np.diff(np.log(errors)) / np.diff(np.log(contexts))
    assert np.all(np.abs(slopes + 1) < 0.1)


def test_the_population_is_the_plain_sum() -> None:
    task = Task(Spectrum.power_law(30, 1.5, 1.0), "rrs", None, 0.7)
    gains = np.array([0.4, 2.0, 3.1, 0.0])
    q = np.prod(1 - np.multiply.outer(gains, task.spectrum.eigenvalues) / 4, axis=0)
    limit = eq.deterministic_limit(task, 4)
    np.testing.assert_allclose(limit.loss(gains), task.spectrum.signal @ q**2, rtol=ROUNDOFF)
    assert limit.missing(gains) == 0.0
    far = eq.deterministic_limit(Task(task.spectrum, "rrs", 10**9), 4)
    np.testing.assert_allclose(far.loss(gains), limit.loss(gains), rtol=model_error(1e9, 1.0, 1e3))


def test_bad_values_name_themselves() -> None:
    with pytest.raises(ValueError, match="alpha"):
        mp.marchenko_pastur_rule(-1.0, 3)
    with pytest.raises(ValueError, match="depth"):
        eq.deterministic_limit(Task(Spectrum.isotropic(3), "iso", 4), 0)
    nodes, weights = mp.marchenko_pastur_rule(np.inf, 5)
    assert (nodes, weights) == (np.ones(1), np.ones(1))
    best = minimize_scalar(lambda g: mp.isotropic_loss(np.inf, np.full(2, g)), bounds=(0, 4), method="bounded")
    assert best.fun < ROUNDOFF


def test_where_rare_contexts_rule_the_limit_says_so() -> None:
    task = Task(Spectrum.power_law(20, 1.5, 1.0), "rrs", 20)
    limit, sampled = eq.deterministic_limit(task, 4), quadratic_loss(task, 4, samples=4000)
    calm, wild = np.full(4, 0.8), np.full(4, 5.0)
    assert not limit.rare_contexts(calm)
    assert abs(limit.loss(calm) - sampled.value(calm)) <= sampling(sampled.standard_error(calm)) + 2 * limit.missing(
        calm
    )
    assert limit.rare_contexts(wild)
    assert sampled.value(wild) > 2 * limit.loss(wild)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("depth", [1, 4])
def test_a_gain_a_mode_has_its_limit_too(depth: int, noise: float, rng: np.random.Generator) -> None:
    task = Task(Spectrum.power_law(40, 1.0, 0.7), "fs", 60, noise)
    gains = rng.uniform(0.3, 1.5, 40)
    sampled = SampledModes(task, depth, samples=400, seed=2).replicates(np.broadcast_to(gains, (depth, 40)))
    limit = eq.fixed_basis_limit(task, gains, depth)
    # Of relative order 1/P beside the error of the draws.
    assert abs(limit - sampled[0]) <= sampling(float(jackknife_error(sampled))) + 2 * limit / 60
    with pytest.raises(ValueError, match="gains"):
        eq.fixed_basis_limit(task, -gains, depth)
