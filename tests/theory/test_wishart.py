from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import ROUNDOFF, sampling
from theory import Spectrum, Task
from theory.wishart import polynomial_moments, second_moment

# Error bars of third moments of short contexts come from few large samples: allow half as much again.
HEAVY_TAIL = 1.5


def rational_gaussian_moment(indices: tuple[int, ...], lam: np.ndarray) -> float:
    """E of a product of entries of one Gaussian row with diagonal covariance, from the one-dimensional moments."""
    value = 1.0
    for axis in range(lam.size):
        power = indices.count(axis)
        if power % 2:
            return 0.0
        value *= float(np.prod(np.arange(1, power, 2))) * lam[axis] ** (power // 2)
    return value


def brute_moment(lam: np.ndarray, weights: list[np.ndarray], context: int) -> np.ndarray:
    """Diagonal of E[S A S B S ...], S = sum_mu x x^T / P, by enumerating every row and every coordinate."""
    dim, factors = lam.size, len(weights) + 1
    result = np.zeros(dim)
    for k in range(dim):
        for inner in itertools.product(range(dim), repeat=factors - 1):
            chain = (k, *inner, k)
            weight = float(np.prod([weights[i][inner[i]] for i in range(factors - 1)]))
            for rows in itertools.product(range(context), repeat=factors):
                term = 1.0
                for row in set(rows):
                    entries = tuple(c for f in range(factors) if rows[f] == row for c in (chain[f], chain[f + 1]))
                    term *= rational_gaussian_moment(entries, lam)
                result[k] += weight * term
    return result / context**factors


@pytest.mark.parametrize("context", [1, 2, 3])
@pytest.mark.parametrize("lam", [[1.5], [2.0, 0.5], [1.0, 1.0], [1.0, 0.0]])
def test_low_moments_equal_the_sum_over_every_pairing(lam: list[float], context: int) -> None:
    eigenvalues = np.array(lam)
    power = np.linspace(1.0, 0.4, eigenvalues.size)
    task = Task(Spectrum(eigenvalues, power, normalise=False), "fs", context, 0.3)
    one = np.ones_like(eigenvalues)
    signal_chain = brute_moment(eigenvalues, [power], context)
    noise = 0.3 * eigenvalues / context
    np.testing.assert_allclose(second_moment(task), signal_chain + noise, rtol=ROUNDOFF)
    moments = polynomial_moments(task)
    expected = {
        (0, 0): float(power @ eigenvalues),
        (0, 1): float(power @ (eigenvalues * eigenvalues)),
        (1, 1): float(power @ brute_moment(eigenvalues, [eigenvalues], context)),
        (0, 2): float((power * eigenvalues) @ brute_moment(eigenvalues, [one], context)),
        (1, 2): float(power @ brute_moment(eigenvalues, [eigenvalues, one], context)),
    }
    for (i, j), value in expected.items():
        np.testing.assert_allclose([moments[i, j], moments[j, i]], value, rtol=ROUNDOFF)


@settings(max_examples=20, deadline=None)
@given(
    lam=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=5),
    context=st.integers(1, 20),
    seed=st.integers(0, 2**31),
)
def test_moments_agree_with_sampled_covariances(lam: list[float], context: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    task = Task(Spectrum(lam, normalise=False), "fs", context)
    root = np.sqrt(task.spectrum.eigenvalues)
    rows = generator.standard_normal((4000, context, task.dim)) * root
    sample = np.einsum("spi,spj->sij", rows, rows) / context
    lam_array, moments = task.spectrum.eigenvalues, polynomial_moments(task)
    for (i, j), product in {
        (1, 1): np.einsum("sij,j,sji->s", sample, lam_array, sample),
        (1, 2): np.einsum("sij,j,sjk,ski->s", sample, lam_array, sample, sample),
    }.items():
        error = product.std(ddof=1) / np.sqrt(product.size)
        assert abs(product.mean() - moments[i, j]) <= HEAVY_TAIL * sampling(error) + ROUNDOFF
