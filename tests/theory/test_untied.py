import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER
from theory import Spectrum, Task, untied_floor
from theory.gauss import gauss_rule
from theory.tied import tied_curve
from theory.untied import RESOLVED, untied_path


def continuous(dim: int, decades: float = 3.0) -> Spectrum:
    """Log-evenly spaced eigenvalues, none of which stands apart: float64 gains reach its floor."""
    x = Spectrum.log_uniform(dim, decades).eigenvalues
    return Spectrum(x, x**-0.5)


def path(spectrum, start, times):
    nodes, weights = gauss_rule(spectrum.eigenvalues, spectrum.signal, len(start) + 1)
    return untied_path(nodes, weights, spectrum.dim, start, np.asarray(times, dtype=float))


def test_matches_an_explicit_solver_on_the_full_sum():
    spectrum, depth = Spectrum.power_law(300, 1.0, 0.5), 4
    x, s = spectrum.eigenvalues, spectrum.signal
    start = np.array([0.0, 0.1, -0.05, 0.3])
    times = np.array([0.0, 1.0, 30.0, 1e3, 2e4])

    def speed(_t, gains):
        factors = 1 - np.outer(gains, x) / depth
        whole = factors.prod(axis=0)
        return [
            2 / (300 * depth) * np.sum(s * x * whole * np.delete(factors, layer, 0).prod(axis=0))
            for layer in range(depth)
        ]

    reference = solve_ivp(speed, (0, times[-1]), start, method="DOP853", t_eval=times, rtol=1e-12, atol=1e-13)
    gains, losses, status = path(spectrum, start, times)
    assert "last time" in status
    # The unstable direction of the tied manifold magnifies the solver's errors.
    np.testing.assert_allclose(gains, reference.y.T, rtol=100 * SOLVER, atol=100 * SOLVER)
    expected = [np.sum(s * (1 - np.outer(row, x) / depth).prod(axis=0) ** 2) for row in reference.y.T]
    np.testing.assert_allclose(losses, expected, rtol=10 * SOLVER)


def test_equal_gains_stay_equal_to_the_last_digit_and_follow_the_tied_curve():
    spectrum = Spectrum.power_law(2000, 1.0, 0.5)
    times = np.logspace(0, 15, 30)
    gains, losses, _ = path(spectrum, np.zeros(16), times)
    assert (gains == gains[:, :1]).all()
    curve = tied_curve(spectrum, 16, times)
    np.testing.assert_allclose(gains[:, 0], curve.gammas, rtol=100 * SOLVER)
    np.testing.assert_allclose(losses, curve.losses, rtol=100 * SOLVER)


def test_a_broken_tie_leaves_the_tied_optimum_for_the_untied_floor():
    spectrum, depth = continuous(2000), 12
    floor = untied_floor(Task(spectrum), depth).loss
    times = np.logspace(0, 15, 40)
    _, losses, status = path(spectrum, 1e-3 * np.linspace(-1, 1, depth), times)
    assert "last time" in status
    tied_floor = tied_curve(spectrum, depth, [1.0]).floor
    assert losses[-1] == pytest.approx(floor, rel=ROUNDOFF_LONG)
    assert losses[-1] < 0.5 * tied_floor
    assert (np.diff(losses) <= ROUNDOFF_LONG * losses[:-1]).all()


def test_swapping_layers_swaps_the_path():
    spectrum = continuous(500)
    start, times = np.array([0.0, 0.3, 0.1, 0.05]), np.logspace(0, 6, 8)
    order = np.array([2, 0, 3, 1])
    gains, losses, _ = path(spectrum, start, times)
    swapped, losses_swapped, _ = path(spectrum, start[order], times)
    np.testing.assert_allclose(swapped, gains[:, order], rtol=100 * SOLVER)
    np.testing.assert_allclose(losses_swapped, losses, rtol=10 * SOLVER)


def test_going_on_from_the_middle_is_the_same_as_going_through():
    spectrum = continuous(500)
    start = np.array([0.0, 0.3, 0.1])
    through, _, _ = path(spectrum, start, [1e3, 3e3])
    onwards, _, _ = path(spectrum, through[0], [2e3])
    np.testing.assert_allclose(onwards[0], through[1], rtol=100 * SOLVER)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(depth=st.integers(1, 6), dim=st.integers(1, 60), nu=st.floats(0.0, 2.0), size=st.floats(0.0, 0.2))
def test_loss_never_rises_and_never_passes_the_floor(depth, dim, nu, size):
    k = np.arange(1, dim + 1.0)
    spectrum = Spectrum(k**-nu, k**-0.3)
    times = np.concatenate([[0.0], np.logspace(-1, 9, 20)])
    _, losses, _ = path(spectrum, size * np.linspace(-1, 1, depth), times)
    followed = losses[~np.isnan(losses)]
    assert followed.size > 3
    # Below 1e-13, the solver's absolute error of the gains is all that is left.
    left = 1e-13
    assert (np.diff(followed) <= ROUNDOFF_LONG * followed[:-1] + left).all()
    assert (followed >= untied_floor(Task(spectrum), depth).loss * (1 - ROUNDOFF_LONG) - left).all()


def test_says_where_float64_gains_end():
    spectrum, depth = Spectrum.power_law(4096, 1.0, 0.5), 32
    times = np.logspace(2, 14, 13)
    gains, losses, status = path(spectrum, 1e-3 * np.linspace(-1, 1, depth), times)
    assert "Float64 gains cannot follow" in status
    assert np.isnan(losses[-1])
    assert math.isfinite(losses[-5])
    # What it kept is really insensitive to the last digit of the gains.
    last = np.flatnonzero(~np.isnan(losses))[-1]
    nearby = gains[last] * (1 + np.finfo(float).eps * np.where(np.arange(depth) % 2, 1, -1))
    x, s = spectrum.eigenvalues, spectrum.signal
    moved = np.sum(s * (1 - np.outer(nearby, x) / depth).prod(axis=0) ** 2)
    assert moved == pytest.approx(losses[last], rel=RESOLVED + ROUNDOFF)
