import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG
from theory.floors import jacobi_matrix
from theory.gauss import gauss_rule, lanczos, summation_rule
from theory.kernels import untied_sums
from theory.spectra import Spectrum


def test_rule_is_exact_to_its_degree_and_no_further():
    x = np.arange(1, 300, dtype=float) ** -1.0
    s = np.arange(1, 300, dtype=float) ** -1.5
    nodes, weights = gauss_rule(x, s, 6)
    for degree in range(12):
        assert np.sum(weights * nodes**degree) == pytest.approx(math.fsum(s * x**degree), rel=ROUNDOFF)
    # Degree 2n is the square of the monic orthogonal polynomial off: strictly too small.
    assert np.sum(weights * nodes**12) < math.fsum(s * x**12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    x=st.lists(st.sampled_from([0.0, 1e-12, 0.1, 0.1 + 1e-9, 0.5, 1.0, 1.0]), min_size=1, max_size=30),
    order=st.integers(1, 12),
)
def test_rule_on_repeated_points(x, order):
    points, signal = np.array(x), np.linspace(1, 2, len(x))
    nodes, weights = gauss_rule(points, signal, order)
    assert nodes.size <= min(order, points.size)
    assert (weights >= 0).all()
    for degree in range(2 * min(order, len(set(x))) - 1):
        assert np.sum(weights * nodes**degree) == pytest.approx(math.fsum(signal * points**degree), rel=ROUNDOFF_LONG)


def test_rule_of_the_uniform_weight_is_gauss_legendre():
    # The midpoints of many equal cells: the rule differs from the continuous one by O(cells^-2).
    cells = 20_000
    x = (np.arange(cells) + 0.5) / cells
    nodes, weights = gauss_rule(x, np.full(cells, 1 / cells), 5)
    legendre, shares = np.polynomial.legendre.leggauss(5)
    np.testing.assert_allclose(nodes, (1 + legendre) / 2, rtol=1 / cells)
    np.testing.assert_allclose(weights, shares / 2, rtol=1 / cells)


@pytest.mark.parametrize("depth", [1, 5, 32])
def test_untied_loss_of_any_gains_is_reproduced_by_depth_plus_one_nodes(depth, rng):
    spectrum = Spectrum.power_law(2000, 1.3, 0.6)
    nodes, weights = gauss_rule(spectrum.eigenvalues, spectrum.signal, depth + 1)
    for _ in range(5):
        gains = depth / rng.uniform(0.02, 1, depth)
        force, force_of_rule = np.empty(depth), np.empty(depth)
        loss = untied_sums(spectrum.eigenvalues, spectrum.signal, gains, force)
        assert untied_sums(nodes, weights, gains, force_of_rule) == pytest.approx(loss, rel=ROUNDOFF_LONG)
        np.testing.assert_allclose(force_of_rule, force, rtol=ROUNDOFF_LONG, atol=ROUNDOFF_LONG * np.abs(force).max())


def test_lanczos_compiled_equals_interpreted(rng):
    x, s = rng.uniform(0, 1, 40), rng.uniform(0.5, 1, 40)
    for compiled, interpreted in zip(lanczos(x, s, 6)[:2], lanczos.py_func(x, s, 6)[:2], strict=True):
        np.testing.assert_allclose(compiled, interpreted, rtol=ROUNDOFF)


@pytest.mark.parametrize(
    "spectrum",
    [
        Spectrum.power_law(3000, 1.0, 0.5),
        Spectrum.power_law(3000, 2.0, 0.5),
        Spectrum.power_law(3000, 0.5, 1.0),
        Spectrum.log_uniform(2000, 100),
        Spectrum.spiked(500, [1e6, 1e3, 30.0]),
        Spectrum.exponential(200, 1.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [4, 17, 40])
def test_partial_reorthogonalisation_is_as_good_as_full(spectrum, steps):
    # Gram and Schmidt, twice against every earlier vector; without any, the overlaps reach 1 after some ten steps.
    diagonal, off = jacobi_matrix(spectrum.eigenvalues, spectrum.signal, steps)
    found, found_off, length = lanczos(spectrum.eigenvalues, spectrum.signal, steps)
    shared = min(length, diagonal.size)
    scale = spectrum.eigenvalues[0]
    np.testing.assert_allclose(found[:shared], diagonal[:shared], rtol=ROUNDOFF, atol=ROUNDOFF * scale)
    np.testing.assert_allclose(found_off[: shared - 1], off[: shared - 1], rtol=ROUNDOFF, atol=ROUNDOFF * scale)
    # What one has and the other has not is a vector that is rounding.
    for rest in (off[length - 1 :], found_off[diagonal.size - 1 :]):
        assert (rest <= ROUNDOFF * scale).all()


@pytest.mark.parametrize(("low", "high"), [(1, 12), (64, 129), (1000, 2001)])
def test_summation_rule_is_exact_for_polynomials(low, high):
    nodes, weights = summation_rule(low, high, 5)
    for degree in range(10):
        exact = sum((k - low) ** degree for k in range(low, high))
        assert np.sum(weights * (nodes - low) ** degree) == pytest.approx(exact, rel=ROUNDOFF)
    assert (weights > 0).all()


def test_summation_rule_on_a_long_run_of_integers():
    low, high = 10**6, 2 * 10**9
    nodes, weights = summation_rule(low, high, 4)
    # Sums of powers in whole numbers, exact.
    n = high - low
    exact = n * (n - 1) * (2 * n - 1) // 6
    assert np.sum(weights * (nodes - low) ** 2) == pytest.approx(exact, rel=ROUNDOFF)
