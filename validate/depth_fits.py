"""The depth laws fitted to a study: once for each attention and spectrum, for claims, tables and figures alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.depth_laws import DEPTH_LAWS
from validate.decisions import FEWEST_DEPTHS

if TYPE_CHECKING:
    import pandas as pd

    from theory.checks import FloatArray
    from validate.fit_result import FitResult

DEPTH_EXPERIMENTS = ("depth-linear", "depth-softmax")
FITTED, CLAIMED = "power", "inverse-depth"


def depth_law_fits(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row a spectrum and attention: the fitted power law with intervals, or why there is none.

    Converged runs are the data points. Where they cover fewer than five depths, three parameters cannot be judged by
    them: all runs are fitted then, and the row says that the fit is provisional; claims never use it. The noise is
    estimated from the scatter about the law, so that the spread of seeds is in the intervals.

    Parameters
    ----------
    runs : frame
        One row a run, as `validate.study.Study.to_frame` gives it.

    Returns
    -------
    list of dict
        experiment, attention, spectrum, depths (converged), fit (`validate.fit_result.FitResult` or None), status, and
        behind: each law's AICc less that of the best law on the same losses, NaN where the law has no answer; empty
        where none has.
    """
    rows = []
    for (experiment, attention, spectrum), group in depth_groups(runs):
        finished = group[group["final_loss"].notna()]
        good = finished[finished["converged"]]
        depths = int(good["depth"].nunique())
        provisional = depths < FEWEST_DEPTHS
        chosen = finished if provisional else good
        row: dict[str, Any] = {"experiment": experiment, "attention": attention, "spectrum": spectrum, "depths": depths}
        row |= {"fit": None, "behind": {}}
        if chosen["depth"].nunique() < 2:
            rows.append({**row, "status": f"{len(finished)} of {len(group)} runs ended with a finite loss: no fit."})
            continue
        losses = chosen["depth"].to_numpy(dtype=float), chosen["final_loss"].to_numpy(dtype=float)
        fits, failures = _all_laws(*losses)
        row["fit"] = fits.get(FITTED)
        row["status"] = fits[FITTED].status if FITTED in fits else failures[FITTED]
        row["behind"] = _behind(fits)
        if provisional:
            note = f"Provisional: {depths} converged depths, {FEWEST_DEPTHS} are needed; all {len(chosen)} runs fitted."
            row["status"] = f"{note} {row['status']}"
        rows.append(row)
    return rows


def depth_groups(runs: pd.DataFrame) -> list[tuple[Any, pd.DataFrame]]:
    """Return ((experiment, attention, spectrum), runs) of the depth experiments, in the order of the runs."""
    if runs.empty:
        return []
    chosen = runs[runs["experiment"].isin(DEPTH_EXPERIMENTS)]
    return list(chosen.groupby(["experiment", "attention", "spectrum"], sort=False))


def _all_laws(depth: FloatArray, loss: FloatArray) -> tuple[dict[str, FitResult], dict[str, str]]:
    """Return the fit of every law by its name, and why others have none."""
    from validate import FitError, fit_depth_law

    fits, failures = {}, {}
    for law in DEPTH_LAWS:
        try:
            fits[law] = fit_depth_law(depth, loss, law=law)
        except FitError as error:
            failures[law] = str(error)
    return fits, failures


def _behind(fits: Mapping[str, FitResult]) -> dict[str, float]:
    scores = {law: fit.aicc for law, fit in fits.items() if fit.answered and np.isfinite(fit.aicc)}
    if not scores:
        return {}
    best = min(scores.values())
    return {law: float(scores.get(law, np.nan) - best) for law in DEPTH_LAWS}


def depth_fit_table(fits: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return what the decision on the depth law reads of `depth_law_fits`: `validate.claims.Evidence.depth_fits`."""
    import pandas as pd

    rows = []
    for row in fits:
        kept = {name: row[name] for name in ("experiment", "attention", "spectrum", "depths", "status")}
        exponent, low, high = np.nan, np.nan, np.nan
        if row["fit"] is not None and row["fit"].answered:
            parameter = row["fit"].parameters["exponent"]
            exponent, (low, high) = parameter.value, parameter.interval
        numbers = {"exponent": exponent, "low": low, "high": high, "behind": row["behind"].get(CLAIMED, np.nan)}
        rows.append({**kept, **{name: float(value) for name, value in numbers.items()}})
    return pd.DataFrame(rows)
