import numpy as np
import pytest

from sim.convergence import judge_convergence
from tests.tolerances import ROUNDOFF, sampling


def test_a_plateau_is_converged_and_a_power_law_is_not(rng):
    step = np.arange(20_001.0)
    noise = 1 + 0.02 * rng.standard_normal(step.size)
    plateau = judge_convergence(step, (0.3 + 0.7 * np.exp(-step / 500)) * noise)
    assert plateau.converged
    assert abs(plateau.slope) < sampling(plateau.standard_error)
    falling = judge_convergence(step, (1 + step) ** -0.5 * noise)
    assert not falling.converged
    assert "still falling" in falling.reason
    assert falling.slope == pytest.approx(-0.5, abs=sampling(falling.standard_error))
    assert falling.fall == pytest.approx(1 - 2**falling.slope, rel=ROUNDOFF)


def test_noise_that_hides_the_slope_is_undecided(rng):
    step = np.arange(200.0)
    verdict = judge_convergence(step, np.exp(0.8 * rng.standard_normal(step.size)))
    assert not verdict.converged
    assert "undecided" in verdict.reason


def test_false_verdicts_of_convergence_are_rare(rng):
    # A loss that a doubling would lower by 5 %: an interval of two standard errors lets few of 200 pass.
    step = np.arange(1.0, 3001)
    slope = np.log2(0.95)
    passed = sum(
        judge_convergence(step, step**slope * (1 + 0.1 * rng.standard_normal(step.size))).converged for _ in range(200)
    )
    assert passed <= 10


@pytest.mark.parametrize(
    ("loss", "word"),
    [(np.full(100, np.nan), "diverged"), (np.ones(10), "fewer"), (np.zeros(100), "not positive")],
)
def test_no_slope_is_a_reason_not_a_number(loss, word):
    verdict = judge_convergence(np.arange(float(loss.size)), loss)
    assert not verdict.converged
    assert word in verdict.reason
    assert np.isnan(verdict.slope)


def test_an_exact_constant_is_converged():
    assert judge_convergence(np.arange(1000.0), np.full(1000, 0.25)).converged
