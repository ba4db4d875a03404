import math

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG
from theory.allocation import depth_time_split, width_depth_time_split
from theory.measure import SpectralMeasure
from theory.tied import tied_curve


def infinite(nu, beta):
    return SpectralMeasure.power_law(math.inf, nu, beta)


@pytest.mark.parametrize(("nu", "beta"), [(1.0, 0.5), (1.75, 0.5), (2.0, 0.25)])
@pytest.mark.parametrize(("learning_rate", "power"), [("depth", 3), ("fixed", 4)])
def test_best_depth_and_its_loss_approach_the_law(nu, beta, learning_rate, power):
    splits = [depth_time_split(infinite(nu, beta), budget, learning_rate=learning_rate) for budget in (1e5, 1e8, 1e11)]
    for split in splits:
        assert split.exponent == pytest.approx(beta / (power + beta), rel=ROUNDOFF)
        assert split.loss == pytest.approx(split.prefactor * split.compute**-split.exponent, rel=ROUNDOFF_LONG)
        assert split.depth * split.time == pytest.approx(split.compute, rel=ROUNDOFF)
    errors = [split.relative_error for split in splits]
    assert errors[0] > errors[1] > errors[2]
    # Best depth: 2 L is reached a little late, by a share log(L) / L.
    for split in splits:
        late = 2 * math.log(math.e * split.depth) / split.depth
        assert split.exact_depth == pytest.approx(split.depth, rel=late)
        assert split.relative_error <= late


def test_search_finds_the_best_of_every_depth():
    measure, budget = infinite(1.0, 0.5), 1e5
    split = depth_time_split(measure, budget)
    losses = [tied_curve(measure, depth, [budget]).losses[0] for depth in range(1, 60)]
    assert split.exact_depth == 1 + int(np.argmin(losses))
    assert split.exact_loss == pytest.approx(min(losses), rel=ROUNDOFF)


def test_dim_sets_the_clock():
    finite = SpectralMeasure.power_law(10**9, 2.0, 1.0)
    slow, fast = depth_time_split(finite, 1e9 * 1e6), depth_time_split(infinite(2.0, 1.0), 1e6)
    assert slow.depth == pytest.approx(fast.depth, rel=ROUNDOFF_LONG)
    assert slow.exact_loss == pytest.approx(fast.exact_loss, rel=ROUNDOFF_LONG)


@pytest.mark.parametrize(("nu", "beta"), [(1.0, 0.5), (2.0, 0.5)])
@pytest.mark.parametrize("follows", [True, False])
def test_split_with_width_is_the_minimum_found_by_brute_force(nu, beta, follows):
    measure, budget, cost = infinite(nu, beta), 1e13, 2.0
    split = width_depth_time_split(measure, budget, width_cost=cost, clock_follows_width=follows)
    assert split.width**cost * split.depth * split.time == pytest.approx(budget, rel=ROUNDOFF_LONG)
    # Exact tail sums and exact gain law, gain capped at 2 L: minimise over log width and log gain.
    beta_c = beta * measure.amplitude / nu * math.gamma(beta) * 2**-beta

    def loss(width, gamma):
        seen = SpectralMeasure.power_law(math.ceil(width), nu, beta, normalise=False)
        part = seen.losses([gamma], math.inf)[0] - seen.total
        return measure.amplitude * part + 1

    def at_budget(log_width):
        width = math.exp(log_width[0])
        clock = width if follows else 1.0
        # budget = width^cost (gamma / 2) clock gamma^(2+beta) / ((2+beta) beta c)
        gamma = (2 * budget * (2 + beta) * beta_c / (width**cost * clock)) ** (1 / (3 + beta))
        return loss(width, gamma)

    found = minimize(at_budget, [math.log(split.width) + 0.7], method="Nelder-Mead", options={"xatol": 1e-3})
    assert split.exact_loss == pytest.approx(found.fun, rel=0.5 / split.width)
    assert split.exact_loss >= found.fun * (1 - ROUNDOFF_LONG)
    assert split.relative_error < 1 / split.width
    # The minimum is flat; its place is known to about the root of its error.
    assert math.exp(found.x[0]) == pytest.approx(split.width, rel=2 / math.sqrt(split.width))


def test_bad_budgets_are_named():
    with pytest.raises(ValueError, match="compute="):
        depth_time_split(infinite(1.0, 0.5), -1.0)
    with pytest.raises(ValueError, match="learning_rate="):
        depth_time_split(infinite(1.0, 0.5), 1.0, learning_rate="fast")
    with pytest.raises(ValueError, match="compute="):
        width_depth_time_split(infinite(1.0, 0.5), 1e-12)


def test_results_print():
    assert "depth" in str(depth_time_split(infinite(1.0, 0.5), 1e5))
    assert "width" in str(width_depth_time_split(infinite(1.0, 0.5), 1e9))
