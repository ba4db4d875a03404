"""Traps that fits of scaling laws fall into, each shown to be one and avoided."""

from __future__ import annotations

from typing import Any

import lmfit
import numpy as np
import pytest
from scipy.optimize import minimize

from tests.tolerances import ROUNDOFF_LONG, SAME_OPTIMUM
from theory.depth_laws import DEPTH_LAWS
from validate import FitError, FitResult, exhausted_depth, fit_depth_law, rank_laws
from validate.fit import _proven
from validate.fit_checks import lack_of_fit
from validate.fit_engine import minimise
from validate.fit_problem import FitProblem

POWERS = 2.0 ** np.arange(6)


def noisy(rng: np.random.Generator, depth: np.ndarray, noise: float, plateau: float = 1.7) -> np.ndarray:
    return (plateau + 2.0 / depth) * np.exp(noise * rng.standard_normal(depth.size))


def test_an_averaged_cost_stops_others_early_and_not_us(rng: np.random.Generator) -> None:
    """BFGS at its default tolerances on a cost divided by 1e6 stops short; the size of our weights does nothing."""
    loss = noisy(rng, POWERS, 0.01)

    def averaged(theta: np.ndarray) -> float:
        predicted = theta[0] + np.exp(theta[1]) * POWERS ** -theta[2]
        return 1e-6 * float(np.sum((np.log(np.maximum(predicted, 1e-9)) - np.log(loss)) ** 2))

    early = minimize(averaged, [1.0, 0.0, 0.5], method="BFGS").x
    fits = [fit_depth_law(POWERS, loss, weights=np.full(6, size)) for size in (1.0, 1 / 6, 1e-6)]
    values = [fit.parameters["exponent"].value for fit in fits]
    assert abs(early[2] - values[0]) > 100 * SAME_OPTIMUM
    np.testing.assert_allclose(values, values[0], rtol=SAME_OPTIMUM)
    ends = [fit.parameters["exponent"].interval for fit in fits]
    np.testing.assert_allclose(ends, [ends[0]] * 3, rtol=SAME_OPTIMUM)


def test_a_start_far_off_changes_nothing(rng: np.random.Generator) -> None:
    """No start is given; other Sobol seeds and counts end in the same optimum."""
    loss = noisy(rng, POWERS, 0.02)
    values = [
        fit_depth_law(POWERS, loss, seed=seed, starts=count, intervals="none").parameters["exponent"].value
        for seed, count in ((0, 64), (1, 16), (2, 32))
    ]
    np.testing.assert_allclose(values, values[0], rtol=SAME_OPTIMUM)


def test_rounded_parameters_predict_something_else(rng: np.random.Generator) -> None:
    """Nothing is rounded: the prediction at the data is the law at the reported values, to rounding."""
    depth = np.repeat([4.0, 8, 16, 32, 64, 128], 4)
    loss = (1.743 + 2.27 * depth**-0.846) * np.exp(1e-3 * rng.standard_normal(depth.size))
    fit = fit_depth_law(depth, loss)
    values = {name: item.value for name, item in fit.parameters.items()}
    expected = values["plateau"] + values["coefficient"] * depth ** -values["exponent"]
    np.testing.assert_allclose(fit.predict(depth[:1]).loss, expected[:1], rtol=ROUNDOFF_LONG)
    rounded = round(values["plateau"], 1) + round(values["coefficient"], 1) * depth ** -round(values["exponent"], 1)
    assert np.abs(rounded / expected - 1).max() > 0.001


def test_big_losses_do_not_rule() -> None:
    """Relative noise: log residuals give every depth its say, where linear ones follow the shallowest."""
    depth = np.repeat(2.0 ** np.arange(8), 4)
    spreads = {}
    for scale in ("log", "linear"):
        values = []
        for seed in range(40):
            rng = np.random.default_rng(seed)
            loss = (0.05 + 5.0 / depth) * np.exp(0.05 * rng.standard_normal(depth.size))
            fit = fit_depth_law(depth, loss, law="inverse-depth", residuals=scale, intervals="none", starts=8)
            values.append(fit.parameters["plateau"].value)
        spreads[scale] = np.std(values)
    assert spreads["log"] < 0.5 * spreads["linear"]


def test_the_plateau_may_exceed_the_smallest_loss() -> None:
    """With noise it often does; log(loss - plateau) would forbid it and bias the plateau down."""
    above = 0
    depth = np.repeat([1.0, 2, 4, 8, 16, 32, 64], 3)
    for seed in range(20):
        loss = noisy(np.random.default_rng(seed), depth, 0.03)
        fit = fit_depth_law(depth, loss, law="inverse-depth", intervals="none", starts=8)
        above += fit.parameters["plateau"].value > loss.min()
    assert above >= 10


@pytest.mark.parametrize(
    ("depths", "message"), [([3.0, 3, 3], "1 distinct depth cannot fix"), ([1.0, 2, 2], "2 distinct")]
)
def test_one_or_two_depths_fix_no_power(depths: list[float], message: str) -> None:
    fit = fit_depth_law(depths, [2.0, 1.9, 1.8])
    assert not fit.answered
    assert message in fit.status
    assert np.isnan(fit.parameters["exponent"].value)
    with pytest.raises(ValueError, match="no fit to predict from"):
        fit.predict(4)


def test_two_depths_fix_two_parameters_without_interval() -> None:
    fit = fit_depth_law([1.0, 2.0], [3.0, 2.0], law="inverse-depth")
    assert fit.parameters["plateau"].value == pytest.approx(1.0, rel=ROUNDOFF_LONG)
    assert np.isnan(fit.parameters["plateau"].interval).all()
    assert "no degrees of freedom" in fit.status
    assert np.isnan(fit.predict(4).low).all()
    assert fit.aicc == np.inf


def test_an_exponent_near_zero_is_not_identified() -> None:
    """L_inf + c L^-alpha with alpha -> 0 is a logarithm: plateau and coefficient trade off, and the fit says so."""
    loss = 3.0 - 0.2 * np.log(POWERS)
    fit = fit_depth_law(POWERS, loss + 1e-3 * np.array([1, -1, 1, -1, 1, -1]))
    plateau = fit.parameters["plateau"]
    assert plateau.value == 0 or plateau.interval[0] == 0
    assert "at bound" in plateau.status or "one-sided" in plateau.status


def test_identical_losses_hold_no_law() -> None:
    fit = fit_depth_law(POWERS, np.full(6, 2.0))
    assert not fit.answered
    assert "does not fall" in fit.status


def test_loss_that_rises_with_depth_holds_no_law() -> None:
    for fit in rank_laws(POWERS, 2.0 - 0.5 / POWERS):
        assert not fit.answered
        assert fit.status.startswith("No such law")


def test_a_rise_beyond_known_noise_holds_no_law() -> None:
    loss = np.array([3.0, 2.5, 2.2, 2.1, 2.05, 2.2])
    assert not fit_depth_law(POWERS, loss, standard_error=np.full(6, 0.01)).answered
    assert fit_depth_law(POWERS, loss, standard_error=np.full(6, 0.2), law="inverse-depth").answered


def test_a_hopeless_chi_square_is_said() -> None:
    loss = np.array([0.382, 0.197, 0.122, 0.083, 0.0769, 0.0756])
    fit = fit_depth_law([1, 2, 3, 4, 6, 8], loss, standard_error=np.full(6, 0.003))
    assert "does not describe" in fit.status
    assert any("chi-square" in text for text in fit.warnings)
    good = fit_depth_law(POWERS, 1.7 + 2 / POWERS + 1e-3, standard_error=np.full(6, 0.01))
    assert good.status == "Converged."


def test_lmfit_at_a_bound_has_no_width_and_ours_says_at_bound() -> None:
    """lmfit reports success there with no standard error; ours is one-sided and flagged."""
    loss = 2 * POWERS**-0.5 + np.random.default_rng(0).normal(0, 0.03, 6)
    model = lmfit.Model(lambda depth, plateau, coefficient, exponent: plateau + coefficient * depth**-exponent)
    parameters = model.make_params(plateau={"value": 0.1, "min": 0}, coefficient=1.0, exponent=1.0)
    with np.errstate(all="ignore"):
        theirs = model.fit(loss, parameters, depth=POWERS)
    assert theirs.success
    assert theirs.params["plateau"].value < 1e-3
    ours = fit_depth_law(POWERS, loss, residuals="linear").parameters["plateau"]
    assert ours.status.startswith("at bound")
    assert ours.interval[1] - ours.interval[0] > 0.05


def test_a_fit_that_stopped_early_is_an_error(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    from theory.depth_laws import DEPTH_LAWS
    from validate import fit_polish

    given = FitProblem(DEPTH_LAWS["power"], {"depth": POWERS}, noisy(rng, POWERS, 0.01))
    start = np.array([[0.2, 2.0, -2.0]])

    def stops_at_once(problem: FitProblem, starts: np.ndarray, **options: object) -> object:
        keep = {"weights": options["weights"], "held": np.ones(3, dtype=bool)}
        still = minimise(problem, starts, **keep)  # type: ignore[arg-type]
        gains = np.full(len(starts), 1e-3)
        return type(still)(still.points, still.costs, gains, gains < 0, gains < 0)

    monkeypatch.setattr(fit_polish, "lmfit_polish", lambda *_: start[0])
    monkeypatch.setattr("validate.fit.minimise", stops_at_once)
    with pytest.raises(FitError, match="did not converge"):
        _proven(given, start, np.zeros(3, dtype=bool), np.ones(6))


def test_a_flat_profile_is_not_a_narrow_interval() -> None:
    """An exponent that only the shallowest depth feels has no upper end."""
    loss = np.array([3.0, 1.0, 1.01, 0.99, 1.005, 0.995])
    fit = fit_depth_law(POWERS, loss)
    exponent = fit.parameters["exponent"]
    assert exponent.interval[1] == np.inf
    assert exponent.status.startswith("not identified")
    assert "not identified: " in fit.status


@pytest.mark.parametrize("residuals", ["log", "linear"])
@pytest.mark.parametrize("unit", [1e-8, 1e6])
def test_the_unit_of_loss_changes_nothing(rng: np.random.Generator, unit: float, residuals: str) -> None:
    """Losses of 1e-8 or 1e6 give the same exponent, and plateau and its interval in that unit."""
    loss = noisy(rng, np.repeat(POWERS, 2), 0.02, plateau=0.05)
    for law in ("power", "inverse-depth"):
        one = fit_depth_law(np.repeat(POWERS, 2), loss, law=law, residuals=residuals)
        other = fit_depth_law(np.repeat(POWERS, 2), unit * loss, law=law, residuals=residuals)
        plateau, scaled = one.parameters["plateau"], other.parameters["plateau"]
        np.testing.assert_allclose(
            [scaled.value, *scaled.interval],
            unit * np.array([plateau.value, *plateau.interval]),
            rtol=SAME_OPTIMUM,
            atol=unit * SAME_OPTIMUM * 0.05,
        )


def test_ties_are_said(rng: np.random.Generator) -> None:
    """Few noisy depths cannot tell a power from its rivals."""
    depth = np.repeat([4.0, 5, 6, 8, 10, 12], 2)
    ranking = rank_laws(depth, noisy(rng, depth, 0.02), intervals="none")
    assert "A tie: " in ranking[0].status
    assert sum(fit.weight for fit in ranking) == pytest.approx(1.0, rel=ROUNDOFF_LONG)


def test_weights_on_a_dozen_rows_carry_a_warning(rng: np.random.Generator) -> None:
    for seeds, warned in ((2, True), (5, False)):
        depth = np.repeat(POWERS, seeds)
        first = rank_laws(depth, noisy(rng, depth, 0.01), laws=["power", "inverse-depth"], intervals="none")[0]
        assert any("promise too much" in text for text in first.warnings) == warned


def test_replicates_expose_a_wrong_law(rng: np.random.Generator) -> None:
    """Means of five seeds lie off an exponential far beyond their scatter; the true law passes."""
    depth = np.repeat([1.0, 2, 4, 8, 16, 32], 5)
    loss = noisy(rng, depth, 0.002)
    wrong = fit_depth_law(depth, loss, law="exponential")
    assert "does not describe" in wrong.status
    assert any("30 replicates" in text for text in wrong.warnings)
    assert fit_depth_law(depth, loss, law="inverse-depth").status == "Converged."


def test_lack_of_fit_is_the_f_test_of_nested_models(rng: np.random.Generator) -> None:
    """For a linear law it is the F test of the line against one mean a depth."""
    from scipy import stats

    depth = np.repeat([1.0, 2, 4, 8], 3)
    loss = 1.7 + 2 / depth + 0.05 * rng.standard_normal(12)
    fit = fit_depth_law(depth, loss, law="inverse-depth", residuals="linear")
    line = 2 * fit.objective
    means = sum(float(np.sum((loss[depth == at] - loss[depth == at].mean()) ** 2)) for at in (1.0, 2, 4, 8))
    expected = stats.f.sf((line - means) / 2 / (means / 8), 2, 8)
    found = lack_of_fit(fit.problem, fit.problem.residual(fit.point[None])[0], 2)
    assert found is not None
    assert found[0] == pytest.approx(expected, rel=SAME_OPTIMUM)
    assert found[1] == 12


def test_bad_arguments_are_named() -> None:
    for options, message in (
        ({"level": 1.0}, "level=1"),
        ({"law": "cubic"}, "law='cubic'"),
        ({"intervals": "guess"}, "intervals='guess'"),
        ({"robust": "tukey"}, "robust='tukey'"),
        ({"fixed": {"slope": 1.0}}, "fixed='slope'"),
        ({"fixed": {"exponent": -1.0}}, "exponent"),
        ({"standard_error": [0.1, 0, 0.1, 0.1, 0.1, 0.1]}, r"standard_error\[1\]"),
        ({"standard_error": [0.1]}, "standard_error has shape"),
        ({"groups": [1, 2]}, "groups has shape"),
        ({"weights": [-1.0, 1, 1, 1, 1, 1]}, r"weights\[0\]"),
        ({"diverged": "hide"}, "diverged='hide'"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_depth_law(POWERS, 1.7 + 2 / POWERS, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"depth\[0\]=-1"):
        fit_depth_law([-1.0, 2, 3], [3.0, 2, 1])
    with pytest.raises(ValueError, match="numbers"):
        fit_depth_law(["a", 2, 3], [3.0, 2, 1])


def test_a_plateau_of_zero_is_never_exhausted() -> None:
    loss = 2 * POWERS**-0.5 * np.exp(-0.002 * POWERS)
    advice = exhausted_depth(fit_depth_law(POWERS, loss))
    assert advice.value == np.inf
    assert "never" in advice.reason


def test_a_rival_that_does_not_converge_is_named_and_does_not_end_the_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = fit_depth_law

    def stubborn(*arguments: Any, law: str, **options: Any) -> FitResult:
        if law in failing:
            raise FitError(f"law={law!r} did not converge")
        return genuine(*arguments, law=law, **options)

    monkeypatch.setattr("validate.fit.fit_depth_law", stubborn)
    depth = np.array([1.0, 2, 3, 4, 6, 8, 12])
    loss = (0.5 + 1 / depth) * np.exp(1e-3 * np.cos(7 * depth))
    failing = {"exponential"}
    ranked = rank_laws(depth, loss)
    assert "exponential" not in [fit.law for fit in ranked]
    assert any("left out of the ranking: law='exponential'" in text for text in ranked[0].warnings)
    failing = set(DEPTH_LAWS)
    with pytest.raises(FitError, match="did not converge"):
        rank_laws(depth, loss)
