"""Losses against brute-force sums and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, SOLVER
from theory import Spectrum, Task, population_loss, quadratic_loss


def test_population_loss_is_the_brute_force_sum(rng: np.random.Generator) -> None:
    spectrum = Spectrum(rng.uniform(0.1, 2, 7), rng.uniform(0, 1, 7))
    gains = rng.normal(1, 1, 3)
    expected = 0.0
    for eigenvalue, power in zip(spectrum.eigenvalues, spectrum.task_power, strict=True):
        product = 1.0
        for gain in gains:
            product *= 1 - gain * eigenvalue / 3
        expected += eigenvalue * power * product**2
    assert population_loss(spectrum, gains) == pytest.approx(expected, rel=ROUNDOFF)


@pytest.mark.parametrize("label_noise", [0.0, 0.3])
@pytest.mark.parametrize("context", [None, 3, 40])
def test_gradient_matches_finite_differences(rng: np.random.Generator, context: int | None, label_noise: float) -> None:
    loss = quadratic_loss(Task(Spectrum.power_law(6, 1.2, 0.7), "rrs", context, label_noise), 4, samples=60)
    gains = rng.normal(1, 0.5, 4)
    step = 1e-5
    for layer in range(4):
        shift = np.eye(4)[layer] * step
        slope = (loss.value(gains + shift) - loss.value(gains - shift)) / (2 * step)
        # Central differences: relative error step^2, rounding epsilon / step.
        assert loss.gradient(gains)[layer] == pytest.approx(slope, rel=SOLVER * 1e3, abs=SOLVER)


@pytest.mark.parametrize(("context", "label_noise"), [(None, 0.0), (9, 0.0), (9, 0.3)])
def test_tied_slope_is_the_gradient_summed_over_layers(context: int | None, label_noise: float) -> None:
    loss = quadratic_loss(Task(Spectrum.power_law(6, 1.2, 0.7), "rrs", context, label_noise), 4, samples=60)
    for gain in (0.0, 0.7, 3.0):
        expected = loss.gradient([gain] * 4).sum()
        assert loss.tied_slope(gain, 4) == pytest.approx(expected, rel=ROUNDOFF)


def test_more_layers_than_the_nodes_carry_are_refused() -> None:
    loss = quadratic_loss(Task(Spectrum.isotropic(3), "iso", 8), 2, samples=50)
    with pytest.raises(ValueError, match="gains has 3 layers: must be at most 2"):
        loss.value([1.0, 1.0, 1.0])
