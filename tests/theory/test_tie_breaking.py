"""Untied gains against brute-force sums, autograd, other solvers, and the integrated flow over decades of breaking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER
from theory import Spectrum, Task, quadratic_loss, tied_optimum, untied_floor, untied_flow
from theory.flow import tied_flow
from theory.losses import QuadraticLoss
from theory.tie_breaking import (
    break_pattern,
    compress,
    growth_of_differences,
    separation_time,
    tie_break,
    transversal_rate,
)

# A second-order estimate of the loss taken off by separating layers leaves the constant beside log(1/size) uncertain
# by a factor e at most: the time by one over the rate.
CONSTANT = 1.0


def form(context: int | None = None, depth: int = 4, noise: float = 0.0, dim: int = 12) -> QuadraticLoss:
    return quadratic_loss(Task(Spectrum.power_law(dim, 1.5, 0.75), "rrs", context, noise), depth, samples=100)


@settings(max_examples=25, deadline=None)
@given(
    lam=st.lists(st.floats(0.0, 3.0), min_size=0, max_size=40),
    gains=st.lists(st.floats(-2.0, 6.0), min_size=1, max_size=8),
)
def test_compressed_loss_is_exact_for_any_gains(lam: list[float], gains: list[float]) -> None:
    spectrum = Spectrum([1.0, *lam])
    full = quadratic_loss(Task(spectrum), len(gains))
    small = compress(full, len(gains))
    assert small.nodes.size <= len(gains) + 1
    scale = 1.0 + full.value(gains)
    assert abs(small.value(gains) - full.value(gains)) <= ROUNDOFF_LONG * scale
    q = np.prod(1 - np.multiply.outer(np.array(gains), spectrum.eigenvalues) / len(gains), axis=0)
    np.testing.assert_allclose(full.value(gains), np.sum(spectrum.signal * q**2), rtol=ROUNDOFF)


@pytest.mark.parametrize(("context", "noise"), [(None, 0.0), (6, 0.0), (6, 0.5)])
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_rate_is_the_antisymmetric_second_derivative(context: int | None, noise: float, depth: int) -> None:
    torch = pytest.importorskip("torch")
    loss = form(context, depth, noise)
    gain = 0.8
    nodes = torch.tensor(loss.nodes.copy())
    gram = torch.diag(torch.tensor(loss.gram.copy())) if loss.gram.ndim == 1 else torch.tensor(loss.gram[0].copy())

    def value(gains):  # type: ignore[no-untyped-def]
        q, r = torch.ones_like(nodes), torch.zeros_like(nodes)
        for g in gains:
            r = r + g / depth * q
            q = q * (1 - g * nodes / depth)
        total = q @ gram @ q
        return total if loss.noise is None else total + r @ torch.tensor(loss.noise[0].copy()) @ r

    hessian = torch.autograd.functional.hessian(value, torch.full((depth,), gain, dtype=torch.float64)).numpy()
    expected = -(hessian[0, 0] - hessian[0, 1]) / loss.dim
    np.testing.assert_allclose(transversal_rate(loss, gain, depth), expected, rtol=ROUNDOFF_LONG)


def test_differences_grow_as_the_force_falls() -> None:
    spectrum = Spectrum.power_law(12, 1.5, 0.75)
    loss = form()
    size, times = 1e-9, [0.0, 300.0, 3000.0]
    path = untied_flow(loss, size * break_pattern(4), times)
    spread = path.gains[:, -1] - path.gains[:, 0]
    tied_gain = path.gains.mean(axis=1)
    for index in (1, 2):
        grown = growth_of_differences(loss, tied_gain[index], 4)
        assert spread[index] / spread[0] == pytest.approx(grown, rel=1e4 * SOLVER)
        weight = spectrum.signal * spectrum.eigenvalues
        force = np.sum(weight * (1 - tied_gain[index] * spectrum.eigenvalues / 4) ** 7)
        assert grown**7 * force == pytest.approx(weight.sum(), rel=ROUNDOFF_LONG)


@pytest.mark.parametrize(("context", "noise"), [(None, 0.0), (8, 0.3)])
def test_untied_flow_agrees_with_another_solver(context: int | None, noise: float) -> None:
    loss = form(context, 3, noise)
    start = np.array([0.3, 0.0, -0.1])
    times = np.array([0.0, 5.0, 200.0])
    reference = solve_ivp(
        lambda _, g: -loss.gradient(g) / loss.dim,
        (0, 200),
        start,
        t_eval=times,
        method="DOP853",
        rtol=1e-12,
        atol=1e-13,
    )
    path = untied_flow(loss, start, times)
    np.testing.assert_allclose(path.gains, reference.y.T, rtol=10 * SOLVER, atol=SOLVER)


@pytest.mark.parametrize("context", [None, 9])
def test_tied_stays_tied_exactly(context: int | None) -> None:
    loss = form(context, 5)
    times = np.concatenate([[0.0], np.logspace(-2, 15, 40)])
    path = untied_flow(loss, np.zeros(5), times)
    assert np.all(path.gains == path.gains[:, :1])
    assert np.all(np.isfinite(path.loss))
    assert np.all(np.diff(path.loss) <= ROUNDOFF)
    reached = tied_flow(loss, 5, np.array([1e15])).losses[0, 0]
    assert path.loss[-1] == pytest.approx(reached, rel=SOLVER)


def test_a_broken_tie_ends_on_the_untied_floor_and_the_loss_never_rises() -> None:
    task = Task(Spectrum.power_law(12, 1.5, 0.75))
    loss = form(None, 3)
    times = np.concatenate([[0.0], np.logspace(0, 15, 60)])
    path = untied_flow(loss, 1e-4 * break_pattern(3), times)
    assert np.all(np.diff(path.loss) <= ROUNDOFF)
    tied, untied = tied_optimum(task, 3).loss, untied_floor(task, 3).loss
    assert path.loss[-1] == pytest.approx(untied, rel=SOLVER * 1e2)
    # On its way it rests at the tied optimum, to within what the breaking had grown to by then.
    assert np.min(np.abs(path.loss / tied - 1)) < 0.05


@pytest.mark.parametrize(("depth", "context", "noise"), [(2, None, 0.0), (3, None, 0.0), (8, None, 0.0), (4, 40, 0.2)])
def test_separation_is_predicted_over_four_decades_of_breaking(depth: int, context: int | None, noise: float) -> None:
    loss = form(context, depth, noise, dim=30)
    sizes = 10.0 ** -np.arange(2, 7)
    predicted = [tie_break(loss, depth, size) for size in sizes]
    rate = predicted[0].rate
    found = np.array([separation_time(loss, depth, p.size, horizon=10 * p.time) for p in predicted])
    expected = np.array([p.time for p in predicted])
    assert np.all(np.abs(found - expected) * rate <= CONSTANT)
    # A decade of breaking costs log(10)/rate; what is left is of the order of the start.
    steps = np.diff(found) * rate / np.log(10)
    np.testing.assert_allclose(steps[1:], 1.0, atol=10 * sizes[1])
    np.testing.assert_allclose(np.diff(expected)[1:] * rate / np.log(10), 1.0, atol=10 * sizes[1])


def test_one_layer_has_nothing_to_separate() -> None:
    with pytest.raises(ValueError, match="depth"):
        tie_break(form(None, 1), 1, 1e-3)
    assert break_pattern(1).tolist() == [0.0]
    with pytest.raises(ValueError, match="size"):
        tie_break(form(), 4, -1.0)
    with pytest.raises(ValueError, match="context"):
        growth_of_differences(form(8), 0.5, 4)
