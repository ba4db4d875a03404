"""Decision rules have teeth: synthetic evidence that satisfies, violates or starves each claim turns its verdict."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from theory import Spectrum, Task, tied_optimum
from validate import FitError
from validate.claims import NOT_SUPPORTED, SUPPORTED, UNDECIDED, VERDICTS, Evidence, Verdict, judge, register

EMPTY = pd.DataFrame()
NOTHING = Evidence(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
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


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, SUPPORTED), (1.03, UNDECIDED), (1.2, NOT_SUPPORTED), (0.8, NOT_SUPPORTED)]
)
def test_linear_optimum(factor: float, expected: str) -> None:
    rows = []
    for source in (0.5, 1.0):
        for depth in (1, 2, 4):
            optimum = tied_optimum(Task(Spectrum.power_law(16, 1.5, source)), depth).loss
            rows.append(
                {
                    "experiment": "linear-optimum",
                    "spectrum": f"beta {source}",
                    "source": source,
                    "capacity": 1.5,
                    "depth": depth,
                    "final_loss": optimum * (factor if depth == 2 else 1.0),
                    "tied_optimum": optimum,
                    "standard_error": 1e-3 * optimum,
                    "converged": True,
                }
            )
    assert verdict("C1", runs=pd.DataFrame(rows)).verdict == expected


def test_strong_first_and_parallel() -> None:
    assert verdict("C2", half_times=half_times(1, 0)).verdict == SUPPORTED
    assert verdict("C2", half_times=half_times(-1, 0)).verdict == NOT_SUPPORTED
    assert verdict("C4", half_times=half_times(1, 0.1)).verdict == SUPPORTED
    assert verdict("C4", half_times=half_times(1, 0.6)).verdict == UNDECIDED
    assert verdict("C4", half_times=half_times(1, 1)).verdict == NOT_SUPPORTED


def test_modes_never_half_learned_decide_nothing() -> None:
    table = half_times(1, 0).assign(half_time=np.nan)
    assert verdict("C2", half_times=table).verdict == UNDECIDED
    assert verdict("C4", half_times=table).verdict == UNDECIDED


def test_inverse_depth_is_found_where_it_is() -> None:
    runs = depth_runs({"isotropic": 0.1 + 0.5 / DEPTHS, "steep": 0.05 + 0.4 / DEPTHS})
    found = verdict("C3", runs=runs)
    assert found.verdict == SUPPORTED, found.reason


@pytest.mark.parametrize("violation", [0.1 + 0.5 * DEPTHS**-2.0, 0.5 * DEPTHS**-0.5, 0.1 + 0.5 * np.exp(-DEPTHS / 3)])
def test_inverse_depth_is_refuted_by_another_law_on_one_spectrum(violation: np.ndarray) -> None:
    runs = depth_runs({"isotropic": 0.1 + 0.5 / DEPTHS, "other": violation})
    found = verdict("C3", runs=runs)
    assert found.verdict == NOT_SUPPORTED, found.reason


def test_unconverged_runs_are_no_data_points() -> None:
    runs = depth_runs({"isotropic": 0.1 + 0.5 / DEPTHS, "steep": 0.05 + 0.4 / DEPTHS})
    runs["converged"] = runs["depth"] < 4
    found = verdict("C3", runs=runs)
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
        depth_runs({f"rho {rho}": 0.02 + 0.5 * DEPTHS**-power}, "residual", correlation=rho)
        for rho, power in ((0.0, independent), (1.0, identical))
    ]
    found = verdict("C8", runs=pd.concat(tables, ignore_index=True))
    if expected == UNDECIDED and independent == identical:
        assert found.verdict != SUPPORTED
    else:
        assert found.verdict == expected, found.reason


def test_evidence_without_an_answer_leaves_the_claims_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that fails, or an interval that is not known, is a reason and no verdict."""
    table = pd.DataFrame([{"name": "depth exponent", "value": 1.0, "low": np.nan, "high": np.nan, "expected": 1.0}])
    assert verdict("C7", published=table).verdict == UNDECIDED
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise FitError("no minimum")

        patch.setattr("validate.fit.fit_depth_law", fail)
        softmax = verdict("C3", runs=depth_runs({"s": 0.1 + 1 / DEPTHS, "t": 0.2 + 1 / DEPTHS}))
        both = [depth_runs({f"rho {rho}": 0.1 + 1 / DEPTHS}, "residual", correlation=rho) for rho in (0.0, 1.0)]
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
def test_each_spectrum_is_judged_as_the_rule_says(
    monkeypatch: pytest.MonkeyPatch, low: float, high: float, lead: float, expected: str
) -> None:
    free = SimpleNamespace(
        answered=True, status="", parameters={"exponent": SimpleNamespace(value=1.0, interval=(low, high))}
    )
    rivals = [SimpleNamespace(law="inverse-depth", aicc=lead), SimpleNamespace(law="power", aicc=0.0)]
    monkeypatch.setattr("validate.fit.fit_depth_law", lambda *_, **__: free)
    monkeypatch.setattr("validate.fit.rank_laws", lambda *_, **__: rivals)
    runs = depth_runs({"s": 0.1 + 1 / DEPTHS, "t": 0.2 + 1 / DEPTHS})
    found = verdict("C3", runs=runs)
    assert {outcome["state"] for outcome in found.details.values()} == {expected}
    assert found.verdict == {"holds": SUPPORTED, "fails": NOT_SUPPORTED, "open": UNDECIDED}[expected]
