"""Inputs that fits have stumbled over, each with its right answer recomputed independently."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

from tests.tolerances import REFERENCE_COEFFICIENT, REFERENCE_EXPONENT, ROUNDOFF_LONG, SAME_OPTIMUM
from validate import fit_depth_law, fit_joint_law, rank_laws

HUBER = {"robust": "huber", "robust_scale": 1e-3}
POWERS = 2.0 ** np.arange(6)


@pytest.fixture
def chinchilla(shared_data: Path) -> pd.DataFrame:
    return pd.read_csv(shared_data / "chinchilla_depth_width.csv")


def parameters_and_tokens(table: pd.DataFrame) -> dict[str, np.ndarray]:
    return {"parameters": table["model_size"].to_numpy(), "tokens": table["num_tokens"].to_numpy()}


@pytest.mark.shared
def test_parameters_and_tokens_without_the_five_largest_losses(chinchilla: pd.DataFrame) -> None:
    """F1: E, alpha, beta, A, B; the size of the objective moves nothing."""
    table = chinchilla.nsmallest(240, "loss")
    fits = [
        fit_joint_law(
            parameters_and_tokens(table), table["loss"], weights=np.full(240, size), intervals="asymptotic", **HUBER
        )
        for size in (1.0, 1 / 240, 1e-6)
    ]
    got = {name: estimate.value for name, estimate in fits[0].parameters.items()}
    assert got["plateau"] == pytest.approx(1.8172, abs=REFERENCE_EXPONENT)
    assert got["parameters_exponent"] == pytest.approx(0.3473, abs=REFERENCE_EXPONENT)
    assert got["tokens_exponent"] == pytest.approx(0.3672, abs=REFERENCE_EXPONENT)
    assert got["parameters_coefficient"] == pytest.approx(477.8, rel=REFERENCE_COEFFICIENT)
    assert got["tokens_coefficient"] == pytest.approx(2143, rel=REFERENCE_COEFFICIENT)
    for other in fits[1:]:
        for name, estimate in other.parameters.items():
            assert estimate.value == pytest.approx(got[name], rel=SAME_OPTIMUM)


@pytest.mark.shared
def test_parameters_and_tokens_on_all_rows(chinchilla: pd.DataFrame) -> None:
    """F2: the five rows move beta from 0.367 to 0.453."""
    fit = fit_joint_law(parameters_and_tokens(chinchilla), chinchilla["loss"], intervals="asymptotic", **HUBER)
    assert fit.n == 245
    assert fit.parameters["tokens_exponent"].value == pytest.approx(0.453, abs=REFERENCE_EXPONENT)
    assert fit.parameters["tokens_coefficient"].value == pytest.approx(12846, rel=REFERENCE_COEFFICIENT)


@pytest.mark.shared
def test_width_depth_and_tokens(chinchilla: pd.DataFrame) -> None:
    """The joint law reaches the known objective; scipy's own count of it is the same number."""
    table = chinchilla[chinchilla["loss"] < 2.998680336233436]
    columns = {"width": table["d_model"], "depth": table["n_layers"], "tokens": table["num_tokens"]}
    fit = fit_joint_law(columns, table["loss"])
    got = {name: estimate.value for name, estimate in fit.parameters.items()}
    assert fit.n == 203
    assert fit.objective <= 0.0024631
    assert fit.agreeing_starts >= 10
    order = list(got)
    x = np.stack([columns[name] for name in ("width", "depth", "tokens")])

    def residual(theta: np.ndarray) -> np.ndarray:
        terms = theta[1::2, None] * x ** -theta[2::2, None]
        return np.log(theta[0] + terms.sum(axis=0)) - np.log(table["loss"].to_numpy())

    start = np.array([got[name] for name in order])
    scipy_fit = least_squares(residual, start, loss="soft_l1", f_scale=0.01, x_scale=np.abs(start), max_nfev=1)
    assert scipy_fit.cost == pytest.approx(fit.objective, rel=ROUNDOFF_LONG)
    interval = fit.parameters["depth_exponent"].interval
    assert interval[0] < 1.0 < 1.35 < interval[1]


def test_collinear_columns_are_refused() -> None:
    """F3: tokens = 20 x parameters."""
    parameters = np.geomspace(1e8, 1e10, 8)
    with pytest.raises(ValueError, match=r"columns tokens and parameters are collinear.*fit the law of tokens alone"):
        fit_joint_law({"parameters": parameters, "tokens": 20 * parameters}, 1.7 + 400 * parameters**-0.3)
    alone = fit_joint_law({"parameters": parameters}, 1.7 + 400 * parameters**-0.3)
    assert alone.parameters["parameters_exponent"].value == pytest.approx(0.3, abs=SAME_OPTIMUM)


def test_fixed_parameters_and_one_point() -> None:
    """F4: only the coefficient is free."""
    fit = fit_depth_law([3.82e17], [3.5422], fixed={"plateau": 1.6, "exponent": 0.0941})
    assert fit.parameters["coefficient"].value == pytest.approx((3.5422 - 1.6) * 3.82e17**0.0941, rel=ROUNDOFF_LONG)
    assert fit.parameters["coefficient"].value == pytest.approx(87.653, abs=REFERENCE_EXPONENT)
    assert np.isnan(fit.parameters["coefficient"].interval).all()
    assert "no degrees of freedom" in fit.status


def test_a_rising_power_with_a_negative_plateau() -> None:
    """F5: no start given, residuals on the linear scale."""
    x = [0.015, 0.025, 0.035, 0.045, 0.055, 0.065, 0.075, 0.085, 0.095, 0.125, 0.175, 0.225, 0.275]
    y = [5.62837, 4.62408, 3.73666, 3.06682, 2.57519, 2.08151, 1.71527, 1.46862, 1.25019, 0.80178, 0.43372]
    fit = fit_depth_law(x, [*y, 0.26012, 0.19396], residuals="linear", plateau_minimum=-np.inf)
    assert fit.parameters["exponent"].value == pytest.approx(0.34815, abs=REFERENCE_EXPONENT)
    assert fit.parameters["coefficient"].value == pytest.approx(2.16546, rel=REFERENCE_COEFFICIENT)
    assert fit.parameters["plateau"].value == pytest.approx(-3.46503, rel=REFERENCE_COEFFICIENT)
    assert 2 * fit.objective == pytest.approx(0.44894, rel=REFERENCE_COEFFICIENT)
    assert any("plateau is negative" in text for text in fit.warnings)


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.float64])
def test_column_types_change_nothing(kind: type) -> None:
    """F6: float32 and whole-number depths."""
    depth = pd.Series(POWERS.astype(kind))
    fit = fit_depth_law(depth, 1.7 + 2 / POWERS)
    got = [fit.parameters[name].value for name in ("plateau", "coefficient", "exponent")]
    np.testing.assert_allclose(got, [1.7, 2.0, 1.0], rtol=ROUNDOFF_LONG)


def test_diverged_rows_are_named() -> None:
    """F7: one NaN and one inf among six losses."""
    loss = 1.7 + 2 / POWERS
    loss[1], loss[4] = np.nan, np.inf
    with pytest.raises(ValueError, match="row 1, 4"):
        fit_depth_law(POWERS, loss, law="inverse-depth")
    fit = fit_depth_law(POWERS, loss, law="inverse-depth", diverged="drop")
    assert fit.n == 4
    assert "row 1, 4: left out as diverged" in fit.warnings[0]
    with pytest.raises(ValueError, match="no row is left"):
        fit_depth_law(POWERS, np.full(6, np.nan), diverged="drop")


def test_a_plateau_at_its_bound_is_one_sided() -> None:
    """F8: the interval is about [0, 0.13] and flagged."""
    loss = 2 * POWERS**-0.5 + np.random.default_rng(0).normal(0, 0.03, 6)
    fit = fit_depth_law(POWERS, loss, residuals="linear")
    plateau = fit.parameters["plateau"]
    assert plateau.value == 0
    assert plateau.interval[0] == 0
    assert round(plateau.interval[1], 2) == 0.13
    assert np.isnan(plateau.stderr)
    assert plateau.status.startswith("at bound")
    assert "at bound: plateau" in fit.status


def test_unconverged_deep_runs_have_no_headline() -> None:
    """F9: the loss rises again; a free exponent is not identified."""
    for fit in rank_laws([1, 2, 4, 8, 16], [0.3106, 0.1647, 0.1444, 0.1450, 0.1720]):
        assert not fit.answered
        assert fit.law == "spectral" or "Not monotone" in fit.status or "cannot fix" in fit.status
        assert all(np.isnan(estimate.value) for estimate in fit.parameters.values())
