"""The predicted edge of stability against the recursion itself, on both sides of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG
from theory import Spectrum, Task, quadratic_loss, tied_optimum
from theory.flow import tied_sgd
from theory.losses import tied
from theory.stability import edge_of_stability, tied_curvature

# How far from the predicted edge the recursion must have decided, within its steps.
MARGIN = 0.02
RUN_AWAY = 1e6
STEPS = np.array([0.0, 3000.0, 3001.0])


@pytest.mark.parametrize(("context", "noise"), [(None, 0.0), (60, 0.0), (25, 0.3)])
@pytest.mark.parametrize("depth", [1, 2, 3, 8, 16])
def test_the_recursion_converges_below_the_edge_and_runs_away_above(
    depth: int, context: int | None, noise: float
) -> None:
    loss = quadratic_loss(Task(Spectrum.power_law(20, 1.2, 0.7), "rrs", context, noise), depth, samples=100)
    edge = edge_of_stability(loss, depth)
    below = tied_sgd(loss, depth, edge.learning_rate * (1 - MARGIN), STEPS)
    above = tied_sgd(loss, depth, edge.learning_rate * (1 + MARGIN), STEPS)
    assert np.all(below.losses[0] <= below.losses[0, 0] * (1 + ROUNDOFF))
    assert below.gains[0, 1] == pytest.approx(below.gains[0, 2], rel=MARGIN)
    assert not above.losses[0, -1] <= RUN_AWAY
    assert edge.learning_rate == min(edge.first_step, edge.optimum)


def test_one_layer_has_the_classical_edge() -> None:
    spectrum = Spectrum.power_law(20, 1.2, 0.7)
    edge = edge_of_stability(quadratic_loss(Task(spectrum), 1), 1)
    curvature = 2 * np.sum(spectrum.signal * spectrum.eigenvalues**2)
    np.testing.assert_allclose([edge.first_step, edge.optimum], 2 * 20 / curvature, rtol=ROUNDOFF_LONG)


@pytest.mark.parametrize("context", [None, 9])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_curvature_is_the_autograd_second_derivative(depth: int, context: int | None) -> None:
    torch = pytest.importorskip("torch")
    loss = quadratic_loss(Task(Spectrum.power_law(6, 1.2, 0.7), "rrs", context, 0.2), depth, samples=50)
    nodes = torch.tensor(loss.nodes.copy())
    gram = torch.diag(torch.tensor(loss.gram.copy())) if loss.gram.ndim == 1 else torch.tensor(loss.gram[0].copy())

    def value(gain):  # type: ignore[no-untyped-def]
        factor = 1 - gain * nodes / depth
        total = factor**depth @ gram @ factor**depth
        if loss.noise is not None:
            response = sum(gain / depth * factor**layer for layer in range(depth))
            total = total + response @ torch.tensor(loss.noise[0].copy()) @ response
        return total

    found = torch.autograd.functional.hessian(value, torch.tensor(0.6, dtype=torch.float64)).item()
    assert tied_curvature(loss, 0.6, depth) == pytest.approx(found, rel=ROUNDOFF_LONG)


def test_deeper_models_are_limited_by_their_first_step() -> None:
    task = Task(Spectrum.power_law(20, 1.2, 0.7))
    for depth in (2, 8):
        edge = edge_of_stability(quadratic_loss(task, depth), depth)
        assert edge.first_step < edge.optimum
        loss = quadratic_loss(task, depth)
        slopes = [loss.gradient(tied(gain, depth)).mean() for gain in (0.0, edge.mirror_gain)]
        assert slopes[0] == pytest.approx(-slopes[1], rel=ROUNDOFF_LONG)
        assert edge.mirror_gain > tied_optimum(task, depth).gains[0]
