"""Eigenvalues of a sample second moment, freed of their sampling bias."""

from __future__ import annotations

import numpy as np

from theory.checks import FloatArray

# Bias correction: rounds, Gaussian draws a round, and the seed that makes an estimate repeatable.
ROUNDS, DRAWS, SEED = 4, 6, 0
# Spectra of more modes are corrected for the first ones only, the rest entering as a flat background.
MOST_SIMULATED = 400


def without_sampling_bias(raw: FloatArray, n: int) -> FloatArray:
    """Return eigenvalues whose samples of size n would look like ``raw``, by iterated bootstrap in the logarithm."""
    top = min(int(np.count_nonzero(raw > raw[0] * 1e-14)), n, MOST_SIMULATED)
    log_raw = np.log(raw[:top])
    # Modes that are not simulated one by one, and those that n rows cannot show, act as a flat background.
    rest = float(raw[top:].sum())
    rng = np.random.default_rng(SEED)
    estimate = log_raw.copy()
    for _ in range(ROUNDS):
        drawn = np.mean([_log_draw(np.exp(estimate), rest, n, rng) for _ in range(DRAWS)], axis=0)
        bias = _smooth(drawn - estimate)
        estimate = np.minimum.accumulate(log_raw - bias)
    corrected = raw.copy()
    corrected[:top] = np.exp(estimate)
    corrected[top:] = np.minimum(corrected[top:], corrected[top - 1])
    return corrected


def redrawn(raw: FloatArray, corrected: FloatArray, n: int, draws: int) -> list[FloatArray]:
    """Return what other samples of n rows would have given: drawn from ``corrected``, freed of the bias of ``raw``."""
    top = min(int(np.count_nonzero(raw > raw[0] * 1e-14)), n, MOST_SIMULATED)
    rest = float(raw[top:].sum())
    bias = np.log(raw[:top]) - np.log(corrected[:top])
    rng = np.random.default_rng(SEED + 1)
    found = []
    for _ in range(draws):
        other = corrected.copy()
        other[:top] = np.exp(np.minimum.accumulate(_log_draw(corrected[:top], rest, n, rng) - bias))
        other[top:] = np.minimum(other[top:], other[top - 1])
        found.append(other)
    return found


def fall_of_equal_eigenvalues(dim: int, n: int, last: int) -> float:
    """Return the largest fall of log lambda from mode 1 to ``last`` in samples of n rows with equal eigenvalues.

    Eigenvalues that fall by less say nothing about those of the population.
    """
    size = min(dim, n, MOST_SIMULATED)
    rng = np.random.default_rng(SEED)
    draws = [_log_draw(np.ones(size), float(dim - size), n, rng) for _ in range(DRAWS)]
    return float(max(draw[0] - draw[min(last, size) - 1] for draw in draws))


def _log_draw(population: FloatArray, rest: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Return log eigenvalues of one Gaussian sample second moment of n rows, descending, by Bartlett's factor."""
    size = population.size
    factor = np.tril(rng.standard_normal((size, size)), -1)
    index = np.arange(size)
    factor[index, index] = np.sqrt(rng.chisquare(n - index))
    values = np.linalg.svd(np.sqrt(population)[:, None] * factor, compute_uv=False) ** 2 / n + rest / n
    return np.log(np.maximum(values, np.finfo(float).tiny))


def _smooth(bias: FloatArray) -> FloatArray:
    """Return ``bias`` averaged over a window that widens with k, as the bias itself varies on the scale of k."""
    total = np.concatenate([[0.0], np.cumsum(bias)])
    k = np.arange(bias.size)
    half = k // 8
    low, high = np.maximum(k - half, 0), np.minimum(k + half + 1, bias.size)
    # Symmetric windows: at the end they narrow again.
    half = np.minimum(k - low, high - 1 - k)
    result: FloatArray = (total[k + half + 1] - total[k - half]) / (2 * half + 1)
    return result
