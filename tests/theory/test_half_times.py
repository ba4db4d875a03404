"""Half times against the flows themselves, in every setting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, sampling
from theory import Spectrum, Task, quadratic_loss
from theory.equivalents import deterministic_limit
from theory.fixed_basis import SampledModes, sampled_mode_flow, tied_mode_flow
from theory.flow import tied_flow
from theory.half_times import mode_half_times
from theory.mode_errors import mode_moments, sampled_mode_moments

# Shares interpolated between 20 times a decade, or 400 gains.
INTERPOLATION = 5e-3
# Leading term of order 1/P of the large-size limit at P = 120, with a coefficient of a few.
LIMIT = 5 / 120


@settings(max_examples=20, deadline=None)
@given(lam=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=5), depth=st.integers(1, 20))
def test_fixed_basis_half_times_leave_half(lam: list[float], depth: int) -> None:
    task = Task(Spectrum(lam), "fs")
    found = mode_half_times(task, depth)
    for k, time in enumerate(found.time):
        left = tied_mode_flow(task, depth, [time]).mode_losses[0, k]
        np.testing.assert_allclose(left, task.spectrum.signal[k] / 2, rtol=ROUNDOFF)
    drive = task.spectrum.eigenvalues**2 * task.spectrum.signal
    assert np.all(np.diff(drive[found.order]) <= ROUNDOFF * drive.max())


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_one_gain_learns_modes_in_the_order_of_their_eigenvalues(depth: int) -> None:
    # Task power rises against the eigenvalues: the order does not care.
    task = Task(Spectrum([1.0, 0.7, 0.7, 0.2, 0.0], [0.1, 1.0, 2.0, 3.0, 1.0]))
    found = mode_half_times(task, depth)
    assert list(found.order) == [0, 1, 2, 3, 4]
    assert found.time[1] == found.time[2]
    assert found.time[4] == np.inf
    for k, time in enumerate(found.time):
        if np.isfinite(time):
            gain = tied_flow(quadratic_loss(task, depth), depth, np.array([time])).gains[0, 0]
            left = (1 - gain * task.spectrum.eigenvalues[k] / depth) ** (2 * depth)
            np.testing.assert_allclose(left, 0.5, rtol=10 * ROUNDOFF_LONG)


def test_modes_beyond_the_tied_optimum_are_never_half_learned() -> None:
    task = Task(Spectrum([1.0, 1e-6]))
    assert mode_half_times(task, 1).time[1] == np.inf
    assert np.isfinite(mode_half_times(task, 1).time[0])


def test_equal_eigenvalues_learn_together() -> None:
    found = mode_half_times(Task(Spectrum.isotropic(4), "iso"), 1)
    # (1 - gamma)^2 = exp(-4 t / D).
    np.testing.assert_allclose(found.time, np.log(2), rtol=ROUNDOFF_LONG)


@pytest.mark.parametrize("context", [None, 40])
def test_errors_of_modes_add_up_to_the_loss(context: int | None) -> None:
    task = Task(Spectrum.power_law(12, 1.0, 0.7), "rrs", context)
    moments, limit = mode_moments(task, 3), deterministic_limit(task, 3)
    assert moments.upper == limit.upper
    np.testing.assert_allclose(moments.signal.sum(axis=0), limit.signal, rtol=ROUNDOFF, atol=ROUNDOFF)
    np.testing.assert_allclose(moments.noise.sum(axis=0), limit.noise, rtol=ROUNDOFF, atol=ROUNDOFF)


@pytest.mark.parametrize("label_noise", [0.0, 0.2])
def test_errors_of_drawn_contexts_approach_the_limit(label_noise: float) -> None:
    task = Task(Spectrum.power_law(40, 0.7, 0.7), "rrs", 120, label_noise)
    gains = np.array([0.0, 0.8, 2.0])
    limit, drawn = (
        moments(task, 2).errors(gains, 2, label_noise / 120) for moments in (mode_moments, sampled_mode_moments)
    )
    np.testing.assert_allclose(limit[:, 0], task.spectrum.signal, rtol=ROUNDOFF)
    np.testing.assert_allclose(drawn[:, 0], task.spectrum.signal, rtol=ROUNDOFF)
    start = task.spectrum.signal[:, None]
    np.testing.assert_allclose(drawn / start, limit / start, rtol=LIMIT, atol=LIMIT)


@pytest.mark.parametrize(("context", "label_noise"), [(200, 0.0), (24, 0.0), (24, 0.1)])
def test_finite_context_half_times_agree_with_sampled_errors(
    rng: np.random.Generator, context: int, label_noise: float
) -> None:
    # At P = 2 D what leaks into the weak directions multiplies their half times.
    dim, depth, draws = 12, 3, 4000
    task = Task(Spectrum.power_law(dim, 0.5, 1.0), "rrs", context, label_noise)
    lam, omega = task.spectrum.eigenvalues, task.spectrum.task_power
    found = mode_half_times(task, depth)
    known = np.flatnonzero(np.isfinite(found.time))
    assert known.size >= 3
    gains = tied_flow(quadratic_loss(task, depth), depth, found.time[known]).gains[0]
    rows = rng.standard_normal((draws, context, dim)) * np.sqrt(lam)
    noise = np.einsum("spi,sp->si", rows, rng.standard_normal((draws, context))) * np.sqrt(label_noise) / context
    empirical = np.einsum("spi,spj->sij", rows, rows) / context
    for k, gain in zip(known, gains, strict=True):
        error = rng.standard_normal((draws, dim)) * np.sqrt(omega)
        for _ in range(depth):
            error = error - gain / depth * (np.einsum("sij,sj->si", empirical, error) - noise)
        left = error[:, k] ** 2 / omega[k]
        assert abs(left.mean() - 0.5) <= sampling(left.std() / np.sqrt(draws)) + INTERPOLATION


def test_sampled_fixed_basis_half_times_leave_half() -> None:
    task = Task(Spectrum.power_law(4, 1.0, 0.7), "fs", 50)
    found = mode_half_times(task, 2, samples=60)
    finite = np.sort(found.time[np.isfinite(found.time)])
    path = sampled_mode_flow(SampledModes(task, 2, samples=60), finite, tied=True)
    loss = SampledModes(task, 2, samples=60)
    for index, k in enumerate(found.order[: finite.size]):
        error = 0.0
        for drawn in loss.covariances:
            left = np.eye(4)
            for gain in path.gains[index]:
                left = left - np.diag(gain / 2) @ drawn @ left
            error += task.spectrum.eigenvalues[k] * (left[k] ** 2 @ task.spectrum.task_power) / 60
        np.testing.assert_allclose(error, task.spectrum.signal[k] / 2, rtol=INTERPOLATION)
