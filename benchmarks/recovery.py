"""Recovery: tables drawn from each depth law, fitted and ranked; coverage, calibration of the weights, false optima.

``python -m benchmarks.recovery --tables 500 --out recovery.jsonl`` appends a line a table and prints the shares with
their standard errors; a second run goes on where the file ends.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from theory.depth_laws import DEPTH_LAWS
from validate.fit import fit_depth_law, rank_laws
from validate.fit_engine import minimise
from validate.fit_result import FitError
from validate.fit_starts import sobol_starts

BRUTE_STARTS = 2048
# Every this many tables of a law are searched by brute force.
BRUTE_EVERY = 10
# A cost this much lower, relatively, is another optimum.
LOWER = 1e-6


def draw_table(law: str, index: int) -> tuple[np.ndarray, np.ndarray, dict[str, float], float]:
    """Return depths, losses, the parameters and the relative noise of one synthetic table."""
    rng = np.random.default_rng([*law.encode(), index])
    # One distinct depth more than parameters and noise leaves something to judge the fit by.
    fewest = len(DEPTH_LAWS[law].parameters) + 2
    rows = int(np.round(np.exp(rng.uniform(np.log(5), np.log(200)))))
    rows = max(rows, fewest)
    distinct = int(rng.integers(fewest, min(rows, 16) + 1))
    depths = np.sort(rng.choice(np.unique(np.round(np.geomspace(1, 96, 40))), distinct, replace=False))
    # Ragged: every depth once, the other rows anywhere.
    depth = np.sort(np.concatenate([depths, rng.choice(depths, rows - distinct)]))
    draws = {
        "plateau": np.exp(rng.uniform(np.log(0.3), np.log(3.0))),
        "coefficient": np.exp(rng.uniform(np.log(0.5), np.log(4.0))),
        "exponent": np.exp(rng.uniform(np.log(0.3), np.log(2.5))),
        "decay_depth": np.exp(rng.uniform(np.log(2.0), np.log(30.0))),
        "correlation": rng.uniform(0.3, 0.95),
        "second_coefficient": rng.uniform(-0.4, 2.0),
    }
    truth = {name: float(draws[name]) for name in DEPTH_LAWS[law].parameter_names}
    noise = float(np.exp(rng.uniform(np.log(1e-3), np.log(5e-2))))
    loss = DEPTH_LAWS[law](depth, **truth) * np.exp(noise * rng.standard_normal(depth.size))
    return depth, loss, truth, noise


def study_table(law: str, index: int, *, brute: bool) -> dict[str, Any]:
    """Return what became of one table: the winner, the weights, which intervals hold, and the brute-force cost."""
    depth, loss, truth, noise = draw_table(law, index)
    row: dict[str, Any] = {"law": law, "index": index, "n": int(depth.size), "distinct": int(np.unique(depth).size)}
    row |= {"noise": noise, "error": None, "covered": {}}
    try:
        ranking = rank_laws(depth, loss, intervals="none", starts=16)
        fit = fit_depth_law(depth, loss, law=law, starts=32)
    except FitError as error:
        return row | {"error": str(error)}
    row["answered"] = fit.answered
    row["winner"] = ranking[0].law if ranking[0].answered else None
    row["winner_weight"] = ranking[0].weight
    row["true_weight"] = next(other.weight for other in ranking if other.law == law)
    if fit.answered:
        for name, estimate in fit.parameters.items():
            low, high = estimate.interval
            row["covered"][name] = [bool(low <= truth[name] <= high), estimate.status.split(":")[0]]
        row["cost"] = fit.objective
        if brute:
            starts = sobol_starts(fit.problem, BRUTE_STARTS, seed=index + 1)
            row["brute"] = float(minimise(fit.problem, starts, polish=False).costs.min())
    return row


def share(hits: list[bool]) -> str:
    """Return a share with its standard error."""
    if not hits:
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
        yield f"  first by AICc {share([row['winner'] == law for row in good])}"
        yield f"  its mean weight {np.mean([row['true_weight'] for row in good]):.3f}"
        searched = [row for row in good if "brute" in row]
        worse = [row["index"] for row in searched if row["brute"] < row["cost"] * (1 - LOWER)]
        yield f"  false optima {len(worse)} of {len(searched)} searched with {BRUTE_STARTS} starts {worse or ''}"
    # Where every law has an infinite AICc there is no weight to hold to its promise.
    decided = [row for row in rows if row.get("winner") and np.isfinite(row["winner_weight"] or np.nan)]
    if decided:
        right = [row["winner"] == row["law"] for row in decided]
        promised = np.mean([row["winner_weight"] for row in decided])
        yield f"all: the winner is the true law in {share(right)}; the winners' weights promise {promised:.3f}"
        for low, high in ((0, 0.5), (0.5, 0.8), (0.8, 0.99), (0.99, 1.01)):
            for few, rule in ((True, "n <= 12"), (False, "n > 12")):
                part = [r for r in decided if low <= r["winner_weight"] < high and (r["n"] <= 12) == few]
                hits = [r["winner"] == r["law"] for r in part]
                mean = np.mean([r["winner_weight"] for r in part]) if part else np.nan
                yield f"  weight {low:.2f}-{min(high, 1):.2f}, {rule}: promise {mean:.3f}, true in {share(hits)}"
        covered = [hit for row in rows for hit, _ in row["covered"].values()]
        yield f"all: intervals hold in {share(covered)}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=20, help="tables a law")
    parser.add_argument("--out", type=Path, default=None, help="JSON lines, one a table")
    options = parser.parse_args(arguments)
    rows = []
    if options.out is not None and options.out.exists():
        rows = [json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]
    done = {(row["law"], row["index"]) for row in rows}
    for index in range(options.tables):
        for law in DEPTH_LAWS:
            if (law, index) in done:
                continue
            row = study_table(law, index, brute=index % BRUTE_EVERY == 0)
            rows.append(row)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
