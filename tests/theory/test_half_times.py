"""Half times against the flows themselves, in every setting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, sampling
from theory import Spectrum, Task, quadratic_loss
from theory.equivalents import deterministic_limit, mode_moments
from theory.fixed_basis import SampledModes, sampled_mode_flow, tied_mode_flow
from theory.flow import tied_flow
from theory.half_times import mode_half_times

# Shares interpolated between 20 times a decade, or 400 gains.
INTERPOLATION = 5e-3


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
def test_mode_shares_add_up_to_the_loss(context: int | None) -> None:
    task = Task(Spectrum.power_law(12, 1.0, 0.7), "rrs", context)
    upper, moments = mode_moments(task, 3)
    limit = deterministic_limit(task, 3)
    assert upper == limit.upper
    np.testing.assert_allclose(
        np.tensordot(task.spectrum.task_power, moments, 1), limit.signal, rtol=ROUNDOFF, atol=ROUNDOFF
    )


def test_finite_context_half_times_agree_with_sampled_shares(rng: np.random.Generator) -> None:
    task = Task(Spectrum.power_law(6, 0.7, 0.7), "rrs", 200)
    depth = 3
    found = mode_half_times(task, depth, samples=2000)
    assert np.all(np.diff(found.time) > 0)
    path = tied_flow(quadratic_loss(task, depth, samples=2000), depth, found.time[np.isfinite(found.time)])
    lam = task.spectrum.eigenvalues
    for k in range(3):
        step = path.gains[0, k] / depth
        rows = rng.standard_normal((2000, 200, 6)) * np.sqrt(lam)
        maps = np.linalg.matrix_power(np.eye(6) - step * np.einsum("spi,spj->sij", rows, rows) / 200, depth)
        left = np.einsum("si,i,si->s", maps[:, :, k], lam, maps[:, :, k]) / lam[k]
        # The limit is off by a few 1/P.
        assert abs(left.mean() - 0.5) <= sampling(left.std() / np.sqrt(2000)) + 3 / 200


def test_sampled_fixed_basis_half_times_leave_half() -> None:
    task = Task(Spectrum.power_law(4, 1.0, 0.7), "fs", 50)
    found = mode_half_times(task, 2, samples=60)
    finite = np.sort(found.time[np.isfinite(found.time)])
    path = sampled_mode_flow(SampledModes(task, 2, samples=60), finite, tied=True)
    for index, k in enumerate(found.order[: finite.size]):
        np.testing.assert_allclose(path.mode_losses[index, k], task.spectrum.signal[k] / 2, rtol=INTERPOLATION)
    population = mode_half_times(Task(task.spectrum, "fs"), 2).time
    assert np.all(found.time > population)
