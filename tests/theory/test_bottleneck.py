"""Width bottleneck against explicit products, the full-width loss, sampled contexts and exact first moments."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, sampling
from theory import Spectrum, Task, quadratic_loss
from theory.bottleneck import bottleneck_limit, bottleneck_loss, seen_task
from theory.losses import jackknife_error


def explicit_loss(task: Task, rows: np.ndarray, gains: np.ndarray, rng: np.random.Generator) -> float:
    """One context's loss by multiplying out v <- (I - gamma A^T A Sigma_hat/L) v and the response to label noise."""
    lam, omega = task.spectrum.eigenvalues, task.spectrum.task_power
    sigma = np.diag(lam)
    if task.context is not None:
        x = rng.standard_normal((task.context, task.dim)) * np.sqrt(lam)
        sigma = x.T @ x / task.context
    keep, respond = np.eye(task.dim), np.zeros((task.dim, task.dim))
    projection = rows.T @ rows
    for gain in gains:
        step = gain / gains.size * projection
        keep, respond = keep - step @ sigma @ keep, respond + step - step @ sigma @ respond
    noise = 0.0 if task.context is None else task.label_noise / task.context
    return float(
        np.einsum("i,ij,j,ij->", lam, keep, omega, keep) + noise * np.sum(lam[:, None] * (respond @ sigma) * respond)
    )


@pytest.mark.parametrize("context", [None, 7])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_sampled_loss_is_the_average_of_explicit_products(
    width: int, context: int | None, rng: np.random.Generator
) -> None:
    task = Task(Spectrum.power_law(5, 1.0, 0.6), "rrs", context, 0.3 if context else 0.0)
    gains = np.array([0.9, 0.4, 1.3])
    loss = bottleneck_loss(task, width, 3, samples=3000, seed=2)
    values = []
    for _ in range(3000):
        rows = np.linalg.qr(rng.standard_normal((5, width)))[0].T
        values.append(explicit_loss(task, rows, gains, rng))
    spread = np.hypot(np.std(values) / np.sqrt(len(values)), loss.standard_error(gains))
    assert abs(np.mean(values) - loss.value(gains)) <= sampling(spread) + ROUNDOFF


@pytest.mark.parametrize(("context", "noise"), [(None, 0.0), (6, 0.0), (6, 0.8)])
def test_full_width_is_the_model_without_bottleneck(context: int | None, noise: float) -> None:
    task = Task(Spectrum.power_law(5, 1.0, 0.6), "rrs", context, noise)
    gains = np.array([0.9, 0.4, 1.3, 0.0])
    narrow = bottleneck_loss(task, 5, 4, samples=2000, seed=2)
    full = quadratic_loss(task, 4, samples=4000, seed=3)
    spread = np.hypot(narrow.standard_error(gains), full.standard_error(gains))
    assert abs(narrow.value(gains) - full.value(gains)) <= sampling(spread) + ROUNDOFF
    if context is None:
        np.testing.assert_allclose(bottleneck_limit(task, 5, 4).value(gains), full.value(gains), rtol=ROUNDOFF)


@pytest.mark.parametrize(("dim", "width", "depth"), [(60, 20, 1), (60, 50, 5), (200, 15, 3)])
def test_limit_agrees_with_sampled_projections(dim: int, width: int, depth: int) -> None:
    task = Task(Spectrum.power_law(dim, 0.8, 0.5))
    gains = np.linspace(0.5, 2.0, depth)
    limit, sampled = bottleneck_limit(task, width, depth), bottleneck_loss(task, width, depth, samples=300, seed=1)
    # Corrections are of relative order 1/width: one unit is more than what is seen.
    allowed = sampling(sampled.standard_error(gains)) + limit.value(gains) / width
    assert abs(limit.value(gains) - sampled.value(gains)) <= allowed
    assert limit.value(gains) > quadratic_loss(task, depth).value(gains)


def test_the_first_moment_of_a_projection_is_exact() -> None:
    # E tr(Lambda Omega K) = (N/D) tr(Lambda^2 Omega): the term linear in a single gain.
    task = Task(Spectrum.power_law(30, 1.0, 1.0))
    limit, small = bottleneck_limit(task, 12, 1), 1e-6
    slope = float(limit.gradient(np.zeros(1))[0])
    expected = -2 * 12 / 30 * np.sum(task.spectrum.signal * task.spectrum.eigenvalues)
    np.testing.assert_allclose(slope, expected, rtol=ROUNDOFF_LONG)
    np.testing.assert_allclose(limit.value(np.array([small])), 1 + small * slope, rtol=ROUNDOFF)


def test_a_fixed_basis_keeps_the_best_modes_and_hears_the_rest_as_noise(rng: np.random.Generator) -> None:
    task = Task(Spectrum.power_law(4, 1.0, 0.6), "fs", 6, 0.1)
    part, tail = seen_task(task, 2)
    np.testing.assert_allclose(part.spectrum.total + tail, 1.0, rtol=ROUNDOFF)
    gains = np.array([0.7, 1.5])
    values = [explicit_loss(task, np.eye(4)[:2], gains, rng) for _ in range(6000)]
    full = quadratic_loss(Task(part.spectrum, "rrs", 6, part.label_noise), 2, samples=4000, seed=1)
    spread = np.hypot(np.std(values) / np.sqrt(len(values)), jackknife_error(full.values(gains)))
    assert abs(np.mean(values) - full.value(gains) - tail) <= sampling(spread)


def test_bad_widths_name_themselves() -> None:
    task = Task(Spectrum.power_law(4, 1.0, 0.6), "rrs", 6)
    with pytest.raises(ValueError, match="width=5"):
        bottleneck_loss(task, 5, 2)
    with pytest.raises(ValueError, match="context=6"):
        bottleneck_limit(task, 2, 2)
    with pytest.raises(ValueError, match="setting='fs'"):
        bottleneck_loss(Task(task.spectrum, "fs", 6), 2, 2)
