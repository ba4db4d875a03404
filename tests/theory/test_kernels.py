import math
import threading

import mpmath
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG
from theory import kernels

# Both sides of every depth at which another loop takes over.
DEPTHS = [1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64, 65, 256, 257, 1000, 1023, 1024, 1025, 40_000]


def exact_sums(x, s, gamma, depth):
    """The three sums at 50 digits; depth 0 is L → inf."""
    with mpmath.workdps(50):
        loss = force = stiffness = mpmath.mpf(0)
        for xk, sk in zip(x, s, strict=True):
            xk, sk = mpmath.mpf(float(xk)), mpmath.mpf(float(sk))
            if depth == 0:
                value = sk * mpmath.exp(-2 * gamma * xk)
                terms = (value, value * xk, value * xk**2)
            else:
                r = 1 - mpmath.mpf(gamma) * xk / depth
                even = r ** (2 * depth - 2) if depth > 1 else mpmath.mpf(1)
                terms = (sk * even * r**2, sk * xk * even * r, sk * xk**2 * even)
            loss, force, stiffness = loss + terms[0], force + terms[1], stiffness + terms[2]
        return float(loss), float(force), float(stiffness)


@pytest.mark.parametrize("depth", [0, *DEPTHS])
def test_sums_match_fifty_digits(depth, rng):
    x = np.sort(rng.uniform(0, 1, 700))[::-1].copy()
    s = rng.uniform(0, 1, 700)
    gamma = 1.3
    expected = exact_sums(x, s, gamma, depth)
    assert kernels.tied_sums(x, s, gamma, depth) == pytest.approx(expected, rel=ROUNDOFF)
    if depth:
        assert kernels.tied_force(x, s * x, gamma, depth) == pytest.approx(expected[1], rel=ROUNDOFF)
    # Summed along the modes, then along the gains.
    for gammas in (np.array([0.0, gamma]), np.linspace(0, 2 * gamma, 2 * kernels.BLOCK + 3)):
        losses = kernels.tied_losses(x, s, gammas, depth)
        assert losses[0] == pytest.approx(math.fsum(s), rel=ROUNDOFF)
        assert losses[gammas.size // 2] == pytest.approx(expected[0], rel=ROUNDOFF)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    x=st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 4.0)), min_size=1, max_size=12),
    depth=st.sampled_from([0, 1, 2, 7, 64]),
    gamma=st.floats(0, 50),
)
def test_sums_match_fifty_digits_on_drawn_spectra(x, depth, gamma):
    x = np.array(x)
    s = 1.0 / np.arange(1, x.size + 1)
    expected = exact_sums(x, s, gamma, depth)
    # The force cancels where r changes sign: its rounding is that of the terms' absolute values.
    r = np.abs(1 - gamma * x / depth) if depth else np.ones_like(x)
    size = float(np.sum(s * x * r ** (2 * max(depth, 1) - 1)))
    loss, force, stiffness = kernels.tied_sums(x, s, gamma, depth)
    lost = ROUNDOFF * (1 + gamma * x.max())
    # Where r is nearly zero its own rounding, not that of the power, is what counts.
    floor = 1e-300 + 2 * max(depth, 1) * np.finfo(float).eps * float(s.sum()) * float(r.max()) ** (
        2 * max(depth, 1) - 1
    )
    assert loss == pytest.approx(expected[0], rel=lost, abs=floor)
    assert force == pytest.approx(expected[1], rel=lost, abs=lost * size + floor)
    assert stiffness == pytest.approx(expected[2], rel=lost, abs=floor)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_compiled_equals_interpreted(size, rng):
    x, s = rng.uniform(0, 1, size), rng.uniform(0, 1, size)
    for depth in (0, 1, 4, 40, 900, 2 * kernels.DEEP):
        compiled = kernels.tied_sums(x, s, 0.7, depth)
        assert compiled == pytest.approx(kernels.tied_sums.py_func(x, s, 0.7, depth), rel=ROUNDOFF)
        if depth:
            interpreted = kernels.tied_force.py_func(x, s, 0.7, depth)
            assert kernels.tied_force(x, s, 0.7, depth) == pytest.approx(interpreted, rel=ROUNDOFF)


def test_untied_compiled_equals_interpreted(rng):
    x, s, gains = rng.uniform(0, 1, 20), rng.uniform(0, 1, 20), rng.uniform(0, 8, 5)
    force, force_py, stiffness, stiffness_py = np.empty(5), np.empty(5), np.empty((5, 5)), np.empty((5, 5))
    loss = kernels.untied_sums(x, s, gains, force)
    assert loss == pytest.approx(kernels.untied_sums.py_func(x, s, gains, force_py), rel=ROUNDOFF)
    kernels.untied_stiffness(x, s, gains, stiffness)
    kernels.untied_stiffness.py_func(x, s, gains, stiffness_py)
    np.testing.assert_allclose(force, force_py, rtol=ROUNDOFF)
    np.testing.assert_allclose(stiffness, stiffness_py, rtol=ROUNDOFF)


def test_untied_force_and_stiffness_are_derivatives_at_fifty_digits(rng):
    depth = 4
    x, s = rng.uniform(0, 1, 6), rng.uniform(0, 1, 6)
    # One factor is exactly zero, where dividing the product by it would fail.
    gains = np.array([1.0, depth / x[0], 2.5, 3.0])

    def loss(*values):
        return mpmath.fsum(
            mpmath.mpf(sk) * mpmath.fprod((1 - g * mpmath.mpf(xk) / depth) ** 2 for g in values)
            for xk, sk in zip(x.tolist(), s.tolist(), strict=True)
        )

    force, stiffness = np.empty(depth), np.empty((depth, depth))
    value = kernels.untied_sums(x, s, gains, force)
    kernels.untied_stiffness(x, s, gains, stiffness)
    with mpmath.workdps(50):
        point = tuple(mpmath.mpf(g) for g in gains.tolist())
        assert value == pytest.approx(float(loss(*point)), rel=ROUNDOFF)
        for layer in range(depth):
            order = [0] * depth
            order[layer] = 1
            slope = float(mpmath.diff(loss, point, tuple(order)))
            assert force[layer] == pytest.approx(-depth / 2 * slope, rel=ROUNDOFF_LONG, abs=ROUNDOFF)
            for other in range(depth):
                second = list(order)
                second[other] += 1
                curvature = float(mpmath.diff(loss, point, tuple(second)))
                assert stiffness[layer, other] == pytest.approx(
                    depth**2 / 2 * curvature, rel=ROUNDOFF_LONG, abs=ROUNDOFF
                )


def test_untied_at_equal_gains_is_tied(rng):
    x, s = rng.uniform(0, 1, 30), rng.uniform(0, 1, 30)
    force, stiffness = np.empty(6), np.empty((6, 6))
    loss = kernels.untied_sums(x, s, np.full(6, 2.2), force)
    kernels.untied_stiffness(x, s, np.full(6, 2.2), stiffness)
    tied_loss, tied_force, tied_stiffness = kernels.tied_sums(x, s, 2.2, 6)
    assert loss == pytest.approx(tied_loss, rel=ROUNDOFF)
    np.testing.assert_allclose(force, tied_force, rtol=ROUNDOFF)
    # Antisymmetric directions: eigenvalue -sum s x^2 r^(2L-2) (design: the tied manifold is unstable).
    assert np.linalg.eigvalsh(stiffness)[0] == pytest.approx(-tied_stiffness, rel=ROUNDOFF_LONG)


def test_threads_change_no_digit(rng):
    size = 2 * kernels.PIECE + 5
    x, s = rng.uniform(0, 1, size), rng.uniform(0, 1, size)
    before = numba.get_num_threads()
    values = []
    try:
        for count in {1, before}:
            numba.set_num_threads(count)
            values.append(kernels.tied_sums_threaded(x, s, 0.9, 3))
    finally:
        numba.set_num_threads(before)
    assert all(value == values[0] for value in values)
    whole = float(np.sum(s * (1 - 0.3 * x) ** 6))
    assert values[0][0] == pytest.approx(whole, rel=ROUNDOFF)


def test_kernel_releases_the_interpreter(rng):
    x, s = rng.uniform(0, 1, 400_000), rng.uniform(0, 1, 400_000)
    kernels.tied_losses(x[:10], s[:10], np.zeros(1), 0)
    ticks = []
    worker = threading.Thread(target=lambda: kernels.tied_losses(x, s, np.linspace(0, 1, 100), 0))
    worker.start()
    while worker.is_alive() and len(ticks) < 1000:
        ticks.append(worker.is_alive())
        worker.join(1e-3)
    worker.join()
    # With the lock held by the kernel this loop would turn once or twice.
    assert sum(ticks) > 5


def test_infinite_depth_is_the_limit_with_its_first_correction(rng):
    x, s = rng.uniform(0, 1, 50), rng.uniform(0, 1, 50)
    limit = kernels.tied_sums(x, s, 1.5, 0)[0]
    u = 1.5 * x
    slope = float(np.sum(s * np.exp(-2 * u) * u**2))
    for depth in (100, 1000):
        gap = limit - kernels.tied_sums(x, s, 1.5, depth)[0]
        # (1 - u/L)^(2L) = exp(-2u) (1 - u^2/L + O(1/L^2)).
        assert gap == pytest.approx(slope / depth, rel=3 / depth)
        assert math.isfinite(gap)
