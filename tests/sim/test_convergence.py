import numpy as np
import pytest

from sim.convergence import Convergence, judge_convergence, judge_evaluation
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


def test_rare_contexts_of_enormous_loss_hide_no_slope(rng):
    # One loss in fifty is a thousand times the others: a bin's mean is theirs alone.
    step = np.arange(5001.0)
    tail = np.where(rng.random(step.size) < 0.02, 1000.0, 1.0) * (1 + 0.1 * rng.standard_normal(step.size))
    assert judge_convergence(step, 0.2 * tail).converged
    falling = judge_convergence(step, (1 + step) ** -0.2 * tail)
    assert falling.slope == pytest.approx(-0.2, abs=sampling(falling.standard_error))
    assert "still falling" in falling.reason


def test_the_error_of_the_median_covers_its_scatter(rng):
    # A constant loss with noise: the slope's deviations from zero, in its own standard errors, have variance one.
    step = np.arange(1.0, 2001)
    verdicts = [judge_convergence(step, np.exp(0.3 * rng.standard_normal(step.size))) for _ in range(200)]
    scores = np.array([verdict.slope / verdict.standard_error for verdict in verdicts])
    # The variance of 200 normal scores has standard error sqrt(2 / 200); errors read off two ranks add as much again.
    assert abs(scores.var() - 1) < 2 * sampling((2 / 200) ** 0.5)


@pytest.mark.parametrize(
    ("final", "error", "batch", "converged", "word"),
    [
        (1.0, 0.01, None, True, "fine"),
        (1.0, 0.2, None, False, "known to 20% only"),
        (1.0, 0.01, 0.97, True, "fine"),
        (1.0, 0.01, 0.9, False, "cost 10% more than the batch"),
        (1.0, 0.06, 0.9, True, "fine"),
        (0.0, 0.0, 0.0, True, "fine"),
        (np.nan, np.nan, None, True, "fine"),
    ],
)
def test_a_loss_that_is_not_known_or_learned_by_heart_is_no_data_point(final, error, batch, converged, word):
    verdict = judge_evaluation(Convergence(True, 0.0, 0.0, 0.0, "fine"), final, error, batch)
    assert verdict.converged is converged
    assert word in verdict.reason


def test_an_unconverged_run_keeps_its_reason():
    verdict = Convergence(False, -1.0, 0.1, 0.5, "still falling")
    assert judge_evaluation(verdict, 1.0, 0.5, 0.1) is verdict
