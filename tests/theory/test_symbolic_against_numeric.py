"""The numeric modules held to the derivations: a formula changed on either side fails here."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG
from theory import Spectrum, Task, population_loss, tied_optimum, transversal_rate, untied_floor
from theory.asymptotics import gain_law, tied_floor_law, time_law, untied_floor_law
from theory.depth_laws import ar1, discretisation, inverse_depth
from theory.fixed_basis import tied_residual
from theory.losses import noise_response, population, residual, tied
from theory.marchenko_pastur import isotropic_loss, isotropic_tied_optimum, isotropic_untied_floor
from theory.symbolic import derive
from theory.wishart import polynomial_moments

SPECTRUM = Spectrum.power_law(40, 1.3, 0.7)
ALONG = (SPECTRUM.eigenvalues, SPECTRUM.task_power)


def function(derivation: str, formula: str):
    return derive(derivation).formulas[formula].function


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_residual_polynomial_and_noise_response(depth, rng) -> None:
    gains, nodes = rng.uniform(-1, 3, depth), rng.uniform(0, 2, 7)
    for place, node in enumerate(nodes):
        value = residual(nodes, gains)[place]
        assert value == pytest.approx(
            function("residual_recursion", "residual_polynomial")(node, gains, depth), rel=ROUNDOFF
        )
        response = noise_response(nodes, gains)[place]
        assert response == pytest.approx(
            function("residual_recursion", "noise_response")(node, gains, depth), rel=ROUNDOFF
        )


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_population_loss_and_its_flow(depth, rng) -> None:
    gains = rng.uniform(0, 1.5, depth)
    loss = population(SPECTRUM)
    assert population_loss(SPECTRUM, gains) == pytest.approx(
        function("population_loss", "loss")(*ALONG, gains, SPECTRUM.dim, depth), rel=ROUNDOFF
    )
    gain = float(gains[0])
    assert loss.value(tied(gain, depth)) == pytest.approx(
        function("population_loss", "tied")(*ALONG, gain, SPECTRUM.dim, depth), rel=ROUNDOFF
    )
    untied = function("gradient_flow", "force")
    force = [untied(*ALONG, gains, layer, SPECTRUM.dim, depth) for layer in range(1, depth + 1)]
    np.testing.assert_allclose(-loss.gradient(gains) / SPECTRUM.dim, force, rtol=ROUNDOFF)
    assert -loss.gradient(tied(gain, depth))[0] / SPECTRUM.dim == pytest.approx(
        function("population_loss", "tied_flow")(*ALONG, gain, SPECTRUM.dim, depth), rel=ROUNDOFF
    )


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_rate_at_which_layers_come_apart(depth) -> None:
    derived = function("gradient_flow", "growth_rate")(*ALONG, 0.8, SPECTRUM.dim, depth)
    assert transversal_rate(population(SPECTRUM), 0.8, depth) == pytest.approx(derived, rel=ROUNDOFF)
    unstable = function("gradient_flow", "transversal")(*ALONG, 0.8, SPECTRUM.dim, depth)
    assert unstable == pytest.approx(-SPECTRUM.dim * derived, rel=ROUNDOFF)


@pytest.mark.parametrize("depth", [2, 4, 9])
def test_fixed_basis_loss_in_time(depth) -> None:
    times = np.geomspace(0.1, 1e5, 5)
    losses = tied_residual(Task(SPECTRUM, "fs"), depth, times) @ SPECTRUM.signal
    derived = [function("gradient_flow", "fixed_basis_loss")(*ALONG, t, SPECTRUM.dim, depth) for t in times]
    np.testing.assert_allclose(losses, derived, rtol=ROUNDOFF_LONG)


@pytest.mark.parametrize(("capacity", "source"), [(1.0, 0.5), (1.5, 1.0), (2.0, 1.7)])
def test_laws_of_the_power_law_spectrum(capacity, source) -> None:
    spectrum = Spectrum.power_law(300, capacity, source)
    amplitude = float(spectrum.signal[0])
    at = (amplitude, capacity, source)
    gains, times, depths = np.geomspace(5, 500, 4), np.geomspace(1e3, 1e7, 4), np.array([8.0, 64.0])
    np.testing.assert_allclose(
        gain_law(spectrum)(gains), function("asymptotics", "loss_in_gain")(*at, gains), rtol=ROUNDOFF
    )
    in_time = time_law(spectrum)
    derived = function("asymptotics", "loss_in_time")(*at, spectrum.dim, times)
    np.testing.assert_allclose(in_time(times - in_time.shift), derived, rtol=ROUNDOFF_LONG)
    np.testing.assert_allclose(
        tied_floor_law(spectrum)(depths), function("asymptotics", "tied_optimum")(*at, depths), rtol=ROUNDOFF
    )


@pytest.mark.parametrize("depth", [16, 64, 256])
def test_depth_correction_at_fixed_gain(depth) -> None:
    """The finite-depth prefactor over the infinite one: exact Gamma functions against the derived first order."""
    spectrum = Spectrum.power_law(300, 1.2, 0.8)
    gain = 10.0
    ratio = float(gain_law(spectrum, depth)(gain) / gain_law(spectrum)(gain))
    first = function("asymptotics", "depth_correction")(0.8, depth)
    second_order = first**2
    assert abs(ratio - 1 - first) < 4 * second_order


@pytest.mark.parametrize(("capacity", "source"), [(1.0, 0.5), (1.5, 1.0)])
def test_untied_floor_of_the_discrete_power_law(capacity, source) -> None:
    """The derived bound, the numeric floor and its law: same exponent, and the bound above the law."""
    spectrum = Spectrum.power_law(3000, capacity, source)
    at = (float(spectrum.signal[0]), capacity, source)
    law = untied_floor_law(spectrum)
    bound = function("untied_optimum", "discrete_bound")
    for depth in (64.0, 512.0):
        assert bound(*at, depth) > law.prefactor * depth**-law.exponent
    assert math.log(bound(*at, 64.0) / bound(*at, 512.0)) / math.log(8) == pytest.approx(law.exponent, rel=ROUNDOFF)
    for depth in (2, 4, 8):
        assert untied_floor(Task(spectrum), depth).loss < min(
            bound(*at, depth), tied_optimum(Task(spectrum), depth).loss
        )


@pytest.mark.parametrize(("source", "depth"), [(0.5, 1), (1.0, 4), (1.8, 9)])
def test_untied_floor_of_a_dense_power_law(source, depth) -> None:
    """Gauss quadrature of the density x^(source - 1) has the same moments, so the numeric floor is the exact one."""
    from scipy.special import roots_jacobi

    nodes, weights = roots_jacobi(depth + 2, 0.0, source - 1)
    nodes, weights = (1 + nodes) / 2, weights / 2**source
    spectrum = Spectrum(nodes, weights / nodes, normalise=False)
    derived = function("untied_optimum", "dense_floor")(1.0, 1.0, source, depth)
    assert untied_floor(Task(spectrum), depth).loss == pytest.approx(derived, rel=ROUNDOFF_LONG)


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_untied_floor_of_an_arcsine_band(depth) -> None:
    low, high = 0.2, 1.0
    angle = np.pi * (np.arange(depth + 2) + 0.5) / (depth + 2)
    nodes = (high + low) / 2 + (high - low) / 2 * np.cos(angle)
    spectrum = Spectrum(nodes, 1 / nodes)
    derived = function("untied_optimum", "band_inverse_floor")(math.acosh((high + low) / (high - low)), depth)
    assert 1 / untied_floor(Task(spectrum), depth).loss == pytest.approx(derived, rel=ROUNDOFF_LONG)


@pytest.mark.parametrize("alpha", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_isotropic_optimum(alpha, depth) -> None:
    assert isotropic_untied_floor(alpha, depth) == pytest.approx(
        function("marchenko_pastur", "floor")(alpha, depth), rel=ROUNDOFF_LONG
    )


@pytest.mark.parametrize("alpha", [0.4, 1.0, 2.5])
def test_isotropic_tied_optimum(alpha) -> None:
    _, loss = isotropic_tied_optimum(alpha, 1, label_noise=0.3)
    assert loss == pytest.approx(function("marchenko_pastur", "one_layer_noisy")(alpha, 0.3), rel=ROUNDOFF_LONG)
    # Depth 2: the loss at the root of the derived cubic is the least one.
    slope = function("marchenko_pastur", "two_layers_tied_slope")
    gain = 2 * brentq(lambda g: slope(g, alpha), 0.0, 1.0)
    _, loss = isotropic_tied_optimum(alpha, 2)
    assert isotropic_loss(alpha, np.full(2, gain)) == pytest.approx(loss, rel=ROUNDOFF_LONG)


@pytest.mark.parametrize(("dim", "context"), [(3, 2), (5, 9)])
def test_exact_wishart_moments(dim, context) -> None:
    moments = polynomial_moments(Task(Spectrum.isotropic(dim), "iso", context))
    # With E[tr (S^i S S^j)]-like moments of the isotropic task: (0, 2) and (1, 1) are both E tr S^2 / D.
    second = function("marchenko_pastur", "second_moment")(dim, context)
    assert moments[1, 1] == pytest.approx(second, rel=ROUNDOFF)
    assert moments[0, 2] == pytest.approx(second, rel=ROUNDOFF)
    assert moments[1, 2] == pytest.approx(function("marchenko_pastur", "third_moment")(dim, context), rel=ROUNDOFF)


def test_depth_laws() -> None:
    depth = np.array([1.0, 2.0, 3.0, 8.0])
    s, rho, r = 1.3, 0.2, 0.6
    np.testing.assert_allclose(
        inverse_depth(depth, rho * s**2, (1 - rho) * s**2),
        function("depth_laws", "exchangeable")(s, rho, depth),
        rtol=ROUNDOFF,
    )
    np.testing.assert_allclose(
        ar1(depth, 0.0, s**2, r), function("depth_laws", "autoregressive")(s, r, depth), rtol=ROUNDOFF
    )
    rate = 0.7
    leading = function("depth_laws", "discretisation")(rate, depth)
    np.testing.assert_allclose(discretisation(depth, 0.0, float(leading[0])), leading, rtol=ROUNDOFF)


def test_layer_covariances(rng) -> None:
    """The four patterns of correlation are one double sum."""
    depth, s, r = 5, 1.2, 0.4
    apart = np.abs(np.subtract.outer(np.arange(depth), np.arange(depth)))
    ensemble = function("depth_laws", "ensemble")
    covariance = s**2 * r**apart
    assert ensemble(covariance, depth) == pytest.approx(np.sum(covariance) / depth**2, rel=ROUNDOFF)
    assert ensemble(covariance, depth) == pytest.approx(
        function("depth_laws", "autoregressive")(s, r, depth), rel=ROUNDOFF
    )
    lags = r ** np.arange(1, depth)
    assert ensemble(covariance, depth) == pytest.approx(
        function("depth_laws", "stationary")(s, lags, depth), rel=ROUNDOFF
    )
    variances = rng.uniform(0.5, 2, depth)
    inverse = np.linalg.inv(np.diag(variances)).sum()
    assert function("depth_laws", "best_weights")(variances, depth) == pytest.approx(1 / inverse, rel=ROUNDOFF)
