"""In which order the modes of a run are half learned: the rank correlation that a claim and a figure share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from theory.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd


def structured_runs(half_times: pd.DataFrame, attention: str) -> list[tuple[Any, pd.DataFrame]]:
    """Return ((spectrum, depth, seed), modes) of the runs of ``attention`` whose eigenvalues differ."""
    if half_times.empty:
        return []
    table = half_times[half_times["attention"] == attention]
    groups = table.groupby(["spectrum", "depth", "seed"])
    return [(key, group) for key, group in groups if group["eigenvalue"].nunique() > 1]


def order_of_modes(half_times: pd.DataFrame, attention: str) -> dict[Any, float]:
    """Return Goodman and Kruskal's gamma of half-time and eigenvalue: -1 where strong modes are always first.

    A mode never half learned comes last, tied with its like; a run with fewer than two half-learned modes, or with
    nothing but ties, has no order.

    Parameters
    ----------
    half_times : frame
        One row a run and mode: attention, spectrum, depth, seed, eigenvalue, half_time (NaN: never half learned).
    attention : str
        Whose runs.

    Returns
    -------
    dict
        (spectrum, depth, seed) -> gamma.
    """
    found = {
        key: goodman_kruskal(
            group["eigenvalue"].to_numpy(dtype=float), group["half_time"].fillna(np.inf).to_numpy(dtype=float)
        )
        for key, group in structured_runs(half_times, attention)
        if group["half_time"].notna().sum() >= 2
    }
    return {key: gamma for key, gamma in found.items() if not np.isnan(gamma)}


def goodman_kruskal(x: FloatArray, y: FloatArray) -> float:
    """Return (concordant - discordant) / (concordant + discordant) over pairs tied in neither; infinities tie.

    NaN where every pair is tied.
    """
    pairs = np.triu_indices(x.size, 1)
    order = [np.sign(np.greater.outer(z, z)[pairs].astype(int) - np.less.outer(z, z)[pairs]) for z in (x, y)]
    product = order[0] * order[1]
    decided = np.count_nonzero(product)
    return float(product.sum() / decided) if decided else float("nan")
