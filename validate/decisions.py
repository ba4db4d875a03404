"""The decision rules of the claim register: from tables to verdicts, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from validate.claims import NOT_SUPPORTED, SUPPORTED, UNDECIDED, Evidence, Verdict

if TYPE_CHECKING:
    import pandas as pd

# Depths and dimension at which the tied optimum's slope is compared with beta.
ASYMPTOTIC_DEPTHS = (32, 256)
ASYMPTOTIC_DIM = 100_000
FEWEST_DEPTHS = 5


def curves(evidence: Evidence) -> Verdict:
    """Decide C0 on the table of predicted against trained curves."""
    table = evidence.curves
    if table.empty:
        return _missing("no predicted curve was trained")
    number = float(table["rms"].max())
    reason = f"rms deviation at most {100 * number:.2f} % over {len(table)} depths"
    details = {"rms": table.set_index("depth")["rms"].to_dict()}
    return Verdict("", _three_way(number, 0.03, 0.06), number, reason, details)


def linear_optimum(evidence: Evidence) -> Verdict:
    """Decide C1 on converged tied linear runs at infinite context."""
    from theory import Spectrum, Task, tied_optimum

    runs = _converged(evidence.runs, "linear-optimum")
    if not runs.empty:
        runs = runs[runs["tied_optimum"].notna()]
    if runs.empty or runs["spectrum"].nunique() < 2:
        return _missing("fewer than two power laws with converged tied runs")
    deviation = runs["final_loss"] / runs["tied_optimum"] - 1
    scores = (runs["final_loss"] - runs["tied_optimum"]).abs() / runs["standard_error"]
    near = (deviation.abs() <= 0.02) | (scores <= 4)
    far = (deviation.abs() > 0.05) & (scores > 4)
    slopes: dict[str, float] = {}
    off = 0.0
    for spectrum, group in runs.groupby("spectrum"):
        source, capacity = float(group["source"].iloc[0]), float(group["capacity"].iloc[0])
        task = Task(Spectrum.power_law(ASYMPTOTIC_DIM, capacity, source))
        low, high = (tied_optimum(task, depth).loss for depth in ASYMPTOTIC_DEPTHS)
        slope = float(np.log(low / high) / np.log(ASYMPTOTIC_DEPTHS[1] / ASYMPTOTIC_DEPTHS[0]))
        slopes[str(spectrum)] = slope
        off = max(off, abs(slope / source - 1))
    worst = float(deviation.abs().max())
    reason = (
        f"{len(runs)} converged losses within {100 * worst:.2f} % of the tied optimum, whose slope in depth is "
        + ", ".join(f"{slope:.3f} ({spectrum})" for spectrum, slope in slopes.items())
    )
    if bool(far.any()) or off > 0.2:
        verdict = NOT_SUPPORTED
    else:
        verdict = SUPPORTED if bool(near.all()) and off <= 0.1 else UNDECIDED
    return Verdict("", verdict, worst, reason, {"slopes": slopes})


def strong_first(evidence: Evidence) -> Verdict:
    """Decide C2 on the half-learning times of linear attention."""
    from scipy.stats import spearmanr

    correlations = {}
    for key, group in _structured(evidence.half_times, "linear"):
        learned = group.dropna(subset=["half_time"])
        if len(learned) >= 3:
            correlations[key] = float(spearmanr(learned["eigenvalue"], learned["half_time"]).statistic)
    if not correlations:
        return _missing("no structured spectrum with three modes half learned by linear attention")
    weakest = max(correlations.values())
    reason = f"rank correlation at most {weakest:.3f} over {len(correlations)} runs"
    return Verdict("", _three_way(weakest, -0.9, -0.5), weakest, reason, {"correlations": _keyed(correlations)})


def inverse_depth(evidence: Evidence) -> Verdict:
    """Decide C3 on converged nonlinear runs, spectrum by spectrum."""
    runs = _converged(evidence.runs, "depth-softmax")
    everything = evidence.runs[evidence.runs["experiment"] == "depth-softmax"] if len(evidence.runs) else evidence.runs
    if everything.empty:
        return _missing("no nonlinear run")
    outcomes: dict[str, dict[str, Any]] = {}
    for spectrum in everything["spectrum"].unique():
        outcomes[spectrum] = _inverse_depth_on(runs[runs["spectrum"] == spectrum])
    states = [outcome["state"] for outcome in outcomes.values()]
    if "fails" in states:
        verdict = NOT_SUPPORTED
    else:
        verdict = SUPPORTED if len(states) >= 2 and set(states) == {"holds"} else UNDECIDED
    exponents = [outcome["exponent"] for outcome in outcomes.values() if outcome["exponent"] is not None]
    number = max(exponents, key=lambda value: abs(value - 1)) if exponents else None
    reason = "; ".join(f"{spectrum}: {outcome['reason']}" for spectrum, outcome in outcomes.items())
    return Verdict("", verdict, number, reason, outcomes)


def _inverse_depth_on(group: pd.DataFrame) -> dict[str, Any]:
    """Return state (holds, fails, open), exponent and reason for one spectrum."""
    from validate import FitError, fit_depth_law, rank_laws

    depths = group["depth"].nunique() if len(group) else 0
    if depths < FEWEST_DEPTHS:
        return {"state": "open", "exponent": None, "reason": f"{depths} converged depths, {FEWEST_DEPTHS} needed"}
    # Relative noise is estimated from the scatter about the law, so that the spread of seeds is in the interval.
    data = group["depth"].to_numpy(dtype=float), group["final_loss"].to_numpy(dtype=float)
    try:
        free = fit_depth_law(*data, law="power")
        scores = {fit.law: fit.aicc for fit in rank_laws(*data)}
    except FitError as failed:
        return {"state": "open", "exponent": None, "reason": str(failed)}
    if not free.answered:
        return {"state": "open", "exponent": None, "reason": free.status}
    exponent = free.parameters["exponent"]
    low, high = exponent.interval
    finite = {law: score for law, score in scores.items() if np.isfinite(score)}
    lead = finite["inverse-depth"] - min(finite.values()) if "inverse-depth" in finite else float("nan")
    # An unknown bound excludes nothing and confines nothing.
    excluded = low > 1 or high < 1
    reason = f"alpha = {exponent.value:.3f} [{_number(low)}, {_number(high)}], inverse depth {lead:.1f} behind in AICc"
    narrow = high - low <= 1
    state = "fails" if excluded or lead > 10 else "holds" if narrow and lead <= 2 else "open"
    return {"state": state, "exponent": float(exponent.value), "interval": [low, high], "lead": lead, "reason": reason}


def parallel(evidence: Evidence) -> Verdict:
    """Decide C4 on the spread of half-learning times, nonlinear against linear."""
    spreads: dict[str, dict[Any, float]] = {}
    for attention in ("linear", "softmax"):
        spreads[attention] = {}
        for key, group in _structured(evidence.half_times, attention):
            times = group["half_time"]
            if times.notna().all() and len(times) >= 2 and times.min() > 0:
                spreads[attention][key] = float(np.log(times.max() / times.min()))
    shared = {key for key in spreads["linear"] if key in spreads["softmax"] and spreads["linear"][key] > 0}
    if not shared:
        return _missing("no depth and spectrum at which both attentions half learned every mode")
    ratios = {key: spreads["softmax"][key] / spreads["linear"][key] for key in shared}
    worst = max(ratios.values())
    reason = f"log spread of half-times at most {worst:.2f} of linear attention's over {len(ratios)} pairs"
    return Verdict("", _three_way(worst, 0.5, 0.8), worst, reason, {"ratios": _keyed(ratios)})


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
    """Decide C8 on the exponents of the residual toy model."""
    from validate import FitError, fit_depth_law

    runs = _converged(evidence.runs, "residual")
    fits = {}
    failures = []
    for correlation, group in runs.groupby("correlation") if len(runs) else []:
        if group["depth"].nunique() >= FEWEST_DEPTHS:
            data = group["depth"].to_numpy(dtype=float), group["final_loss"].to_numpy(dtype=float)
            try:
                fit = fit_depth_law(*data, law="power")
            except FitError as failed:
                failures.append(f"teacher correlation {correlation}: {failed}")
                continue
            if fit.answered:
                fits[float(str(correlation))] = fit.parameters["exponent"]
            else:
                failures.append(f"teacher correlation {correlation}: {fit.status}")
    if failures:
        return _missing("; ".join(failures))
    if not {0.0, 1.0} <= set(fits):
        return _missing(f"fewer than {FEWEST_DEPTHS} converged depths for teacher correlation 0 and 1")
    independent, identical = fits[0.0], fits[1.0]
    low, high = independent.interval
    reason = (
        f"exponent {independent.value:.2f} [{_number(low)}, {_number(high)}] for independent teacher layers, "
        f"{identical.value:.2f} for identical ones"
    )
    gap = float(identical.value - independent.value)
    if gap <= 0:
        verdict = NOT_SUPPORTED
    else:
        apart = low <= 1 <= high < identical.interval[0]
        verdict = SUPPORTED if apart else UNDECIDED
    return Verdict("", verdict, gap, reason)


def _converged(runs: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return the converged runs of an experiment: only these are data points."""
    if runs.empty:
        return runs
    return runs[(runs["experiment"] == experiment) & runs["converged"] & runs["final_loss"].notna()]


def _structured(half_times: pd.DataFrame, attention: str) -> list[tuple[Any, pd.DataFrame]]:
    """Return ((spectrum, depth, seed), modes) of runs whose eigenvalues differ."""
    if half_times.empty:
        return []
    table = half_times[half_times["attention"] == attention]
    groups = table.groupby(["spectrum", "depth", "seed"])
    return [(key, group) for key, group in groups if group["eigenvalue"].nunique() > 1]


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
