"""Wishart averages against drawn tokens, brute-force averages and exact moments."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF_LONG, sampling
from theory import Spectrum, Task
from theory.finite_context import bartlett_factor, draw_with_rare, moment_weights, wishart_loss
from theory.wishart import polynomial_moments


@pytest.mark.parametrize(("dim", "context"), [(1, 1), (4, 2), (5, 5), (3, 20)])
def test_bartlett_has_the_wishart_mean_and_variance(rng: np.random.Generator, dim: int, context: int) -> None:
    draws = 4000
    factor = bartlett_factor(dim, context, draws, rng)
    wishart = factor @ factor.transpose(0, 2, 1)
    mean_error = np.abs(wishart.mean(axis=0) - context * np.eye(dim))
    assert np.all(mean_error <= sampling(np.sqrt(context * (1 + np.eye(dim)) / draws)))
    # The variance of W_11 is 2 P; the sample variance of a chi-square has relative error sqrt((2 + 12 / P) / draws).
    variance = wishart[:, 0, 0].var(ddof=1)
    assert abs(variance / (2 * context) - 1) <= sampling(np.sqrt((2 + 12 / context) / draws))


@pytest.mark.parametrize("context", [2, 5, 30])
@pytest.mark.parametrize("label_noise", [0.0, 0.5])
def test_compressed_form_is_the_average_over_the_same_draws(context: int, label_noise: float) -> None:
    task = Task(Spectrum.power_law(5, 1.0, 0.8), "rrs", context, label_noise)
    gains = np.array([0.5, 2.0, 1.2])
    loss = wishart_loss(task, 3, samples=50, seed=7)
    expected = 0.0
    covariances, weights = draw_with_rare(task, 3, 50, np.random.default_rng(7))
    for sigma, drawn in zip(covariances, weights / weights.mean(), strict=True):
        weight, response = np.eye(5), np.zeros((5, 5))
        for gain in gains:
            response = response + gain / 3 * weight
            weight = weight - gain / 3 * sigma @ weight
        lam, power = np.diag(task.spectrum.eigenvalues), np.diag(task.spectrum.task_power)
        expected += drawn * np.trace(power @ weight.T @ lam @ weight)
        expected += drawn * label_noise / context * np.trace(response.T @ lam @ response @ sigma)
    assert loss.value(gains) == pytest.approx(expected / 50, rel=ROUNDOFF_LONG)


def test_average_agrees_with_drawn_tokens_and_labels(rng: np.random.Generator) -> None:
    """The full forward pass on tokens, labels and a query shares nothing with the code under test."""
    dim, context, contexts, noise = 3, 4, 20_000, 0.2
    spectrum = Spectrum.power_law(dim, 1.0, 0.5)
    gains = [1.0, 0.4]
    x = rng.standard_normal((contexts, context + 1, dim)) * np.sqrt(spectrum.eigenvalues)
    w = rng.standard_normal((contexts, dim)) * np.sqrt(spectrum.task_power)
    clean = np.einsum("cpd,cd->cp", x, w)
    labels = clean[:, :context] + np.sqrt(noise) * rng.standard_normal((contexts, context))
    state = np.concatenate([labels, np.zeros((contexts, 1))], axis=1)
    for gain in gains:
        scores = gain * np.einsum("cmd,cnd->cmn", x, x[:, :context]) / context
        state = state - np.einsum("cmn,cn->cm", scores, state[:, :context]) / len(gains)
    errors = (clean[:, -1] + state[:, -1]) ** 2
    loss = wishart_loss(Task(spectrum, "rrs", context, noise), 2, samples=4000, seed=1)
    spread = np.hypot(errors.std(ddof=1) / np.sqrt(contexts), loss.standard_error(gains))
    assert abs(errors.mean() - loss.value(gains)) <= sampling(spread)


def test_standard_error_matches_the_spread_over_seeds() -> None:
    task = Task(Spectrum.power_law(8, 1.5, 0.5), "rrs", 10)
    gains = np.full(3, 1.5)
    losses = [wishart_loss(task, 3, samples=400, seed=seed) for seed in range(60)]
    spread = np.std([loss.value(gains) for loss in losses], ddof=1)
    claimed = np.sqrt(np.mean([loss.standard_error(gains) ** 2 for loss in losses]))
    # Relative error of a standard deviation from 60 draws: 1 / sqrt(2 * 59).
    assert abs(claimed / spread - 1) <= sampling(1 / np.sqrt(2 * 59))


def test_seed_decides_the_draws() -> None:
    task = Task(Spectrum.isotropic(3), "iso", 4)
    first, again, other = (wishart_loss(task, 2, samples=50, seed=seed).value([1, 1]) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(("dim", "context"), [(1, 1), (4, 3), (6, 40)])
def test_one_layer_is_exact_by_the_known_moments(dim: int, context: int) -> None:
    task = Task(Spectrum.power_law(dim, 1.0, 0.8), "rrs", context)
    lam, signal = task.spectrum.eigenvalues, task.spectrum.signal
    for gain in (0.3, 2.0):
        second = np.sum(lam**2 * signal) * (1 + 1 / context)
        second += np.sum(signal) * np.sum(lam**2) / context
        expected = 1 - 2 * gain * np.sum(lam * signal) + gain**2 * second
        loss = wishart_loss(task, 1, samples=200, seed=4)
        assert loss.value([gain]) == pytest.approx(expected, rel=ROUNDOFF_LONG)
        assert loss.standard_error([gain]) <= ROUNDOFF_LONG


def test_known_moments_lower_the_error_and_keep_the_mean() -> None:
    task = Task(Spectrum.power_law(10, 1.2, 0.7), "rrs", 15)
    gains = np.full(4, 1.5)
    steered = wishart_loss(task, 4, samples=1000, seed=5)
    plain = [wishart_loss(task, 4, samples=99, seed=seed) for seed in range(60, 90)]
    error = plain[0].standard_error(gains) * np.sqrt(99 / 1000)
    assert steered.standard_error(gains) < error
    mean, spread = np.mean([loss.value(gains) for loss in plain]), np.std([loss.value(gains) for loss in plain], ddof=1)
    assert abs(steered.value(gains) - mean) <= sampling(np.hypot(steered.standard_error(gains), spread / np.sqrt(30)))


def test_draws_handled_in_pieces_are_the_same_average(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(Spectrum.power_law(4, 1.0, 0.8), "rrs", 6, 0.3)
    monkeypatch.setattr("theory.finite_context.MOST_ENTRIES", 7 * 16)
    loss, gains = wishart_loss(task, 3, samples=50, seed=7), np.array([0.5, 2.0, 1.2])
    rng, expected, total = np.random.default_rng(7), 0.0, 0.0
    for count in (7, 7, 7, 7, 7, 7, 7, 1):
        for sigma, drawn in zip(*draw_with_rare(task, 3, count, rng), strict=True):
            total += drawn
            weight, response = np.eye(4), np.zeros((4, 4))
            for gain in gains:
                response = response + gain / 3 * weight
                weight = weight - gain / 3 * sigma @ weight
            lam, power = task.spectrum.eigenvalues, task.spectrum.task_power
            expected += drawn * np.einsum("i,ij,j,ij->", lam, weight, power, weight)
            expected += drawn * 0.3 / 6 * np.trace(response.T @ np.diag(lam) @ response @ sigma)
    assert loss.value(gains) == pytest.approx(expected / total, rel=ROUNDOFF_LONG)


@pytest.mark.parametrize(("dim", "context", "depth"), [(5, 8, 1), (5, 3, 4), (6, 20, 8)])
def test_stretched_draws_are_weighted_back_to_the_wishart_moments(dim: int, context: int, depth: int) -> None:
    task = Task(Spectrum.power_law(dim, 1.0, 0.8), "rrs", context)
    covariances, weights = draw_with_rare(task, depth, 20_000, np.random.default_rng(3))
    assert weights.min() < weights.max() <= 2
    assert abs(weights.mean() - 1) <= sampling(weights.std() / np.sqrt(weights.size))
    lam, omega = task.spectrum.eigenvalues, task.spectrum.task_power
    exact = polynomial_moments(task)
    powers = [np.broadcast_to(np.eye(dim), covariances.shape), covariances, covariances @ covariances]
    for i, j in ((0, 1), (1, 1), (0, 2), (1, 2)):
        found = weights * np.einsum("a,sab,b,sba->s", omega, powers[i], lam, powers[j])
        assert abs(found.mean() - exact[i, j]) <= sampling(found.std() / np.sqrt(found.size))


def test_flat_spectra_are_drawn_as_they_are() -> None:
    assert (draw_with_rare(Task(Spectrum.isotropic(8), "iso", 10), 6, 20, np.random.default_rng(0))[1] == 1).all()


def test_moment_weights_meet_the_moments_and_change_as_little_as_they_can(rng: np.random.Generator) -> None:
    controls, drawn = rng.standard_normal((300, 3)) + 0.2, rng.uniform(0.5, 2, 300)
    weights = moment_weights(controls, drawn)
    assert weights is not None
    assert weights.min() > 0
    assert weights.sum() == pytest.approx(1, rel=ROUNDOFF_LONG)
    np.testing.assert_allclose(weights @ controls, 0, atol=ROUNDOFF_LONG)

    # Any other weights that meet the moments are further, in relative entropy, from those drawn.
    def entropy(given: np.ndarray) -> float:
        return float(np.sum(given * np.log(given / drawn)))

    basis = np.linalg.svd(np.column_stack([np.ones(300), controls]).T)[2][4:]
    for _ in range(20):
        aside = rng.standard_normal(basis.shape[0]) @ basis
        assert entropy(weights + 0.1 * weights.min() * aside / np.abs(aside).max()) > entropy(weights)
    assert moment_weights(np.abs(controls) + 0.1, drawn) is None
