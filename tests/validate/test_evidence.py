"""From runs to tables: fits use converged runs, say when they are provisional, and survive diverged groups."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from tests.tolerances import ROUNDOFF, sampling
from theory import Spectrum, Task, tied_optimum
from theory.depth_laws import DEPTH_LAWS
from validate import fit_depth_law, rank_laws
from validate.claims import Evidence
from validate.decisions import inverse_depth
from validate.depth_fits import depth_fit_table, depth_law_fits
from validate.fit_result import FitResult
from validate.report.rivals import rival_table

DEPTHS = np.array([1.0, 2, 3, 4, 6, 8])
LAW = 0.1 + 0.5 / DEPTHS


def runs(loss: np.ndarray, converged: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "experiment": "depth-softmax",
            "attention": "softmax",
            "spectrum": "s",
            "depth": DEPTHS,
            "final_loss": loss,
            "standard_error": 1e-3,
            "converged": converged,
        }
    )


def evidence_of(depth_fits: pd.DataFrame) -> Evidence:
    nothing = {field.name: pd.DataFrame() for field in fields(Evidence)}
    return Evidence(**{**nothing, "depth_fits": depth_fits})


def test_converged_runs_alone_are_fitted_when_they_suffice() -> None:
    wrong_where_unconverged = np.where(DEPTHS == 8, 0.9, LAW)
    (row,) = depth_law_fits(runs(wrong_where_unconverged, DEPTHS < 8))
    plateau = row["fit"].parameters["plateau"]
    assert row["depths"] == 5
    assert "Provisional" not in row["status"]
    assert abs(plateau.value - 0.1) <= sampling(plateau.stderr)


def test_too_few_converged_depths_make_the_fit_provisional() -> None:
    (row,) = depth_law_fits(runs(LAW, DEPTHS <= 3))
    assert row["depths"] == 3
    assert row["status"].startswith("Provisional: 3 converged depths, 5 are needed; all 6 runs fitted.")
    assert row["fit"].answered


@pytest.mark.parametrize("finite", [0, 1])
def test_a_diverged_group_has_no_fit_and_a_reason(finite: int) -> None:
    loss = np.where(np.arange(6) < finite, LAW, np.nan)
    (row,) = depth_law_fits(runs(loss, np.zeros(6, dtype=bool)))
    assert row["fit"] is None
    assert row["status"] == f"{finite} of 6 runs ended with a finite loss: no fit."


def test_no_runs_no_rows() -> None:
    assert depth_law_fits(pd.DataFrame()) == []


def test_the_slope_that_decides_the_spectral_law_is_near_the_source_exponent() -> None:
    """The tied optimum's slope tends to beta; between L = 32 and 256 it is within a few per cent, from above."""
    for source in (0.5, 1.0):
        task = Task(Spectrum.power_law(100_000, 1.5, source))
        low, middle, high = (tied_optimum(task, depth).loss for depth in (32, 64, 256))
        early, late = np.log(low / middle) / np.log(2), np.log(middle / high) / np.log(4)
        assert source * (1 + ROUNDOFF) < late < early


def test_every_law_is_fitted_once_for_claims_tables_and_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[str] = []

    def counted(*losses: np.ndarray, law: str) -> FitResult:
        fitted.append(law)
        return fit_depth_law(*losses, law=law, starts=16)

    monkeypatch.setattr("validate.fit.fit_depth_law", counted)
    fits = depth_law_fits(runs(LAW, np.ones(6, dtype=bool)))
    shown = rival_table(fits, 5).set_index("law")["behind"]
    assert inverse_depth(evidence_of(depth_fit_table(fits))).details["s"]["lead"] == shown["inverse-depth"]
    assert sorted(fitted) == sorted(DEPTH_LAWS)


def test_laws_are_ranked_as_the_fitting_room_ranks_them() -> None:
    noisy = LAW * np.exp(0.02 * np.random.default_rng(8).standard_normal(LAW.size))
    (row,) = depth_law_fits(runs(noisy, np.ones(6, dtype=bool)))
    scores = {fit.law: fit.aicc for fit in rank_laws(DEPTHS, noisy) if np.isfinite(fit.aicc)}
    assert len(scores) > 2
    for law, behind in row["behind"].items():
        assert np.isnan(behind) if law not in scores else behind == scores[law] - min(scores.values())
    assert row["fit"].aicc - min(scores.values()) == row["behind"]["power"]


def test_two_attentions_in_one_experiment_are_fitted_and_judged_apart() -> None:
    both = pd.concat([runs(LAW, np.ones(6, dtype=bool)), runs(LAW, np.ones(6, dtype=bool)).assign(attention="relu")])
    table = depth_fit_table(depth_law_fits(both))
    assert table[["attention", "spectrum"]].to_numpy().tolist() == [["softmax", "s"], ["relu", "s"]]
    assert list(inverse_depth(evidence_of(table)).details) == ["s", "relu, s"]
