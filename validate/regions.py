"""Where a depth law holds: exponents free of the plateau, on maps over context, noise, data, kernel, gain, model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.checks import FloatArray, real, reject, vector

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "map-"
_PLACE = ("map", "variant", "model", "attention", "spectrum", "dim", "context", "label_noise")
REGION_COLUMNS = (*_PLACE, "depth", "loss", "standard_error", "converged", "seeds")


def plateau_free_exponent(loss: FloatArray, standard_error: FloatArray, *, ratio: float = 2.0) -> tuple[float, float]:
    """Return alpha of loss = L_inf + c / L^alpha from three depths L, q L, q^2 L, with its standard error.

    alpha = log_q [(loss_1 - loss_2) / (loss_2 - loss_3)]: plateau and coefficient cancel, whatever they are. Where the
    law is another one, it is the local exponent of the loss's fall: it grows with L for an exponential law, and is 2
    for a discretisation error. The standard error is first order in those of the losses, taken as independent.

    Parameters
    ----------
    loss, standard_error : array (3,)
        At the three depths, in that order.
    ratio : float
        q > 1.

    Returns
    -------
    exponent, standard_error : float
        NaN where the loss does not fall from each depth to the next.

    Raises
    ------
    ValueError
        If there are not three losses, a standard error is negative, or ``ratio`` is not above 1.
    """
    loss, standard_error = vector("loss", loss), vector("standard_error", standard_error)
    ratio = real("ratio", ratio, above=1)
    for name, values in (("loss", loss), ("standard_error", standard_error)):
        if values.size != 3:
            raise reject(name, values.tolist(), "three numbers")
    if (standard_error < 0).any():
        raise reject("standard_error", standard_error.tolist(), "numbers >= 0")
    early, late = loss[0] - loss[1], loss[1] - loss[2]
    if early <= 0 or late <= 0:
        return float("nan"), float("nan")
    slopes = np.array([1 / early, -1 / early - 1 / late, 1 / late])  # of ln(early / late) in the three losses
    error = float(np.linalg.norm(slopes * standard_error))
    return float(np.log(early / late) / np.log(ratio)), error / float(np.log(ratio))


def region_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row a place on a map and depth: the mean loss over seeds and its standard error.

    Seeds that diverged are left out and counted in none of the numbers; ``converged`` says that every other seed has
    converged. The standard error is that of the scatter over seeds where there are two or more, but never less than
    the one that evaluation leaves.

    Parameters
    ----------
    runs : frame
        As `validate.study.Study.to_frame` gives it; experiments named ``map-…`` count.
    """
    import pandas as pd

    empty = pd.DataFrame(columns=list(REGION_COLUMNS))
    if runs.empty:
        return empty
    chosen = runs[runs["experiment"].str.startswith(PREFIX) & runs["final_loss"].notna()].copy()
    if chosen.empty:
        return empty
    chosen["map"] = chosen["experiment"].str.removeprefix(PREFIX)
    chosen["variant"] = [_variant(row) for row in chosen.to_dict("records")]
    rows = []
    for key, group in chosen.groupby([*_PLACE, "depth"], sort=False, dropna=False):
        count = len(group)
        evaluation = float(np.sqrt((group["standard_error"] ** 2).sum())) / count
        scatter = float(group["final_loss"].std(ddof=1)) / count**0.5 if count > 1 else 0.0
        rows.append(
            {
                **dict(zip((*_PLACE, "depth"), key, strict=True)),
                "loss": float(group["final_loss"].mean()),
                "standard_error": max(evaluation, scatter),
                "converged": bool(group["converged"].all()),
                "seeds": count,
            }
        )
    return pd.DataFrame(rows, columns=list(REGION_COLUMNS))


def region_exponents(regions: pd.DataFrame) -> pd.DataFrame:
    """Return one row a place and depth L at which L, 2 L and 4 L were trained: the exponent free of the plateau.

    Parameters
    ----------
    regions : frame
        From :func:`region_table`.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    if len(regions):
        for key, group in regions.groupby(list(_PLACE), sort=False, dropna=False):
            at = group.set_index("depth")
            for depth in at.index:
                three = [depth, 2 * depth, 4 * depth]
                if set(three) <= set(at.index):
                    part = at.loc[three]
                    exponent, error = plateau_free_exponent(
                        part["loss"].to_numpy(dtype=float), part["standard_error"].to_numpy(dtype=float)
                    )
                    row: dict[str, Any] = dict(zip(_PLACE, key, strict=True))
                    row |= {"depth": int(depth), "exponent": exponent, "standard_error": error}
                    rows.append({**row, "converged": bool(part["converged"].all())})
    return pd.DataFrame(rows, columns=[*_PLACE, "depth", "exponent", "standard_error", "converged"])


def _variant(row: dict[Hashable, Any]) -> str:
    """Return what sets a run apart on its map; on the others than that of the data, a law but the Gaussian is named."""
    name, law = row["map"], covariates_label(row)
    if name == "data":
        return law
    if name == "context":
        text = f"P = {_amount(row['context'], absent='inf')}"
    elif name == "noise":
        text = f"σ² = {_amount(row['label_noise'], absent='none')}"
    elif name == "gain":
        text = f"b = {_amount(row['gain'], absent='learned')}"
    else:
        text = str(row["attention"] if name == "kernel" else f"{row['model']} {row['attention']}")
    return text if law == "gaussian" else f"{text}, {law}"


def covariates_label(row: Mapping[Any, Any]) -> str:
    """Return the law of a run's covariates, such as ``signs`` or ``clusters (4, s = 0.25)``; no law is the Gaussian."""
    law = row.get("covariates")
    if not isinstance(law, str):
        return "gaussian"
    return f"clusters ({row['clusters']:g}, s = {row['spread']:g})" if law == "clusters" else law


def _amount(value: float | None, *, absent: str) -> str:
    """Return a number as text, ``absent`` for None or NaN, which a column of some numbers makes of None."""
    return absent if value is None or np.isnan(value) else f"{value:g}"
