import math
import resource

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import PUBLISHED_EXPONENT, ROUNDOFF, ROUNDOFF_LONG
from theory.jit import streaming_kernel
from theory.measure import SpectralMeasure, as_measure, depth_code
from theory.spectra import Spectrum

GAMMAS = (0.0, 0.4, 7.0, 300.0, 2e4, 1e7)


@streaming_kernel
def brute_sum(dim, nu, power, gamma, depth):
    """sum_(k <= dim) k^-power F(gamma k^-nu), mode by mode from the smallest."""
    total = 0.0
    for k in range(dim, 0, -1):
        u = gamma * float(k) ** -nu
        total += float(k) ** -power * (math.exp(-2.0 * u) if depth == 0 else (1.0 - u / depth) ** (2 * depth))
    return total


@pytest.mark.parametrize(("nu", "beta"), [(1.0, 0.5), (1.75, 0.5), (0.5, 2.0), (3.0, 0.2), (0.1, 1.0), (6.0, 3.0)])
@pytest.mark.parametrize("dim", [1, 17, 1025, 300_000])
def test_power_law_matches_the_sum_over_every_mode(dim, nu, beta):
    measure = SpectralMeasure.power_law(dim, nu, beta, normalise=False)
    assert measure.dim == dim
    assert measure.points < 1100
    for depth in (1, 6, 200, math.inf):
        for gamma in GAMMAS:
            if gamma > 1.5 * depth:
                continue
            exact = brute_sum(dim, nu, nu * beta + 1, gamma, depth_code(depth))
            if exact < 1e-290:
                continue
            error = abs(measure.losses([gamma], depth)[0] - exact)
            assert error <= ROUNDOFF_LONG * exact
            # The brute sum rounds as well, about as much as the bound allows the compressed one to.
            assert error <= measure.error_bound(gamma, depth) + ROUNDOFF * exact


def test_error_bound_sees_a_rule_that_is_too_short():
    for order in (2, 3, 5):
        measure = SpectralMeasure.power_law(200_000, 1.0, 0.5, normalise=False, order=order)
        for gamma in (0.0, 10.0, 1000.0):
            error = abs(measure.losses([gamma], math.inf)[0] - brute_sum(200_000, 1.0, 1.5, gamma, 0))
            bound = measure.error_bound(gamma, math.inf)
            assert error <= bound
        assert bound > 100 * SpectralMeasure.power_law(200_000, 1.0, 0.5).error_bound(1000.0, math.inf)


@pytest.mark.parametrize(("nu", "beta"), [(1.0, 0.5), (2.0, 0.25), (0.3, 1.5)])
def test_infinite_power_law_matches_zeta_and_the_closed_form(nu, beta):
    measure = SpectralMeasure.power_law(math.inf, nu, beta, normalise=False)
    with mpmath.workdps(30):
        assert measure.total == pytest.approx(float(mpmath.zeta(nu * beta + 1)), rel=ROUNDOFF)
        gamma = 3.0
        # exp(-2 gamma x) = sum_j (-2 gamma)^j x^j / j!, each power a zeta value.
        terms = [(-2 * gamma) ** j / mpmath.factorial(j) * mpmath.zeta(nu * beta + 1 + nu * j) for j in range(60)]
        assert measure.losses([gamma], math.inf)[0] == pytest.approx(float(mpmath.fsum(terms)), rel=ROUNDOFF_LONG)
    # Far on, the sum is the integral up to terms smaller than any power.
    law = math.gamma(beta) / nu * (2 * 1e9) ** -beta
    assert measure.losses([1e9], math.inf)[0] == pytest.approx(law, rel=ROUNDOFF_LONG)


def test_cut_spectrum_departs_from_the_infinite_one_as_published():
    # Slope between 1e2 and 1e4 of sum_(k <= K) k^-1.5 exp(-2 t k^-2): the cutoff passes for physics.
    times = np.logspace(2, 4, 20)
    expected = {100: -0.920, 1000: -0.332, 10_000: -0.271, 100_000: -0.256, math.inf: -0.25}
    for dim, slope in expected.items():
        losses = SpectralMeasure.power_law(dim, 2.0, 0.25).losses(times, math.inf)
        assert np.polyfit(np.log(times), np.log(losses), 1)[0] == pytest.approx(slope, abs=PUBLISHED_EXPONENT)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    decades=st.floats(0.01, 300),
    dim=st.integers(1100, 3000),
    gamma=st.sampled_from([0.0, 0.5, 20.0, 1e4, 1e9]),
    repeats=st.booleans(),
)
def test_any_spectrum_is_compressed_within_its_bound(decades, dim, gamma, repeats):
    x = np.logspace(0, -decades, dim)
    if repeats:
        x = np.repeat(x[::4], 4)[:dim]
        x[-3:] = 0.0
    s = np.linspace(1, 2, x.size) / np.arange(1, x.size + 1)
    spectrum = Spectrum(x, np.divide(s, x, out=np.zeros_like(x), where=x > 1e-150))
    measure = SpectralMeasure.from_spectrum(spectrum)
    for depth in (3, math.inf):
        if gamma > 2 * depth:
            continue
        u = gamma * spectrum.eigenvalues
        factor = np.exp(-2 * u) if math.isinf(depth) else (1 - u / depth) ** (2 * depth)
        exact = math.fsum(spectrum.signal * factor)
        error = abs(measure.losses([gamma], depth)[0] - exact)
        assert error <= measure.error_bound(gamma, depth) + ROUNDOFF * exact


def test_small_spectra_are_left_alone():
    spectrum = Spectrum.power_law(500, 1.0, 0.5)
    measure = as_measure(spectrum)
    assert np.array_equal(measure.eigenvalues, spectrum.eigenvalues)
    assert as_measure(measure) is measure
    assert "dim 500" in str(measure)
    assert measure.to_dict()["amplitude"] == pytest.approx(spectrum.signal[0])
    assert list(measure.to_frame()) == ["eigenvalue", "signal"]


@pytest.mark.parametrize("dim", [0, -1, 2.5, math.nan, -math.inf, "many"])
def test_bad_dim_is_named(dim):
    with pytest.raises(ValueError, match="dim="):
        SpectralMeasure.power_law(dim, 1.0, 0.5)


def test_bad_spectrum_is_named():
    with pytest.raises(ValueError, match="spectrum="):
        as_measure(np.ones(3))


@pytest.mark.slow
def test_a_billion_modes_against_the_sum_over_every_one():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measure = SpectralMeasure.power_law(10**9, 1.0, 0.5, normalise=False)
    for gamma, depth in ((0.0, 0), (5.0, 8), (1e3, 0), (1e8, 0)):
        exact = brute_sum(10**9, 1.0, 1.5, gamma, depth)
        # The sum of 1e9 rounded terms, smallest first, keeps about ten digits.
        assert measure.losses([gamma], depth or math.inf)[0] == pytest.approx(exact, rel=ROUNDOFF_LONG)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 300 * 1024
