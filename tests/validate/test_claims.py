"""Decision rules have teeth: synthetic evidence that satisfies, violates or starves each claim turns its verdict."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from tests.tolerances import ROUNDOFF
from theory import Spectrum, Task, tied_optimum, untied_floor
from validate import FitError
from validate.claims import NOT_SUPPORTED, SUPPORTED, UNDECIDED, VERDICTS, Evidence, Verdict, judge, register
from validate.depth_fits import depth_fit_table, depth_law_fits

EMPTY = pd.DataFrame()
NOTHING = Evidence(*[EMPTY for _ in dataclasses.fields(Evidence)])
DEPTHS = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])


def verdict(claim: str, **tables: pd.DataFrame) -> Verdict:
    (found,) = [v for v in judge(dataclasses.replace(NOTHING, **tables)) if v.claim == claim]
    return found


def depth_runs(losses: dict[str, np.ndarray], experiment: str = "depth-softmax", **columns: object) -> pd.DataFrame:
    """Runs with one per mille standard errors and matching, seeded noise."""
    noise = np.random.default_rng(5)
    parts = []
    for spectrum, loss in losses.items():
        error = 1e-3 * loss
        parts.append(
            pd.DataFrame(
                {
                    "experiment": experiment,
                    "attention": "softmax",
                    "spectrum": spectrum,
                    "depth": DEPTHS[: loss.size],
                    "final_loss": loss + error * noise.standard_normal(loss.size),
                    "standard_error": error,
                    "converged": True,
                    **columns,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def fitted(runs: pd.DataFrame) -> pd.DataFrame:
    return depth_fit_table(depth_law_fits(runs))


def half_times(linear_power: float, softmax_power: float) -> pd.DataFrame:
    eigenvalue = np.array([1.0, 0.5, 0.25, 0.1])
    rows = [
        {
            "attention": a,
            "spectrum": "s",
            "depth": 2,
            "seed": 0,
            "mode": k,
            "eigenvalue": x,
            "half_time": 100 * x**-power,
            "predicted": 100 * x**-1.0 if a == "linear" else np.nan,
            "steps": 10_000,
        }
        for a, power in (("linear", linear_power), ("softmax", softmax_power))
        for k, x in enumerate(eigenvalue)
    ]
    return pd.DataFrame(rows)


def test_without_evidence_everything_is_undecided_and_says_why() -> None:
    verdicts = judge(NOTHING)
    assert [v.claim for v in verdicts] == [claim.id for claim in register()]
    assert all(v.verdict == UNDECIDED and v.number is None and v.reason for v in verdicts)


def test_register_is_complete_and_goes_to_json() -> None:
    for claim in register():
        texts = json.loads(claim.to_json())
        assert all(texts[name] for name in ("id", "statement", "source", "experiment", "statistic", "rule"))
    assert set(VERDICTS) == {SUPPORTED, NOT_SUPPORTED, UNDECIDED}


@pytest.mark.parametrize(("rms", "expected"), [(0.01, SUPPORTED), (0.04, UNDECIDED), (0.1, NOT_SUPPORTED)])
def test_curves(rms: float, expected: str) -> None:
    table = pd.DataFrame({"depth": [1, 2], "rms": [0.005, rms]})
    found = verdict("C0", curves=table)
    assert (found.verdict, found.number) == (expected, rms)


def optimum_runs(tied_factor: float, untied_factor: float) -> pd.DataFrame:
    rows = []
    for source in (0.5, 1.0):
        task = Task(Spectrum.power_law(16, 1.5, source))
        for depth in (1, 2, 4):
            tied, untied = tied_optimum(task, depth).loss, untied_floor(task, depth).loss
            shared = {"source": source, "capacity": 1.5, "depth": depth, "converged": True}
            shared |= {"spectrum": f"beta {source}", "tied_optimum": tied, "untied_floor": untied}
            for experiment, loss, factor in (
                ("linear-optimum", tied, tied_factor),
                ("linear-untied", untied, untied_factor),
            ):
                final = loss * (factor if depth == 2 else 1.0)
                rows.append({**shared, "experiment": experiment, "final_loss": final, "standard_error": 1e-3 * loss})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("tied", "untied", "expected"),
    [
        (1.0, 1.0, SUPPORTED),
        (1.03, 1.0, UNDECIDED),
        (1.2, 1.0, NOT_SUPPORTED),
        (0.8, 1.0, NOT_SUPPORTED),
        (1.0, 1.2, NOT_SUPPORTED),
    ],
)
def test_linear_optimum(tied: float, untied: float, expected: str) -> None:
    assert verdict("C1", runs=optimum_runs(tied, untied)).verdict == expected


def test_linear_optimum_needs_tied_and_untied_runs() -> None:
    runs = optimum_runs(1.0, 1.0)
    assert verdict("C1", runs=runs[runs["experiment"] == "linear-optimum"]).verdict == UNDECIDED


def test_strong_first_and_parallel() -> None:
    assert verdict("C2", half_times=half_times(1, 0)).verdict == SUPPORTED
    assert verdict("C2", half_times=half_times(-1, 0)).verdict == NOT_SUPPORTED
    assert verdict("C4", half_times=half_times(1, 0.1)).verdict == SUPPORTED
    assert verdict("C4", half_times=half_times(1, 0.6)).verdict == UNDECIDED
    assert verdict("C4", half_times=half_times(1, 1)).verdict == NOT_SUPPORTED


@pytest.mark.parametrize(("factor", "expected"), [(1.1, SUPPORTED), (1.4, UNDECIDED), (2.0, NOT_SUPPORTED)])
def test_the_right_order_at_the_wrong_times_is_no_prediction(factor: float, expected: str) -> None:
    table = half_times(1, 0)
    table["half_time"] *= factor
    found = verdict("C2", half_times=table)
    assert found.verdict == expected
    assert found.details["rms_log"] == pytest.approx(np.log(factor), rel=ROUNDOFF)


def test_modes_never_half_learned_come_last() -> None:
    table = half_times(1, 0)
    weak = (table["attention"] == "linear") & (table["eigenvalue"] < 0.5)
    assert verdict("C2", half_times=table.assign(half_time=table["half_time"].mask(weak))).verdict == SUPPORTED
    strong = (table["attention"] == "linear") & (table["eigenvalue"] > 0.3)
    assert verdict("C2", half_times=table.assign(half_time=table["half_time"].mask(strong))).verdict == NOT_SUPPORTED


def test_modes_that_only_one_attention_learns_count_in_the_spread() -> None:
    table = half_times(1, 0.1)
    weakest = table["eigenvalue"] < 0.2
    linear, softmax = table["attention"] == "linear", table["attention"] == "softmax"
    only_softmax = table.assign(half_time=table["half_time"].mask(weakest & linear))
    found = verdict("C4", half_times=only_softmax)
    assert found.verdict == SUPPORTED
    assert found.number == pytest.approx(0.1 * np.log(10) / np.log(10_000 / 100), rel=ROUNDOFF)
    only_linear = table.assign(half_time=table["half_time"].mask(weakest & softmax))
    assert verdict("C4", half_times=only_linear).verdict == NOT_SUPPORTED
    neither = verdict("C4", half_times=table.assign(half_time=table["half_time"].mask(weakest)))
    assert neither.verdict == UNDECIDED


def test_modes_never_half_learned_decide_nothing() -> None:
    table = half_times(1, 0).assign(half_time=np.nan)
    assert verdict("C2", half_times=table).verdict == UNDECIDED
    assert verdict("C4", half_times=table).verdict == UNDECIDED


def test_inverse_depth_is_found_where_it_is() -> None:
    runs = depth_runs({"isotropic": 0.1 + 0.5 / DEPTHS, "steep": 0.05 + 0.4 / DEPTHS})
    found = verdict("C3", depth_fits=fitted(runs))
    assert found.verdict == SUPPORTED, found.reason


@pytest.mark.parametrize("violation", [0.1 + 0.5 * DEPTHS**-2.0, 0.5 * DEPTHS**-0.5, 0.1 + 0.5 * np.exp(-DEPTHS / 3)])
def test_inverse_depth_is_refuted_by_another_law_on_one_spectrum(violation: np.ndarray) -> None:
    runs = depth_runs({"isotropic": 0.1 + 0.5 / DEPTHS, "other": violation})
    found = verdict("C3", depth_fits=fitted(runs))
    assert found.verdict == NOT_SUPPORTED, found.reason


def test_unconverged_runs_are_no_data_points() -> None:
    runs = depth_runs({"isotropic": 0.1 + 0.5 / DEPTHS, "steep": 0.05 + 0.4 / DEPTHS})
    runs["converged"] = runs["depth"] < 4
    found = verdict("C3", depth_fits=fitted(runs))
    assert found.verdict == UNDECIDED
    assert "3 converged depths, 5 needed" in found.reason


@pytest.mark.parametrize(
    ("share", "overlap", "expected"),
    [(0.3, 0.8, SUPPORTED), (0.3, 0.2, UNDECIDED), (0.6, 0.9, UNDECIDED), (0.9, 0.9, NOT_SUPPORTED)],
)
def test_focus(share: float, overlap: float, expected: str) -> None:
    table = pd.DataFrame({"participation": [share * 16], "context": [16], "overlap": [overlap]})
    assert verdict("C5", focus=table).verdict == expected


@pytest.mark.parametrize(("observed", "expected"), [(1.05, SUPPORTED), (1.25, UNDECIDED), (2.0, NOT_SUPPORTED)])
def test_central_limit(observed: float, expected: str) -> None:
    table = pd.DataFrame({"depth": [4], "predicted": [1.0], "observed": [observed]})
    assert verdict("C6", layers=table).verdict == expected


@pytest.mark.parametrize(("expected_value", "expected"), [(1.0, SUPPORTED), (2.0, NOT_SUPPORTED)])
def test_published(expected_value: float, expected: str) -> None:
    row = {"name": "exponent", "value": 1.1, "low": 0.8, "high": 1.4, "expected": expected_value}
    assert verdict("C7", published=pd.DataFrame([row])).verdict == expected


@pytest.mark.parametrize(
    ("independent", "identical", "expected"),
    [(1.0, 2.0, SUPPORTED), (1.0, 1.0, UNDECIDED), (2.0, 1.0, NOT_SUPPORTED), (1.5, 2.0, UNDECIDED)],
)
def test_residual(independent: float, identical: float, expected: str) -> None:
    tables = [
        depth_runs({f"rho {rho}": 0.02 + 0.5 * DEPTHS**-power}, "residual", correlation=rho, teacher_seed=0)
        for rho, power in ((0.0, independent), (1.0, identical))
    ]
    found = verdict("C8", runs=pd.concat(tables, ignore_index=True))
    if expected == UNDECIDED and independent == identical:
        assert found.verdict != SUPPORTED
    else:
        assert found.verdict == expected, found.reason


def test_one_teacher_that_fails_is_enough() -> None:
    """Pooled over teachers, 2 and 1 against 1.5 and 1.5 would look like no difference; each draw is judged alone."""
    tables = [
        depth_runs({f"rho {rho}": 0.02 + 0.5 * DEPTHS**-power}, "residual", correlation=rho, teacher_seed=teacher)
        for teacher, powers in ((0, (1.0, 2.0)), (1, (2.0, 1.0)))
        for rho, power in zip((0.0, 1.0), powers, strict=True)
    ]
    found = verdict("C8", runs=pd.concat(tables, ignore_index=True))
    assert found.verdict == NOT_SUPPORTED
    assert [found.details[f"teacher {teacher}"]["state"] for teacher in (0, 1)] == ["holds", "fails"]


def context_map(short: tuple[float, float], long: tuple[float, float], converged: bool = True) -> pd.DataFrame:
    """Exponents (linear, softmax) at P = 4 and at P = 64, with a standard error of 0.05."""
    rows = [
        {"context": context, "attention": attention, "exponent": exponent}
        for context, exponents in ((4, short), (64, long))
        for attention, exponent in zip(("linear", "softmax"), exponents, strict=True)
    ]
    constant = {"map": "context", "spectrum": "s", "depth": 1, "standard_error": 0.05, "converged": converged}
    return pd.DataFrame([{**constant, **row} for row in rows])


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [
        ((0.5, 1.1), (1.9, 1.8), SUPPORTED),
        ((0.5, 1.4), (1.9, 1.8), UNDECIDED),
        ((0.5, 1.8), (1.9, 1.8), NOT_SUPPORTED),
        ((0.5, 1.1), (1.9, 1.0), NOT_SUPPORTED),
        ((0.5, np.nan), (1.9, 1.8), UNDECIDED),
    ],
)
def test_crossover(short: tuple[float, float], long: tuple[float, float], expected: str) -> None:
    assert verdict("C9", regions=context_map(short, long)).verdict == expected


def test_exponents_that_are_hardly_known_support_no_crossover() -> None:
    table = context_map((0.5, 1.1), (1.9, 1.8)).assign(standard_error=0.5)
    assert verdict("C9", regions=table).verdict == UNDECIDED


def test_unconverged_exponents_decide_no_crossover() -> None:
    assert verdict("C9", regions=context_map((0.5, 1.1), (1.9, 1.0), converged=False)).verdict == UNDECIDED


def test_evidence_without_an_answer_leaves_the_claims_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that fails, or an interval that is not known, is a reason and no verdict."""
    table = pd.DataFrame([{"name": "depth exponent", "value": 1.0, "low": np.nan, "high": np.nan, "expected": 1.0}])
    assert verdict("C7", published=table).verdict == UNDECIDED
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise FitError("no minimum")

        patch.setattr("validate.fit.fit_depth_law", fail)
        runs = depth_runs({"s": 0.1 + 1 / DEPTHS, "t": 0.2 + 1 / DEPTHS})
        softmax = verdict("C3", depth_fits=fitted(runs))
        both = [
            depth_runs({f"rho {rho}": 0.1 + 1 / DEPTHS}, "residual", correlation=rho, teacher_seed=0)
            for rho in (0.0, 1.0)
        ]
        residual = verdict("C8", runs=pd.concat(both))
    for found in (softmax, residual):
        assert (found.verdict, found.number) == (UNDECIDED, None)
        assert "no minimum" in found.reason


@pytest.mark.parametrize(
    ("low", "high", "lead", "expected"),
    [
        (0.8, 1.2, 1.0, "holds"),
        (0.4, 1.6, 1.0, "open"),
        (0.8, 1.2, 5.0, "open"),
        (0.8, 1.2, 11.0, "fails"),
        (1.1, 1.4, 0.0, "fails"),
        (1.1, np.nan, 0.0, "fails"),
        (np.nan, 0.9, 0.0, "fails"),
        (np.nan, 1.2, 0.0, "open"),
        (np.nan, np.nan, 11.0, "fails"),
    ],
)
def test_each_spectrum_is_judged_as_the_rule_says(low: float, high: float, lead: float, expected: str) -> None:
    numbers = {"depths": 8, "exponent": 1.0, "low": low, "high": high, "behind": lead, "status": ""}
    place = {"experiment": "depth-softmax", "attention": "softmax"}
    found = verdict("C3", depth_fits=pd.DataFrame([{**place, "spectrum": name, **numbers} for name in ("s", "t")]))
    assert {outcome["state"] for outcome in found.details.values()} == {expected}
    assert found.verdict == {"holds": SUPPORTED, "fails": NOT_SUPPORTED, "open": UNDECIDED}[expected]


def test_linear_attention_is_shown_beside_the_claim_and_decides_nothing() -> None:
    softmax = depth_runs({"s": 0.1 + 0.5 / DEPTHS, "t": 0.05 + 0.4 / DEPTHS})
    linear = depth_runs({"s": 0.1 + 0.5 * DEPTHS**-2.0}, "depth-linear", attention="linear")
    found = verdict("C3", depth_fits=fitted(pd.concat([softmax, linear], ignore_index=True)))
    assert found.verdict == SUPPORTED
    assert list(found.details) == ["s", "t", "linear, s"]
    assert found.details["linear, s"]["state"] == "fails"
    only_linear = verdict("C3", depth_fits=fitted(linear))
    assert (only_linear.verdict, only_linear.reason) == (UNDECIDED, "no nonlinear run")
