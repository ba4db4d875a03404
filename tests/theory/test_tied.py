import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER
from theory import tied
from theory.kernels import DEEP
from theory.measure import SpectralMeasure
from theory.spectra import Spectrum
from theory.tied import tied_curve


def by_quadrature(x, s, dim, depth, gamma):
    """The time at which the flow reaches ``gamma``, at 30 digits."""
    with mpmath.workdps(30):
        points = [(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(x, s, strict=True)]

        def inverse_force(g):
            if math.isinf(depth):
                return 1 / mpmath.fsum(b * a * mpmath.exp(-2 * g * a) for a, b in points)
            return 1 / mpmath.fsum(b * a * (1 - g * a / depth) ** (2 * depth - 1) for a, b in points)

        gamma = mpmath.mpf(gamma)
        # Pieces that shrink towards the end, where the integrand grows.
        breaks = [0, *(gamma * (1 - mpmath.mpf(2) ** -j) for j in range(1, 22)), gamma]
        rate = mpmath.mpf(2) / (dim * (1 if math.isinf(depth) else depth))
        return float(mpmath.quad(inverse_force, breaks) / rate)


@pytest.mark.parametrize("depth", [1, 2, 16, 300, math.inf])
def test_time_is_the_integral_over_the_gain(depth):
    spectrum = Spectrum.power_law(12, 1.2, 0.6)
    times = np.logspace(-4, 5, 6)
    curve = tied_curve(spectrum, depth, times)
    for time, gamma in zip(times, curve.gammas, strict=True):
        gap = 1 - gamma / curve.fixed_point
        if gap < 1e-6:
            continue
        # Close to the end a rounding error of the gain is worth 1 / gap in time.
        back = by_quadrature(spectrum.eigenvalues, spectrum.signal, 12, depth, gamma)
        assert back == pytest.approx(time, rel=ROUNDOFF + 1e-15 / gap)


@pytest.mark.parametrize(
    ("dim", "nu", "beta", "depth"), [(4096, 1.0, 0.5, 16), (3000, 2.0, 0.3, 3), (2000, 0.5, 1.5, math.inf)]
)
def test_curve_matches_an_ordinary_solver(dim, nu, beta, depth):
    spectrum = Spectrum.power_law(dim, nu, beta)
    x, s = spectrum.eigenvalues, spectrum.signal
    times = np.logspace(-3, 5, 25)

    def rate(_t, g):
        if math.isinf(depth):
            return [2 / dim * np.sum(s * x * np.exp(-2 * g[0] * x))]
        return [2 / (dim * depth) * np.sum(s * x * (1 - g[0] * x / depth) ** (2 * depth - 1))]

    reference = solve_ivp(rate, (0, times[-1]), [0.0], method="DOP853", t_eval=times, rtol=1e-12, atol=1e-30)
    curve = tied_curve(spectrum, depth, times)
    np.testing.assert_allclose(curve.gammas, reference.y[0], rtol=SOLVER)
    u = curve.gammas[:, None] * x
    factor = np.exp(-2 * u) if math.isinf(depth) else (1 - u / depth) ** (2 * depth)
    np.testing.assert_allclose(curve.losses, (factor * s).sum(axis=1), rtol=ROUNDOFF_LONG)


def test_depth_one_is_an_exponential():
    spectrum = Spectrum.power_law(30, 1.5, 0.7)
    x, s = spectrum.eigenvalues, spectrum.signal
    times = np.logspace(-6, 4, 40)
    curve = tied_curve(spectrum, 1, times)
    force, curvature = float(np.sum(s * x)), float(np.sum(s * x * x))
    expected = force / curvature * -np.expm1(-2 / 30 * curvature * times)
    np.testing.assert_allclose(curve.gammas, expected, rtol=ROUNDOFF)


@pytest.mark.parametrize("depth", [2, 5, 64])
def test_one_mode_approaches_its_zero_by_a_power_law(depth):
    # d r / dt = -(2 lambda^2 s / (D L^2)) r^(2L-1), s = 1, r = 1 - gamma lambda / L: solved by hand.
    times = np.logspace(-3, 15, 60)
    curve = tied_curve(Spectrum([2.0]), depth, times)
    speed = 2 * 2.0**2 / depth**2
    log_r = np.log1p((2 * depth - 2) * speed * times) / -(2 * depth - 2)
    r = np.exp(log_r)
    np.testing.assert_allclose(curve.gammas, -depth / 2.0 * np.expm1(log_r), rtol=ROUNDOFF)
    # A gain rounded to 1e-16 leaves r with that absolute error.
    np.testing.assert_allclose(curve.losses, r ** (2 * depth), rtol=ROUNDOFF + 4 * depth * 1e-15 / r.min())


def test_one_mode_infinitely_deep_is_a_logarithm():
    times = np.logspace(-3, 15, 60)
    curve = tied_curve(Spectrum([1.0]), math.inf, times)
    np.testing.assert_allclose(curve.gammas, np.log1p(4 * times) / 2, rtol=ROUNDOFF)
    np.testing.assert_allclose(curve.losses, 1 / (1 + 4 * times), rtol=ROUNDOFF_LONG)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    spectrum=st.one_of(
        st.builds(Spectrum.log_uniform, st.integers(2, 200), st.floats(0.1, 300)),
        st.builds(Spectrum.power_law, st.integers(1, 1500), st.floats(0.2, 4), st.floats(0.1, 3)),
        st.lists(st.sampled_from([0.0, 1e-200, 0.3, 0.3, 1.0, 1.0, 7.0]), min_size=1, max_size=9)
        .filter(any)
        .map(lambda values: Spectrum(np.array(values))),
    ),
    depth=st.sampled_from([1, 2, 3, 16, 500, math.inf]),
)
def test_long_horizons_are_finite_monotone_and_end_at_the_fixed_point(spectrum, depth):
    times = np.concatenate([[0.0], np.logspace(-6, 15, 50)])
    curve = tied_curve(spectrum, depth, times)
    assert np.isfinite(curve.gammas).all()
    assert np.isfinite(curve.losses).all()
    assert curve.gammas[0] == 0
    assert (np.diff(curve.gammas) >= -ROUNDOFF * curve.gammas[1:]).all()
    assert (np.diff(curve.losses) <= ROUNDOFF * curve.losses[:-1]).all()
    assert curve.losses[0] == pytest.approx(spectrum.total, rel=ROUNDOFF)
    if math.isfinite(depth):
        assert (curve.gammas <= curve.fixed_point * (1 + ROUNDOFF)).all()
        assert (curve.losses >= curve.floor * (1 - ROUNDOFF_LONG)).all()


@pytest.mark.parametrize("depth", [64, 340, 388, 1000])
def test_deep_models_on_many_modes_match_an_ordinary_solver(depth):
    # The curve passes every gain at which some mode's residual is exactly zero.
    spectrum = Spectrum.power_law(900, 1.0, 0.5)
    x, s = spectrum.eigenvalues, spectrum.signal
    times = np.logspace(5, 11, 7)

    def rate(_t, g):
        return [2 / (900 * depth) * np.sum(s * x * (1 - g[0] * x / depth) ** (2 * depth - 1))]

    reference = solve_ivp(rate, (0, times[-1]), [0.0], method="LSODA", t_eval=times, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tied_curve(spectrum, depth, times).gammas, reference.y[0], rtol=10 * SOLVER)


def test_one_time_is_the_same_as_many_and_the_last_is_as_asked():
    spectrum = Spectrum.power_law(200, 1.0, 0.5)
    times = np.geomspace(0.011, 11.0040020010005, 50)
    times[-1] = 11.0040020010005
    curve = tied_curve(spectrum, 4, times)
    assert curve.times[-1] == 11.0040020010005
    for index in (0, 20, 49):
        single = tied_curve(spectrum, 4, times[index : index + 1])
        assert single.gammas[0] == pytest.approx(curve.gammas[index], rel=ROUNDOFF)


def test_infinite_dim_is_the_limit_of_large_ones_in_their_clock():
    times = np.logspace(0, 6, 20)
    whole = tied_curve(SpectralMeasure.power_law(math.inf, 1.0, 0.5), math.inf, times)
    gaps = []
    for dim in (10**6, 10**9):
        part = tied_curve(SpectralMeasure.power_law(dim, 1.0, 0.5), math.inf, times, clock_dim=1.0)
        gaps.append(np.abs(part.losses / whole.losses - 1).max())
    # The missing tail sum falls like dim^(-nu beta).
    assert gaps[1] < gaps[0] < 0.1
    next_power = 1e6**-0.25
    assert math.log10(gaps[0] / gaps[1]) / 3 == pytest.approx(0.5, abs=next_power)


def test_losses_far_below_rounding_are_closed_forms_not_noise():
    spectrum = Spectrum(np.arange(1, 31.0) ** -2, np.arange(1, 31.0) ** 0.5, normalise=False)
    gammas = tied_curve(spectrum, math.inf, [1e80]).gammas
    assert math.isfinite(gammas[0])
    exact = SpectralMeasure.from_spectrum(spectrum).losses([1e5], math.inf)[0]
    two_digits = 0.05
    assert exact == pytest.approx(1.9e-99, rel=two_digits / 1.9)


def test_fixed_point_and_differences_compiled_equal_interpreted(rng):
    x = np.sort(rng.uniform(0.1, 1, 5))[::-1].copy()
    s = rng.uniform(0.1, 1, 5)
    assert tied.fixed_point(x, s, 3) == pytest.approx(tied.fixed_point.py_func(x, s, 3), rel=ROUNDOFF)
    for a, b in (
        (0.5, 1e-9),
        (1e-60, 0.5),
        (-1e-60, 0.5),
        (0.3, 0.4),
        (-0.5, 1e-9),
        (-0.5, 0.5),
        (0.0, 0.1),
        (-0.2, 0.7),
    ):
        with mpmath.workdps(40):
            exact = float((mpmath.mpf(a) + mpmath.mpf(b)) ** 7 - mpmath.mpf(a) ** 7)
        assert tied._difference(a, b, 7) == pytest.approx(exact, rel=ROUNDOFF)
        assert tied._difference.py_func(a, b, 7) == pytest.approx(exact, rel=ROUNDOFF)
    # Powers that underflow while their ratio overflows.
    assert tied._difference(0.0054, 0.0053, 1055) == 0.0


@pytest.mark.parametrize("depth", [1, 2, 3, 6, 16, 37, 1000, DEEP, DEEP + 1, 5000])
def test_force_near_and_far_from_the_fixed_point_keeps_its_digits(depth, rng):
    # Residuals of both signs at the fixed point, the largest above one, and one that is nearly zero.
    x = np.array([1.0, 0.7, 0.5, 0.1, 1e-3, 1e-40])
    s = np.array([1e-3, 0.3, 0.2, 1.0, 1.0, 1.0])
    fixed = tied.fixed_point(x, s, depth)
    distances = fixed * np.concatenate([[1.0], 10.0 ** -np.arange(1, 17.0)])
    gains = fixed - distances
    found = np.empty(gains.size)
    tied._forces(x, s, depth, gains, fixed, distances, found)
    with mpmath.workdps(60):
        modes = [(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(x, s, strict=True)]

        def force(gain):
            return mpmath.fsum(b * a * (1 - gain * a / depth) ** (2 * depth - 1) for a, b in modes)

        # The float64 fixed point is off by its own rounding; the force is known relative to the true one.
        true = mpmath.findroot(force, (mpmath.mpf(fixed) * (1 - mpmath.mpf(10) ** -9), mpmath.mpf(fixed)))
        expected = [float(force(true - mpmath.mpf(float(distance)))) for distance in distances]
    np.testing.assert_allclose(found, expected, rtol=ROUNDOFF + 4 * depth * np.finfo(float).eps)


def test_results_print_plot_and_convert():
    curve = tied_curve(Spectrum.power_law(20, 1.0, 0.5), 2, [1.0, 2.0])
    assert list(curve.to_frame()) == ["time", "gamma", "loss"]
    assert curve.plot().get_xlabel() == "time t"
    assert curve.to_dict()["depth"] == 2


@pytest.mark.parametrize(
    ("depth", "times", "name"),
    [(0, [1.0], "depth"), (1.5, [1.0], "depth"), (2, [-1.0], "times"), (2, [2.0, 1.0], "times"), (2, [], "times")],
)
def test_bad_input_is_named(depth, times, name):
    with pytest.raises(ValueError, match=name):
        tied_curve(Spectrum.power_law(20, 1.0, 0.5), depth, times)
