"""FS at finite context: one layer against draws and a plain loop, bounds against Bayes' rule and random gains."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF_LONG, sampling
from theory import Spectrum, Task
from theory.fixed_basis import SampledModes, tied_mode_flow
from theory.fixed_floors import least_linear_loss, one_layer_modes, sampled_floors

# Central differences at step 1e-5 of curves of unit scale.
DIFFERENCE = 1e-8


def fs(context: int | None, noise: float = 0.0, dim: int = 5) -> Task:
    return Task(Spectrum.power_law(dim, 1.2, 0.7), "fs", context, noise)


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_one_layer_flow_follows_the_gradient_of_drawn_contexts(noise: float) -> None:
    task, step = fs(6, noise), 1e-5
    path = one_layer_modes(task, [0.0, 1.0 - step, 1.0, 1.0 + step, 30.0])
    speed = (path.gains[3, 0] - path.gains[1, 0]) / (2 * step)
    draws = [SampledModes(task, 1, samples=400, seed=seed) for seed in range(30)]
    slopes = np.array([draw.value_and_gradient(path.gains[2])[1][0] for draw in draws])
    error = slopes.std(axis=0, ddof=1) / np.sqrt(30)
    assert np.all(np.abs(slopes.mean(axis=0) + speed) <= sampling(error) + DIFFERENCE)
    for index in (0, 2, 4):
        found = [draw.sample_losses(path.gains[index]) for draw in draws]
        losses, modes = np.array([each[0].mean() for each in found]), np.array([each[1].mean(axis=0) for each in found])
        assert abs(losses.mean() - path.losses[0, index]) <= sampling(losses.std(ddof=1) / np.sqrt(30)) + ROUNDOFF_LONG
        error = modes.std(axis=0, ddof=1) / np.sqrt(30)
        assert np.all(np.abs(modes.mean(axis=0) - path.mode_losses[index]) <= sampling(error) + ROUNDOFF_LONG)


def test_one_layer_of_infinite_context_is_the_population_flow() -> None:
    times = [0.0, 0.3, 4.0, 90.0]
    found, expected = one_layer_modes(fs(None), times), tied_mode_flow(fs(None), 1, times)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=ROUNDOFF_LONG)
    np.testing.assert_allclose(found.mode_losses, expected.mode_losses, rtol=ROUNDOFF_LONG, atol=ROUNDOFF_LONG)


def test_one_layer_recursion_is_the_plain_loop_and_small_steps_are_the_flow() -> None:
    task, rate = fs(4, 0.3), 1e-3
    fine = one_layer_modes(task, [3000], learning_rate=rate)
    flow = one_layer_modes(task, [3.0])
    # The recursion is off by its step times the length of the path.
    np.testing.assert_allclose(fine.gains, flow.gains, rtol=10 * rate)
    gain, lam, signal = np.zeros(5), task.spectrum.eigenvalues, task.spectrum.signal
    for _ in range(7):
        spread = signal * lam * (1 + 1 / 4) + lam * (signal.sum() + 0.3) / 4
        gain = gain - 0.5 * (-2 * lam * signal + 2 * gain * lam * spread)
    np.testing.assert_allclose(one_layer_modes(task, [7], learning_rate=0.5).gains[0, 0], gain, rtol=ROUNDOFF_LONG)
    assert "Diverged" in one_layer_modes(task, [5000], learning_rate=1e3).status
    with pytest.raises(ValueError, match="whole"):
        one_layer_modes(task, [0.5], learning_rate=0.5)


@pytest.mark.parametrize("context", [3, 12])
def test_least_linear_loss_is_the_posterior_variance(context: int) -> None:
    """Bayes: given the tokens, w has covariance (Omega^-1 + P Sigma_hat / sigma^2)^-1."""
    task, noise = fs(context, 0.2), 0.2
    loss = SampledModes(task, 2, samples=50, seed=2)
    prior = np.diag(1 / task.spectrum.task_power)
    posterior = [np.linalg.inv(prior + context / noise * s) for s in loss.covariances]
    expected = np.mean([np.sum(task.spectrum.eigenvalues * np.diag(each)) for each in posterior])
    assert least_linear_loss(loss)[0] == pytest.approx(expected, rel=ROUNDOFF_LONG)


def test_without_noise_what_the_tokens_do_not_span_is_left() -> None:
    assert least_linear_loss(SampledModes(fs(7), 2, samples=50))[0] <= ROUNDOFF_LONG
    task = fs(2)
    loss = SampledModes(task, 2, samples=50)
    root = np.sqrt(task.spectrum.task_power)
    expected = []
    for s in loss.covariances:
        tokens = np.linalg.svd(root[:, None] * s * root)[0][:, :2]
        left = root[:, None] * (np.eye(5) - tokens @ tokens.T) * root
        expected.append(np.sum(task.spectrum.eigenvalues * np.diag(left)))
    assert least_linear_loss(loss)[0] == pytest.approx(np.mean(expected), rel=ROUNDOFF_LONG)


@pytest.mark.parametrize(("context", "noise"), [(3, 0.0), (8, 0.3)])
def test_floors_are_bracketed(context: int, noise: float, rng: np.random.Generator) -> None:
    task = fs(context, noise, dim=3)
    loss, fresh = (SampledModes(task, 2, samples=100, seed=seed) for seed in (0, 1))
    floors, notes = sampled_floors(loss, np.full((2, 3), 0.5), fresh)
    assert notes["floor_lower_bound"] <= floors["untied"].loss <= floors["tied"].loss * (1 + ROUNDOFF_LONG)
    assert notes["floor_slope"] < 1e-3
    for name in ("tied", "untied"):
        assert floors[name].loss == min(notes["floor_starts"][name])
        assert floors[name].standard_error >= floors[name].optimism >= 0
    for _ in range(300):
        gains = rng.uniform(0, 3, (2, 3))
        value = loss.value_and_gradient(gains)[0]
        assert value >= floors["untied"].loss
        assert value >= least_linear_loss(loss)[0]
        assert loss.value_and_gradient(np.broadcast_to(gains[:1], (2, 3)))[0] >= floors["tied"].loss
