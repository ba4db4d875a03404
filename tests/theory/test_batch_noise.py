"""Batch noise against autograd Hessians and gradients of the same contexts, and against simulated SGD."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF_LONG, sampling
from theory import Spectrum, Task
from theory.batch_noise import _Moments, batch_noise

# The next order in learning rate/batch, as a share of the correction.
NEXT_ORDER = 0.3


def simulated_sgd(
    task: Task, depth: int, rate: float, batch: int, steps: int, runs: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean batch loss and its standard error along SGD on full matrices: contexts, forward and backward pass."""
    dim, lam = task.dim, task.spectrum.eigenvalues
    gamma = np.zeros((runs, depth, dim, dim))
    losses = []
    for _ in range(steps + 1):
        turn = np.linalg.qr(rng.standard_normal((runs, batch, dim, dim)))[0]
        sigma = turn @ (lam[:, None] * turn.transpose(0, 1, 3, 2))
        w = np.einsum(
            "rbij,rbj->rbi", turn, rng.standard_normal((runs, batch, dim)) * np.sqrt(task.spectrum.task_power)
        )
        seen_covariance, noise = sigma, np.zeros_like(w)
        if task.context is not None:
            x = (rng.standard_normal((runs, batch, task.context, dim)) * np.sqrt(lam)) @ turn.transpose(0, 1, 3, 2)
            seen_covariance = x.transpose(0, 1, 3, 2) @ x / task.context
            epsilon = np.sqrt(task.label_noise) * rng.standard_normal((runs, batch, task.context))
            noise = np.einsum("rbpi,rbp->rbi", x, epsilon) / task.context
        error, seen = w, []
        for layer in range(depth):
            seen.append(np.einsum("rbij,rbj->rbi", seen_covariance, error) + noise)
            error = error - np.einsum("rij,rbj->rbi", gamma[:, layer], seen[-1]) / depth
        weighted = np.einsum("rbij,rbj->rbi", sigma, error)
        losses.append((error * weighted).sum(axis=2).mean(axis=1))
        back = 2 * weighted / batch
        for layer in reversed(range(depth)):
            step = -np.einsum("rbi,rbj->rij", back, seen[layer]) / depth
            back = (
                back
                - np.einsum(
                    "rbij,rkj,rbk->rbi", seen_covariance, gamma[:, layer].transpose(0, 2, 1), back, optimize=True
                )
                / depth
            )
            gamma[:, layer] -= rate * step
    stacked = np.array(losses)
    return stacked.mean(axis=1), stacked.std(axis=1) / np.sqrt(runs)


@pytest.mark.parametrize(
    ("context", "noise", "depth", "rate"), [(None, 0.0, 1, 0.5), (None, 0.0, 2, 1.0), (8, 0.3, 1, 0.4)]
)
def test_the_correction_is_that_of_simulated_sgd(
    context: int | None, noise: float, depth: int, rate: float, rng: np.random.Generator
) -> None:
    task = Task(Spectrum.power_law(3, 0.7, 0.7), "rrs", context, noise)
    runs = 3000 if context is None else 1200
    mean, error = simulated_sgd(task, depth, rate, 20, 3, runs, rng)
    found = batch_noise(task, depth, rate, 20, range(4), samples=20000)
    assert found.correction[0] == 0.0
    assert np.all(np.abs(mean - found.loss) <= sampling(error) + NEXT_ORDER * np.abs(found.correction))
    # The test can tell: without the correction it fails.
    assert np.any(np.abs(mean - found.mean_path) > sampling(error) + NEXT_ORDER * np.abs(found.correction))


@pytest.mark.parametrize(("context", "noise"), [(None, 0.0), (5, 0.4)])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_hessian_and_noise_are_those_of_autograd(depth: int, context: int | None, noise: float) -> None:
    torch = pytest.importorskip("torch")
    task = Task(Spectrum.power_law(3, 0.7, 0.7), "rrs", context, noise)
    moments, gain, dim = _Moments(task, depth, 5, seed=3), 0.7, 3
    s, w, n, population = (
        torch.tensor(np.array(part)) for part in (moments.s, moments.w, moments.noise, moments.population)
    )

    def losses(flat):  # type: ignore[no-untyped-def]
        gamma, error = flat.reshape(depth, dim, dim), w
        for layer in range(depth):
            error = error - (s * error + n) @ gamma[layer].T / depth
        return torch.einsum("si,sij,sj->s", error, population, error)

    at = (gain * torch.eye(dim, dtype=torch.float64)).repeat(depth, 1, 1).ravel()
    hessian = torch.autograd.functional.hessian(lambda flat: losses(flat).mean(), at).numpy()
    jacobian = torch.autograd.functional.jacobian(losses, at).numpy().reshape(5, depth, dim, dim)
    hessian = hessian.reshape(depth, dim, dim, depth, dim, dim)

    def parts(same: np.ndarray, swapped: np.ndarray, trace: np.ndarray) -> np.ndarray:
        return np.stack([trace, ((same + swapped) / 2 - trace) / 5, (same - swapped) / 2 / 3])

    expected = parts(
        np.einsum("lijmij->lm", hessian), np.einsum("lijmji->lm", hessian), np.einsum("liimjj->lm", hessian) / dim
    )
    mean = np.einsum("slii->l", jacobian) / (5 * dim)
    covariance = parts(
        np.einsum("slij,smij->lm", jacobian, jacobian) / 5,
        np.einsum("slij,smji->lm", jacobian, jacobian) / 5,
        np.einsum("slii,smjj->lm", jacobian, jacobian) / (5 * dim),
    )
    covariance[0] -= dim * np.multiply.outer(mean, mean)
    h, noise_found, force = moments.at(gain)
    np.testing.assert_allclose(h, expected, rtol=ROUNDOFF_LONG, atol=ROUNDOFF_LONG)
    np.testing.assert_allclose(noise_found, covariance, rtol=ROUNDOFF_LONG, atol=ROUNDOFF_LONG)
    np.testing.assert_allclose(force, dim * mean.mean(), rtol=ROUNDOFF_LONG)


def test_the_correction_falls_like_one_over_the_batch_and_vanishes_with_the_rate() -> None:
    task = Task(Spectrum.power_law(4, 1.0, 0.7), "rrs", 20)
    small, large = (batch_noise(task, 2, 1.0, batch, [0, 5, 20], samples=500).correction for batch in (50, 500))
    np.testing.assert_allclose(small, 10 * large, rtol=ROUNDOFF_LONG)
    fine = batch_noise(task, 2, 0.01, 50, [2000], samples=500)
    assert abs(fine.correction[0]) < 0.1 * np.abs(small).max()
    assert list(fine.to_frame().columns) == ["step", "mean_path", "correction", "loss"]


def test_one_dimension_has_no_rotations() -> None:
    found = batch_noise(Task(Spectrum.isotropic(1), "iso", 10), 2, 0.1, 10, [0, 10], samples=200)
    assert np.all(np.isfinite(found.correction))


def test_bad_values_name_themselves() -> None:
    task = Task(Spectrum.power_law(3, 1.0, 1.0), "fs", 5)
    with pytest.raises(ValueError, match="setting='fs'"):
        batch_noise(task, 2, 0.1, 10, [1])
    with pytest.raises(ValueError, match="batch"):
        batch_noise(task, 2, 0.1, 0, [1])
    with pytest.raises(RuntimeError, match="Diverged"):
        batch_noise(Task(task.spectrum), 2, 1e6, 10, [1000], samples=50)
