"""What a recovery study says: shares with their standard errors, law by law, and promises against outcomes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from theory.depth_laws import DEPTH_LAWS

# A cost this much lower, relatively, is another optimum.
LOWER = 1e-6
BINS = (0.0, 0.4, 0.6, 0.8, 0.95, 0.99, 1.0)
FEW = 12


def share(hits: list[bool] | np.ndarray) -> str:
    """Return a share with its standard error."""
    if not len(hits):
        return "none"
    mean = float(np.mean(hits))
    return f"{mean:.3f} ± {np.sqrt(mean * (1 - mean) / len(hits)):.3f} (n={len(hits)})"


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the report."""
    for law in DEPTH_LAWS:
        mine = [row for row in rows if row["law"] == law]
        if not mine:
            continue
        good = [row for row in mine if row.get("answered")]
        refused = sum(row["error"] is None and not row.get("answered") for row in mine)
        failed = sum(row["error"] is not None for row in mine)
        yield f"{law}: {len(mine)} tables, {len(good)} answered, {refused} refused, {failed} not converged"
        for name in DEPTH_LAWS[law].parameter_names:
            yield f"  {name:>20} covered {share([row['covered'][name][0] for row in good])}"
        for search in ("scan", "brute"):
            searched = [row for row in good if search in row]
            worse = [row["index"] for row in searched if row[search] < row["cost"] * (1 - LOWER)]
            yield f"  {len(worse)} of {len(searched)} have a lower optimum by {search} {worse or ''}"
    covered = [hit for row in rows for hit, _ in row["covered"].values()]
    yield f"all: intervals hold in {share(covered)}"
    bound = [hit for row in rows for hit, status in row["covered"].values() if status == "at bound"]
    yield f"  at bound: {share(bound)}"
    for place, name in enumerate(("AICc weight", "probability")):
        yield from promises(rows, place, name)


def promises(rows: list[dict[str, Any]], place: int, name: str) -> Iterator[str]:
    """Yield how often the law with the largest ``name`` is the true one, in bins of what it promises."""
    won = []
    for row in rows:
        values = {law: given[place] for law, given in row.get("promises", {}).items()}
        if row["law"] not in values or any(value is None or not np.isfinite(value) for value in values.values()):
            continue
        first = max(values, key=lambda law: values[law])
        won.append((values[first], first == row["law"], row["n"] <= FEW, values[row["law"]]))
    if not won:
        return
    promise, right, few, true = (np.array(column) for column in zip(*won, strict=True))
    score = np.mean(np.log(np.maximum(true, 1e-12)))
    yield f"{name}: the first is true in {share(right)}, promised {promise.mean():.3f}, log score {score:.2f}"
    for part, rule in ((few, f"n <= {FEW}"), (~few, f"n > {FEW}")):
        for low, high in itertools.pairwise(BINS):
            inside = part & (promise >= low) & ((promise < high) | (high == 1.0))
            if inside.any():
                told = f"promise {promise[inside].mean():.3f}, true in {share(right[inside])}"
                yield f"  {rule}, {low:.2f}-{high:.2f}: {told}"
