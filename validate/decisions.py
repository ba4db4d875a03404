"""The decision rules of the claim register: from tables to verdicts, nothing else."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from validate.claims import NOT_SUPPORTED, SUPPORTED, UNDECIDED, Evidence, Verdict
from validate.mode_order import order_of_modes, structured_runs

if TYPE_CHECKING:
    import pandas as pd

    from validate.fit_result import ParameterEstimate

# Depths and dimension at which the tied optimum's slope is compared with beta.
ASYMPTOTIC_DEPTHS = (32, 256)
ASYMPTOTIC_DIM = 100_000
FEWEST_DEPTHS = 5


def curves(evidence: Evidence) -> Verdict:
    """Decide C0 on the table of predicted against trained curves."""
    table = evidence.curves
    if table.empty:
        return _missing("no predicted curve was trained")
    lost = table.loc[table["rms"].isna(), "depth"]
    if len(lost):  # neither near the prediction nor far from it
        return _missing("training diverged at L = " + ", ".join(f"{depth:g}" for depth in sorted(set(lost))))
    number = float(table["rms"].max())
    worst = table["depth"].iloc[int(table["rms"].argmax())]
    reason = f"rms deviation at most {100 * number:.2f} % over {len(table)} depths (at L = {worst:g})"
    details = {"rms": table.set_index("depth")["rms"].to_dict()}
    return Verdict("", _three_way(number, 0.03, 0.06), number, reason, details)


def linear_optimum(evidence: Evidence) -> Verdict:
    """Decide C1 on converged linear runs at infinite context, tied and untied."""
    from theory import Spectrum, Task, tied_optimum

    found = {}
    for experiment, optimum in (("linear-optimum", "tied_optimum"), ("linear-untied", "untied_floor")):
        runs = _converged(evidence.runs, experiment)
        found[optimum] = runs if runs.empty else runs[runs[optimum].notna()]
        if found[optimum].empty or found[optimum]["spectrum"].nunique() < 2:
            return _missing(f"fewer than two power laws with converged runs of {experiment}")
    worst, near, far = {}, True, False
    for optimum, runs in found.items():
        deviation = (runs["final_loss"] / runs[optimum] - 1).abs()
        scores = (runs["final_loss"] - runs[optimum]).abs() / runs["standard_error"]
        near &= bool(((deviation <= 0.02) | (scores <= 4)).all())
        far |= bool(((deviation > 0.05) & (scores > 4)).any())
        worst[optimum] = float(deviation.max())
    slopes: dict[str, float] = {}
    off = 0.0
    for spectrum, group in found["tied_optimum"].groupby("spectrum"):
        source, capacity = float(group["source"].iloc[0]), float(group["capacity"].iloc[0])
        task = Task(Spectrum.power_law(ASYMPTOTIC_DIM, capacity, source))
        low, high = (tied_optimum(task, depth).loss for depth in ASYMPTOTIC_DEPTHS)
        slope = float(np.log(low / high) / np.log(ASYMPTOTIC_DEPTHS[1] / ASYMPTOTIC_DEPTHS[0]))
        slopes[str(spectrum)] = slope
        off = max(off, abs(slope / source - 1))
    reason = (
        f"{len(found['tied_optimum'])} converged tied losses within {100 * worst['tied_optimum']:.2f} % of the tied "
        f"optimum, {len(found['untied_floor'])} untied ones within {100 * worst['untied_floor']:.2f} % of the untied "
        "floor; slope of the tied optimum in depth "
        + ", ".join(f"{slope:.3f} ({spectrum})" for spectrum, slope in slopes.items())
    )
    verdict = NOT_SUPPORTED if far or off > 0.2 else SUPPORTED if near and off <= 0.1 else UNDECIDED
    return Verdict("", verdict, max(worst.values()), reason, {"slopes": slopes, "deviations": worst})


def strong_first(evidence: Evidence) -> Verdict:
    """Decide C2 on the half-learning times of linear attention."""
    table, logs = evidence.half_times, []
    correlations = order_of_modes(table, "linear")
    for key, group in structured_runs(table, "linear"):
        if key in correlations:
            both = group[(group["half_time"] > 0) & (group["predicted"] > 0)]
            logs.append(np.log(both["half_time"].to_numpy(dtype=float) / both["predicted"].to_numpy(dtype=float)))
    if not correlations:
        return _missing("no structured spectrum with two modes half learned by linear attention")
    weakest, apart = max(correlations.values()), np.concatenate(logs)
    rms = float(np.sqrt(np.mean(apart**2))) if apart.size else float("nan")
    verdicts = {_three_way(weakest, -0.9, -0.5), UNDECIDED if np.isnan(rms) else _three_way(rms, 0.2, 0.5)}
    verdict = next(state for state in (NOT_SUPPORTED, UNDECIDED, SUPPORTED) if state in verdicts)
    reason = (
        f"rank correlation at most {weakest:.3f} over {len(correlations)} runs; half-times {rms:.2f} rms in log from "
        f"the predicted ones over {apart.size} modes"
    )
    return Verdict("", verdict, weakest, reason, {"correlations": _keyed(correlations), "rms_log": rms})


def inverse_depth(evidence: Evidence) -> Verdict:
    """Decide C3 on the laws fitted to converged nonlinear runs, spectrum by spectrum."""
    table = evidence.depth_fits
    rows = [] if table.empty else [row for _, row in table.iterrows()]
    outcomes = {_fitted_name(row): _inverse_depth_on(row) for row in rows if row["experiment"] == "depth-softmax"}
    if not outcomes:
        return _missing("no nonlinear run")
    exponents = [outcome["exponent"] for outcome in outcomes.values() if outcome["exponent"] is not None]
    number = max(exponents, key=lambda value: abs(value - 1), default=None)
    verdict = _over_all(outcomes, number, fewest=2)
    foils = [row for row in rows if row["experiment"] == "depth-linear" and row["depths"] > 0]
    linear = {_fitted_name(row): _inverse_depth_on(row) for row in foils}
    return dataclasses.replace(verdict, details={**verdict.details, **linear})


def _fitted_name(row: pd.Series) -> str:
    return str(row["spectrum"]) if row["attention"] == "softmax" else f"{row['attention']}, {row['spectrum']}"


def _inverse_depth_on(row: pd.Series) -> dict[str, Any]:
    """Return state (holds, fails, open), exponent and reason for one fitted group."""
    if row["depths"] < FEWEST_DEPTHS:
        reason = f"{row['depths']} converged depths, {FEWEST_DEPTHS} needed"
        return {"state": "open", "exponent": None, "reason": reason}
    if np.isnan(row["exponent"]):
        return {"state": "open", "exponent": None, "reason": row["status"]}
    exponent, low, high, lead = (float(row[name]) for name in ("exponent", "low", "high", "behind"))
    # An unknown bound excludes nothing and confines nothing.
    excluded = low > 1 or high < 1
    reason = f"alpha = {exponent:.3f} [{_number(low)}, {_number(high)}], inverse depth {lead:.1f} behind in AICc"
    narrow = high - low <= 1
    state = "fails" if excluded or lead > 10 else "holds" if narrow and lead <= 2 else "open"
    return {"state": state, "exponent": exponent, "interval": [low, high], "lead": lead, "reason": reason}


def _exponent(group: pd.DataFrame) -> tuple[ParameterEstimate | None, str]:
    """Return the exponent of the power law through these losses, or None and why there is none.

    Relative noise is estimated from the scatter about the law, so that the spread of seeds is in the interval.
    """
    from validate import FitError, fit_depth_law

    try:
        fit = fit_depth_law(
            group["depth"].to_numpy(dtype=float), group["final_loss"].to_numpy(dtype=float), law="power"
        )
    except FitError as failed:
        return None, str(failed)
    return (fit.parameters["exponent"], "") if fit.answered else (None, fit.status)


def parallel(evidence: Evidence) -> Verdict:
    """Decide C4 on the spread of half-learning times, nonlinear against linear."""
    spreads: dict[str, dict[Any, tuple[float, bool]]] = {}
    for attention in ("linear", "softmax"):
        spreads[attention] = {}
        for key, group in structured_runs(evidence.half_times, attention):
            times = group["half_time"].fillna(group["steps"])
            if group["half_time"].notna().any() and times.min() > 0:
                spread = float(np.log(times.max() / times.min()))
                spreads[attention][key] = (spread, bool(group["half_time"].notna().all()))
    ratios: dict[Any, float] = {}
    left_out = 0
    for key in spreads["linear"].keys() & spreads["softmax"].keys():
        (linear, all_linear), (softmax, all_softmax) = spreads["linear"][key], spreads["softmax"][key]
        if not (all_linear or all_softmax) or linear == 0:
            left_out += 1
        else:
            ratios[key] = softmax / linear if all_softmax else float("inf")
    if not ratios:
        return _missing("no depth and spectrum at which both attentions half learned modes, and one of them all")
    worst = max(ratios.values())
    reason = f"log spread of half-times at most {worst:.2f} of linear attention's over {len(ratios)} pairs"
    if left_out:
        reason += f", {left_out} more in which both leave modes unlearned"
    ordered = dict(sorted(ratios.items(), key=lambda item: str(item[0])))
    return Verdict("", _three_way(worst, 0.5, 0.8), worst, reason, {"ratios": _keyed(ordered)})


def focus(evidence: Evidence) -> Verdict:
    """Decide C5 on participation and overlap of the attention."""
    table = evidence.focus
    if table.empty:
        return _missing("no focus was measured")
    share = float((table["participation"] / table["context"]).max())
    overlap = float(table["overlap"].min(skipna=True))
    reason = f"participation up to {share:.2f} of the context, overlap between layers down to {overlap:.2f}"
    verdict = _three_way(share, 0.5, 0.8)
    if verdict == SUPPORTED and not overlap >= 0.5:
        verdict = UNDECIDED
    return Verdict("", verdict, share, reason, {"overlap": overlap})


def central_limit(evidence: Evidence) -> Verdict:
    """Decide C6 on losses predicted from the layer errors of other depths."""
    table = evidence.layers
    if table.empty:
        return _missing("no layer errors were measured")
    deviation = (table["predicted"] / table["observed"] - 1).abs()
    worst = float(deviation.max())
    reason = f"predicted from another depth's layer errors within {100 * worst:.0f} % over {len(table)} depths"
    return Verdict("", _three_way(worst, 0.15, 0.30), worst, reason)


def published(evidence: Evidence) -> Verdict:
    """Decide C7 on the published quantities at hand."""
    table = evidence.published
    if table.empty:
        return _missing("the published data is not at hand (option --data FOLDER)")
    outside = table[(table["expected"] < table["low"]) | (table["expected"] > table["high"])]
    texts = [
        f"{row['name']} {row['value']:.4g} in [{row['low']:.4g}, {row['high']:.4g}]" for _, row in table.iterrows()
    ]
    unknown = table[["value", "low", "high"]].isna().any(axis=None)
    verdict = NOT_SUPPORTED if len(outside) else UNDECIDED if unknown else SUPPORTED
    number = float(table["value"].iloc[0])
    return Verdict("", verdict, number, "; ".join(texts), {"outside": outside["name"].tolist()})


def residual(evidence: Evidence) -> Verdict:
    """Decide C8 on the exponents of the residual toy model, teacher by teacher."""
    runs = _converged(evidence.runs, "residual")
    if runs.empty:
        return _missing("no converged residual run")
    outcomes: dict[str, dict[str, Any]] = {}
    for teacher, of_teacher in runs.groupby("teacher_seed"):
        fits, reasons = {}, []
        for correlation in (0.0, 1.0):
            group = of_teacher[of_teacher["correlation"] == correlation]
            if group["depth"].nunique() < FEWEST_DEPTHS:
                reasons.append(f"fewer than {FEWEST_DEPTHS} converged depths for correlation {correlation:g}")
                continue
            exponent, why_not = _exponent(group)
            if exponent is None:
                reasons.append(why_not)
            else:
                fits[correlation] = exponent
        name = f"teacher {teacher:g}"
        if reasons:
            outcomes[name] = {"state": "open", "gap": None, "reason": "; ".join(reasons)}
            continue
        independent, identical = fits[0.0], fits[1.0]
        low, high = independent.interval
        gap = float(identical.value - independent.value)
        apart = low <= 1 <= high < identical.interval[0]
        text = (
            f"exponent {independent.value:.2f} [{_number(low)}, {_number(high)}] for independent layers, "
            f"{identical.value:.2f} for identical ones"
        )
        outcomes[name] = {"state": "fails" if gap <= 0 else "holds" if apart else "open", "gap": gap, "reason": text}
    gaps = [outcome["gap"] for outcome in outcomes.values() if outcome["gap"] is not None]
    return _over_all(outcomes, min(gaps, default=None), fewest=1)


def crossover(evidence: Evidence) -> Verdict:
    """Decide C9 on the plateau-free exponents of the map over contexts."""
    table = evidence.regions
    chosen = table if table.empty else table[(table["map"] == "context") & (table["depth"] == 1)]
    if chosen.empty:
        return _missing("no map over contexts was trained")
    outcomes: dict[str, dict[str, Any]] = {}
    for spectrum, group in chosen.groupby("spectrum", sort=False):
        if group["context"].nunique() < 2:
            only = {"state": "open", "exponent": float("nan"), "reason": "fewer than two finite contexts"}
            outcomes[str(spectrum)] = only
            continue
        ends = {}
        for end, context in (("shortest", group["context"].min()), ("longest", group["context"].max())):
            for attention in ("linear", "softmax"):
                at = group[(group["context"] == context) & (group["attention"] == attention)]
                ends[end, attention] = (
                    (float(at["exponent"].iloc[0]), float(at["standard_error"].iloc[0]))
                    if len(at) == 1 and bool(at["converged"].iloc[0])
                    else (float("nan"), float("nan"))
                )
        outcomes[str(spectrum)] = _crossover_on(ends)
    numbers = [outcome["exponent"] for outcome in outcomes.values() if np.isfinite(outcome["exponent"])]
    number = max(numbers, key=lambda value: abs(value - 1), default=None)
    return _over_all(outcomes, number, fewest=1)


def _crossover_on(ends: dict[tuple[str, str], tuple[float, float]]) -> dict[str, Any]:
    """Return state, softmax's exponent at the shortest context, and the reason, for one spectrum."""
    texts = [
        f"{attention} {'not known' if np.isnan(value) else f'{value:.2f} ± {error:.2f}'} at the {end} context"
        for (end, attention), (value, error) in ends.items()
    ]
    short, short_error = ends["shortest", "softmax"]
    (long_linear, linear_error), (long_softmax, softmax_error) = ends["longest", "linear"], ends["longest", "softmax"]
    gaps = (
        (abs(short - 1), 2 * short_error),
        (abs(long_softmax - long_linear), 2 * float(np.hypot(linear_error, softmax_error))),
    )
    reason = ", ".join(texts)
    if any(gap > 0.5 and gap > error for gap, error in gaps):
        state = "fails"
    elif any(np.isnan(gap) or np.isnan(error) for gap, error in gaps):
        state = "open"
    else:
        state = "holds" if all(gap <= max(0.25, error) and error <= 0.5 for gap, error in gaps) else "open"
    return {"state": state, "exponent": short, "reason": reason}


def _over_all(outcomes: dict[str, dict[str, Any]], number: float | None, *, fewest: int) -> Verdict:
    """Return supported if all of at least ``fewest`` hold, not supported if one fails, undecided otherwise."""
    states = [outcome["state"] for outcome in outcomes.values()]
    if "fails" in states:
        verdict = NOT_SUPPORTED
    else:
        verdict = SUPPORTED if len(states) >= fewest and set(states) == {"holds"} else UNDECIDED
    reason = "; ".join(f"{name}: {outcome['reason']}" for name, outcome in outcomes.items())
    return Verdict("", verdict, number, reason, outcomes)


def _converged(runs: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return the converged runs of an experiment: only these are data points."""
    if runs.empty:
        return runs
    return runs[(runs["experiment"] == experiment) & runs["converged"] & runs["final_loss"].notna()]


def _three_way(number: float, supported: float, refuted: float) -> str:
    if number <= supported:
        return SUPPORTED
    return NOT_SUPPORTED if number > refuted else UNDECIDED


def _missing(reason: str) -> Verdict:
    return Verdict("", UNDECIDED, None, reason)


def _keyed(values: dict[Any, float]) -> dict[str, float]:
    return {", ".join(str(part) for part in key): value for key, value in values.items()}


def _number(value: float) -> str:
    return "?" if np.isnan(value) else f"{value:.2f}"
