"""Every law against the exact curve: the relative error must be within what the law claims, in its regime."""

import math

import numpy as np
import pytest

import theory.measure
from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG
from theory import Spectrum, Task, untied_floor
from theory.asymptotics import (
    CUTOFF_SHARE,
    crossovers,
    exponents,
    gain_law,
    tied_floor_law,
    tied_floor_refined,
    time_law,
    untied_floor_law,
    width_law,
)
from theory.measure import SpectralMeasure
from theory.tied import tied_curve

CASES = [(1.0, 0.5), (1.75, 0.5), (0.5, 1.0), (2.0, 0.25), (1.0, 2.0), (3.0, 0.8)]


def infinite(nu, beta):
    return SpectralMeasure.power_law(math.inf, nu, beta)


@pytest.mark.parametrize(("nu", "beta"), CASES)
def test_loss_against_gain(nu, beta):
    law = gain_law(infinite(nu, beta))
    assert law.prefactor == pytest.approx(infinite(nu, beta).amplitude / nu * math.gamma(beta) * 2**-beta, rel=ROUNDOFF)
    claimed = []
    for gamma in (1.0, 3.0, 10.0, 30.0, 100.0, 1e4):
        exact = infinite(nu, beta).losses([gamma], math.inf)[0]
        assert abs(law(gamma) / exact - 1) <= law.error(gamma)
        claimed.append(law.error(gamma))
    # The claim is worth something: it shrinks to rounding.
    assert claimed[0] > 1e3 * claimed[-1]
    assert claimed[-1] <= ROUNDOFF_LONG


@pytest.mark.parametrize(("nu", "beta"), CASES)
@pytest.mark.parametrize("depth", [16, 128])
def test_loss_against_gain_at_finite_depth(nu, beta, depth):
    law = gain_law(infinite(nu, beta), depth)
    for share in (0.1, 0.3, 0.6, 0.9, 1.2):
        gamma = share * depth
        exact = infinite(nu, beta).losses([gamma], depth)[0]
        assert abs(law(gamma) / exact - 1) <= law.error(gamma)


@pytest.mark.parametrize(("nu", "beta"), CASES)
def test_loss_against_gain_with_a_cutoff(nu, beta):
    measure = SpectralMeasure.power_law(3000, nu, beta)
    law = gain_law(measure)
    for gamma in (3.0, 30.0, 300.0):
        exact = measure.losses([gamma], math.inf)[0]
        assert abs(law(gamma) / exact - 1) <= law.error(gamma)
        # Where the cutoff is small, and the only correction, the claim is not only a bound.
        ripple = gain_law(infinite(nu, beta)).error(gamma)
        if 1e3 * ripple < law.error(gamma) < 0.05:
            assert law(gamma) / exact - 1 == pytest.approx(law.error(gamma), rel=2 * gamma * 3000**-nu + 1e3 * ripple)


@pytest.mark.parametrize(("nu", "beta"), CASES)
def test_loss_against_time(nu, beta):
    measure = infinite(nu, beta)
    law = time_law(measure)
    times = np.array([10.0, 1e2, 1e3, 1e5, 1e8, 1e12])
    curve = tied_curve(measure, math.inf, times)
    errors = np.abs(law(times) / curve.losses - 1)
    times, errors = times[times > -2 * law.shift], errors[times > -2 * law.shift]
    losses = curve.losses[-times.size :]
    assert law.exponent == pytest.approx(beta / (2 + beta), rel=ROUNDOFF)
    assert (errors <= [law.error(t) for t in times]).all()
    # Without the shift the law is only as good as shift / t.
    bare = law.prefactor * times**-law.exponent
    assert abs(bare[-1] / losses[-1] - 1) > 10 * errors[-1]


@pytest.mark.parametrize(("nu", "beta"), CASES[:4])
def test_loss_against_time_at_finite_depth_and_dim(nu, beta):
    measure, depth = SpectralMeasure.power_law(10**5, nu, beta), 64
    law = time_law(measure, depth)
    curve = tied_curve(measure, depth, np.logspace(8.5, 11, 6))
    for time, loss, gamma in zip(curve.times, curve.losses, curve.gammas, strict=True):
        if 2 < gamma < depth:
            assert abs(law(time) / loss - 1) <= law.error(time)


@pytest.mark.parametrize(("nu", "beta"), CASES)
def test_tied_floor(nu, beta):
    law = tied_floor_law(infinite(nu, beta))
    previous = math.inf
    for depth in (1, 4, 16, 64, 256, 1024):
        exact = tied_curve(infinite(nu, beta), depth, [1.0]).floor
        error = abs(law(depth) / exact - 1)
        assert error <= 1.1 * law.error(depth)
        # Refined, with the largest modes one by one, only the ripple is left.
        left = 4 * gain_law(infinite(nu, beta), depth).error(depth) + ROUNDOFF_LONG
        assert tied_floor_refined(infinite(nu, beta), depth) == pytest.approx(exact, rel=left)
        previous = law.error(depth)
    assert previous < 0.03


@pytest.mark.parametrize(("nu", "beta"), CASES)
def test_untied_floor(nu, beta, monkeypatch):
    # Eigenvalues one by one as far as zeros of q can reach them.
    monkeypatch.setattr(theory.measure, "HEAD", 2001)
    measure = infinite(nu, beta)
    spectrum = Spectrum(measure.eigenvalues, measure.signal / measure.eigenvalues)
    law = untied_floor_law(measure)
    assert law.exponent == pytest.approx((2 + nu) * beta, rel=ROUNDOFF)
    for depth in (1, 2, 4, 8, 16, 32):
        exact = untied_floor(Task(spectrum), depth).loss
        assert abs(law(depth) / exact - 1) <= law.error(depth)


def test_untied_floor_of_a_dense_spectrum_falls_with_twice_the_source():
    # Log-even eigenvalues with s ~ x^beta: the Jacobi weight x^(beta-1) on [0, 1], whose Christoffel function is known.
    beta, dim = 0.5, 40_000
    x = np.logspace(0, -14, dim)
    spectrum = Spectrum(x, x ** (beta - 1))
    density = beta
    for depth in (2, 4, 8):
        ratio = math.gamma(depth + 1) / math.gamma(depth + beta + 1)
        exact = density * math.gamma(beta) * math.gamma(beta + 1) * ratio**2
        spacing = depth**2 * 14 * math.log(10) / dim
        assert untied_floor(Task(spectrum), depth).loss == pytest.approx(exact, rel=spacing)


@pytest.mark.parametrize(("nu", "beta"), CASES)
def test_width(nu, beta):
    for dim in (10**6, math.inf):
        measure = SpectralMeasure.power_law(dim, nu, beta, normalise=False)
        law = width_law(measure)
        for width in (1, 10, 1000):
            exact = measure.total - SpectralMeasure.power_law(width, nu, beta, normalise=False).total
            lost_digits = ROUNDOFF * measure.total / exact
            assert abs(law(width) / exact - 1) <= 1.5 * law.error(width) + lost_digits


@pytest.mark.parametrize("dim", [10**4, 10**6])
def test_truncation_shows_when_it_is_said_to(dim):
    # The published case: a truncated spectrum must not pass for physics.
    spectrum = SpectralMeasure.power_law(dim, 2.0, 0.25, normalise=False)
    scales = crossovers(spectrum, math.inf)
    whole = SpectralMeasure.power_law(math.inf, 2.0, 0.25, normalise=False)
    gap = 1 - spectrum.losses([scales.cutoff_gain], math.inf) / whole.losses([scales.cutoff_gain], math.inf)
    assert gap[0] == pytest.approx(CUTOFF_SHARE, rel=1.0 / dim**0.5)
    curve = tied_curve(spectrum, math.inf, [scales.cutoff_time])
    assert curve.gammas[0] == pytest.approx(scales.cutoff_gain, rel=2 * CUTOFF_SHARE)
    assert "Truncation" in str(scales)
    assert "from the start" in str(crossovers(SpectralMeasure.power_law(1000, 2.0, 0.25), math.inf))


def test_depth_ends_the_law_when_it_is_said_to():
    measure, depth = infinite(1.0, 0.5), 256
    scales = crossovers(measure, depth)
    law = time_law(measure, depth)
    before, after = tied_curve(measure, depth, [0.1 * scales.depth_time, 10 * scales.depth_time]).losses
    assert law(0.1 * scales.depth_time) == pytest.approx(before, rel=law.error(0.1 * scales.depth_time))
    # Afterwards the loss rests at the tied optimum while the law goes on.
    assert after > 1.3 * law(10 * scales.depth_time)
    assert scales.cutoff_time == math.inf
    assert "Depth 256" in str(scales)
    assert "for ever" in str(crossovers(measure, math.inf))


def test_start_time_is_where_the_law_begins():
    law, scales = time_law(infinite(1.0, 0.5)), crossovers(infinite(1.0, 0.5), math.inf)
    assert scales.start_time == pytest.approx(law.shift, rel=ROUNDOFF)
    assert np.isnan(law(-2 * law.shift if law.shift > 0 else -0.5 * law.shift))
    assert law.error(0.0) == math.inf


def test_exponents_and_conversions():
    found = exponents(Spectrum.power_law(10, 1.5, 0.5))
    assert (found.depth_tied, found.depth_untied, found.depth_untied_separate) == (0.5, 1.0, 1.75)
    assert exponents(Spectrum([1.0, 0.5])).time is None
    law = untied_floor_law(infinite(1.0, 0.5))
    assert "untied floor" in str(law)
    assert law.to_dict()["exponent"] == law.exponent
    assert "error" not in law.to_dict()


def test_no_power_law_is_refused():
    with pytest.raises(ValueError, match="spectrum="):
        gain_law(Spectrum([1.0, 0.5]))
    with pytest.raises(ValueError, match="depth="):
        gain_law(infinite(1.0, 0.5), 0)
