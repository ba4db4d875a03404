"""The setting FS against integrated flows, autograd, brute-force loops and the one-layer closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER, model_error, sampling
from theory import Spectrum, Task
from theory import fixed_basis as fb
from theory.small_init import one_layer_loss

# A recursion of step h follows the flow to relative order h: here 1e-3.
STEP = 1e-3
# The sampled flow asks its solver for 1e-7 a step.
SAMPLED_SOLVER = 1e-5


def fs(context: int | None = None, noise: float = 0.0, dim: int = 5) -> Task:
    return Task(Spectrum.power_law(dim, 1.2, 0.7), "fs", context, noise)


@settings(max_examples=30, deadline=None)
@given(
    lam=st.lists(st.floats(0.0, 4.0), min_size=0, max_size=5),
    depth=st.integers(1, 12),
    time=st.floats(0.0, 1e3),
)
def test_tied_closed_form_solves_its_equation(lam: list[float], depth: int, time: float) -> None:
    task = Task(Spectrum([1.0, *lam]), "fs")
    found = fb.tied_mode_flow(task, depth, [time])
    x, signal = task.spectrum.eigenvalues, task.spectrum.signal
    reference = solve_ivp(
        lambda _, g: 2 / depth * x * signal * (1 - g * x / depth) ** (2 * depth - 1),
        (0, max(time, 1e-9)), np.zeros(task.dim), method="LSODA", rtol=1e-11, atol=1e-13,
    ).y[:, -1]  # fmt: skip
    np.testing.assert_allclose(found.gains[0, -1], reference, rtol=1e2 * SOLVER, atol=1e2 * SOLVER)
    left = signal * (1 - found.gains[0, 0] * x / depth) ** (2 * depth)
    np.testing.assert_allclose(found.mode_losses[0], left, atol=ROUNDOFF_LONG)


def test_infinite_depth_is_the_limit() -> None:
    task, times = fs(), np.array([0.3, 4.0, 90.0])
    deep = fb.tied_residual(task, 10**7, times * 10**7)
    np.testing.assert_allclose(deep, fb.tied_residual(task, np.inf, times), rtol=model_error(1e7, 1.0, 100.0))


@pytest.mark.parametrize("start", [[0.0, 0.0, 0.0], [0.2, 0.1, -0.3], [0.4], [1e-6, -1e-6]])
def test_untied_flow_agrees_with_all_the_equations(start: list[float]) -> None:
    task, times = fs(dim=3), np.array([0.0, 2.0, 30.0, 300.0])
    depth = len(start)
    x, signal = task.spectrum.eigenvalues, task.spectrum.signal

    def speed(_t: float, flat: np.ndarray) -> np.ndarray:
        factors = 1 - flat.reshape(depth, 3) * x / depth
        others = np.stack([np.prod(np.delete(factors, layer, axis=0), axis=0) for layer in range(depth)])
        return (2 / depth * signal * x * factors * others**2).ravel()

    begin = np.repeat(np.array(start)[:, None], 3, axis=1).ravel()
    reference = solve_ivp(speed, (0, 300), begin, t_eval=times, method="DOP853", rtol=1e-12, atol=1e-14).y.T
    path = fb.untied_mode_flow(task, start, times)
    np.testing.assert_allclose(path.gains, reference.reshape(-1, depth, 3), rtol=1e2 * SOLVER, atol=1e2 * SOLVER)
    conserved = (1 - path.gains * x / depth) ** 2
    np.testing.assert_allclose(
        conserved - conserved[:, :1], (conserved - conserved[:, :1])[[0]].repeat(4, 0), atol=ROUNDOFF
    )
    if not any(start):
        np.testing.assert_allclose(path.losses[0], fb.tied_mode_flow(task, depth, times).losses[0], rtol=1e2 * SOLVER)


def test_long_horizons_stay_finite_and_never_rise() -> None:
    times = np.concatenate([[0.0], np.logspace(-3, 15, 50)])
    wide = Task(Spectrum(np.append(np.logspace(0, -300, 7), 0.0)), "fs")
    for depth in (1, 2, 9):
        path = fb.tied_mode_flow(wide, depth, times)
        assert np.all(np.isfinite(path.losses))
        assert np.all(np.diff(path.losses[0]) <= 0)
        assert np.all(path.gains == path.gains[:, :1])
    path = fb.untied_mode_flow(wide, [0.1, 0.0, -0.1], times)
    assert np.all(np.isfinite(path.losses))
    assert np.all(np.diff(path.losses[0]) <= ROUNDOFF)


def test_sgd_is_the_plain_loop_and_small_steps_are_the_flow() -> None:
    task = fs()
    path = fb.mode_sgd(task, np.zeros(3), 0.5, [0, 7])
    gains = np.zeros(5)
    for _ in range(7):
        gains = (
            gains
            + 0.5
            * 2
            / 3
            * task.spectrum.eigenvalues
            * task.spectrum.signal
            * (1 - gains * task.spectrum.eigenvalues / 3) ** 5
        )
    np.testing.assert_allclose(path.gains[1, 0], gains, rtol=ROUNDOFF)
    fine = fb.mode_sgd(task, np.zeros(3), 1e-3, [4000])
    np.testing.assert_allclose(fine.losses[0], fb.tied_mode_flow(task, 3, [4.0]).losses[0], rtol=STEP)
    start, times = [0.2, 0.2, -0.1], [4.0]
    broken = fb.mode_sgd(task, start, 1e-3, [4000])
    np.testing.assert_allclose(broken.losses[0], fb.untied_mode_flow(task, start, times).losses[0], rtol=STEP)
    assert "Diverged" in fb.mode_sgd(task, np.zeros(3), 1e6, [50]).status


@pytest.mark.parametrize("noise", [0.0, 0.6])
def test_sampled_gradient_is_the_autograd_gradient(noise: float, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    loss = fb.SampledModes(fs(4, noise), 3, samples=25, seed=3)
    gains = rng.uniform(0, 1, (3, 5))
    lam = torch.tensor(loss.task.spectrum.eigenvalues.copy())
    omega = torch.tensor(loss.task.spectrum.task_power.copy())
    weights = torch.tensor(gains, requires_grad=True)
    total = torch.zeros((), dtype=torch.float64)
    for s in torch.tensor(loss.covariances):
        keep, respond = torch.eye(5, dtype=torch.float64), torch.zeros((5, 5), dtype=torch.float64)
        for gain in weights:
            layer = torch.diag(gain) / 3
            keep, respond = keep - layer @ s @ keep, respond + layer - layer @ s @ respond
        total = total + torch.trace(torch.diag(lam) @ keep @ torch.diag(omega) @ keep.T)
        total = total + noise / 4 * torch.trace(torch.diag(lam) @ respond @ s @ respond.T)
    (total / 25).backward()
    value, gradient = loss.value_and_gradient(gains)
    np.testing.assert_allclose(value, total.item() / 25, rtol=ROUNDOFF)
    np.testing.assert_allclose(gradient, weights.grad.numpy(), rtol=ROUNDOFF_LONG, atol=ROUNDOFF)
    np.testing.assert_allclose(loss.replicates(gains)[0], value, rtol=ROUNDOFF)


def test_sampled_loss_of_one_layer_is_the_closed_form(rng: np.random.Generator) -> None:
    task = fs(6, 0.3)
    loss = fb.SampledModes(task, 1, samples=1000, seed=5)
    gains = rng.uniform(0, 1, (1, 5))
    replicates = loss.replicates(gains)
    error = fb.standard_error(fb.record(loss, [gains], ""))[0]
    form = one_layer_loss(task)
    assert abs(replicates[0] - form.loss(gains[0])) <= sampling(error)
    end = fb.sampled_mode_flow(loss, [0.0, 1e5])
    # Optimised on its own draws, the sampled minimum is below the true one by less than the error of the draws.
    assert abs(end.losses[0, -1] - form.floor) <= 3 * sampling(fb.standard_error(end)[-1])


@pytest.mark.parametrize("tied", [True, False])
def test_sampled_flow_agrees_with_another_solver(tied: bool) -> None:
    loss = fb.SampledModes(fs(8, dim=3), 2, samples=40, seed=1)
    times = np.array([0.0, 1.0, 20.0])
    path = fb.sampled_mode_flow(loss, times, tied=tied)

    def speed(_t: float, flat: np.ndarray) -> np.ndarray:
        gradient = loss.value_and_gradient(flat.reshape(2, 3))[1]
        return -(np.broadcast_to(gradient.mean(axis=0), (2, 3)) if tied else gradient).ravel()

    reference = solve_ivp(speed, (0, 20), np.zeros(6), t_eval=times, method="DOP853", rtol=1e-10, atol=1e-12).y.T
    np.testing.assert_allclose(path.gains.reshape(3, 6), reference, rtol=SAMPLED_SOLVER, atol=SAMPLED_SOLVER)
    assert bool(np.all(path.gains[:, 0] == path.gains[:, 1])) == tied
    small = fb.sampled_mode_sgd(loss, 1e-2, [2000], tied=tied)
    np.testing.assert_allclose(small.losses[0, 0], path.losses[0, 2], rtol=10 * STEP)
    far = fb.SampledModes(fs(10**6, dim=3), 2, samples=25, seed=1)
    population = fb.tied_mode_flow(fs(dim=3), 2, times)
    np.testing.assert_allclose(
        fb.sampled_mode_flow(far, times, tied=tied).losses[0], population.losses[0], rtol=model_error(1e6, 0.5)
    )


def test_equal_layers_have_different_gradients_at_finite_context(rng: np.random.Generator) -> None:
    task, size = fs(5, dim=3), 1e-3
    gains = size * rng.uniform(0.5, 1.5, 3)
    x, omega = task.spectrum.eigenvalues, task.spectrum.task_power
    expected = x / (2 * 5) * (np.sum(gains * x**2 * omega) - x * omega * np.sum(gains * x))
    differences = []
    for seed in range(40):
        loss = fb.SampledModes(task, 2, samples=500, seed=seed)
        gradient = loss.value_and_gradient(np.broadcast_to(gains, (2, 3)))[1]
        differences.append(gradient[0] - gradient[1])
    error = np.std(differences, axis=0, ddof=1) / np.sqrt(40)
    assert np.all(np.abs(np.mean(differences, axis=0) - expected) <= sampling(error) + 10 * size**2)
    assert np.any(np.abs(expected) > sampling(error) + 10 * size**2)


def test_bad_values_name_themselves() -> None:
    with pytest.raises(ValueError, match="context=4"):
        fb.tied_mode_flow(fs(4), 2, [1.0])
    with pytest.raises(ValueError, match="start"):
        fb.untied_mode_flow(fs(), [5.0, 0.0], [1.0])
