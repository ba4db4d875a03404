"""Recovery: tables drawn from each depth law, fitted and ranked; coverage, promises kept, false optima.

``python -m benchmarks.recovery --tables 500 --out recovery.jsonl`` appends a line a table and prints the shares with
their standard errors; a second run goes on where the file ends. ``--draws wide`` draws parameters from ranges far from
those that the probabilities assume.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recovery_report import summary
from theory.depth_laws import DEPTH_LAWS
from validate.fit import fit_depth_law, rank_laws
from validate.fit_engine import minimise
from validate.fit_result import FitError
from validate.fit_shapes import least_cost
from validate.fit_starts import sobol_starts

BRUTE_STARTS = 2048
# Every this many tables of a law are searched by 2,048 starts too; every table by the scan of all shapes.
BRUTE_EVERY = 10
# Ranges of the parameters: log-uniform, but uniform for the correlation and the second coefficient.
DRAWS = {
    "usual": {
        "plateau": (0.3, 3.0),
        "coefficient": (0.5, 4.0),
        "exponent": (0.3, 2.5),
        "decay_depth": (2.0, 30.0),
        "correlation": (0.3, 0.95),
        "second_coefficient": (-0.4, 2.0),
    },
    "wide": {
        "plateau": (0.03, 10.0),
        "coefficient": (0.1, 10.0),
        "exponent": (0.1, 4.0),
        "decay_depth": (1.0, 100.0),
        "correlation": (0.05, 0.97),
        "second_coefficient": (-0.09, 5.0),
    },
}
UNIFORM = ("correlation", "second_coefficient")


def draw_table(law: str, index: int, draws: str = "usual") -> tuple[np.ndarray, np.ndarray, dict[str, float], float]:
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
    drawn = {}
    for name, (low, high) in DRAWS[draws].items():
        drawn[name] = rng.uniform(low, high) if name in UNIFORM else np.exp(rng.uniform(np.log(low), np.log(high)))
    truth = {name: float(drawn[name]) for name in DEPTH_LAWS[law].parameter_names}
    noise = float(np.exp(rng.uniform(np.log(1e-3), np.log(5e-2))))
    loss = DEPTH_LAWS[law](depth, **truth) * np.exp(noise * rng.standard_normal(depth.size))
    return depth, loss, truth, noise


def study_table(law: str, index: int, *, draws: str = "usual", brute: bool = True) -> dict[str, Any]:
    """Return what became of one table: the winners, what they promise, which intervals hold, and two searches' costs.

    ``scan`` is the least cost over every shape of the law (`validate.fit_shapes.least_cost`), ``brute`` that of 2,048
    Sobol starts followed down.
    """
    depth, loss, truth, noise = draw_table(law, index, draws)
    row: dict[str, Any] = {"law": law, "index": index, "n": int(depth.size), "distinct": int(np.unique(depth).size)}
    row |= {"noise": noise, "error": None, "covered": {}}
    try:
        ranking = rank_laws(depth, loss, intervals="none", starts=16)
        fit = fit_depth_law(depth, loss, law=law, starts=32)
    except FitError as error:
        return row | {"error": str(error)}
    row["answered"] = fit.answered
    row["promises"] = {other.law: [other.weight, other.probability] for other in ranking if other.answered}
    if fit.answered:
        for name, estimate in fit.parameters.items():
            low, high = estimate.interval
            row["covered"][name] = [bool(low <= truth[name] <= high), estimate.status.split(":")[0]]
        row["cost"] = fit.objective
        row["scan"] = least_cost(fit.problem, fit.row_weights)[0]
        if brute:
            starts = sobol_starts(fit.problem, BRUTE_STARTS, seed=index + 1)
            row["brute"] = float(minimise(fit.problem, starts, polish=False).costs.min())
    return row


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=20, help="tables a law")
    parser.add_argument("--draws", choices=sorted(DRAWS), default="usual", help="ranges of the parameters drawn")
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
            brute = index % BRUTE_EVERY == 0
            row = study_table(law, index, draws=options.draws, brute=brute)
            rows.append(row)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
