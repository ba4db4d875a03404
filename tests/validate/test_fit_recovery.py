"""Recovery on synthetic tables of every law: coverage, promises of the ranking kept, no false optimum."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.recovery import draw_table, study_table
from benchmarks.recovery_report import LOWER, summary
from tests.tolerances import sampling
from theory.depth_laws import DEPTH_LAWS
from validate.fit import FEW_ROWS

TABLES = 30


@pytest.mark.slow
def test_laws_are_recovered() -> None:
    """All laws together, so that the standard errors are small; the tables' shares are binomial."""
    rows = [study_table(law, 10_000 + index, brute=index < 4) for law in DEPTH_LAWS for index in range(TABLES)]
    assert not [row["error"] for row in rows if row["error"]]
    answered = [row for row in rows if row["answered"]]
    assert len(answered) > 0.9 * len(rows)
    held = [np.mean([hit for hit, _ in row["covered"].values()]) for row in answered]
    # Intervals of one table move together: the table is the unit.
    assert abs(np.mean(held) - 0.95) < sampling(np.std(held) / np.sqrt(len(held)))
    # Probabilities keep their promise on any number of rows, AICc weights on more than a dozen.
    for place, fewest in ((1, 0), (0, FEW_ROWS)):
        right, promised = [], []
        for row in rows:
            values = {law: given[place] for law, given in row["promises"].items()}
            if row["law"] not in values or row["n"] <= fewest or not np.isfinite(max(values.values())):
                continue
            first = max(values, key=lambda law: values[law])
            right.append(first == row["law"])
            promised.append(values[first])
        assert len(right) > 100
        off = np.array(right, dtype=float) - np.array(promised)
        assert abs(off.mean()) < sampling(off.std() / np.sqrt(off.size))
    searched = [row for row in answered if "brute" in row]
    assert len(searched) >= 20
    for row in answered:
        assert row["scan"] >= row["cost"] * (1 - LOWER), row
    for row in searched:
        assert row["brute"] >= row["cost"] * (1 - LOWER), row


def test_a_report_counts_promises_and_false_optima() -> None:
    """Two tables by hand: one law found, one missed with a lower optimum."""
    common = {"law": "power", "n": 9, "error": None, "answered": True, "cost": 1.0}
    covered = {name: [True, "ok"] for name in DEPTH_LAWS["power"].parameter_names}
    missed = {**covered, "exponent": [False, "at bound"]}
    rows = [
        {**common, "index": 0, "covered": covered, "scan": 1.0, "promises": {"power": [0.9, 0.7], "ar1": [0.1, 0.3]}},
        {**common, "index": 1, "covered": missed, "scan": 0.9, "promises": {"power": [0.6, 0.2], "ar1": [0.4, 0.8]}},
    ]
    text = "\n".join(summary(rows))
    assert "exponent covered 0.500 ± 0.354 (n=2)" in text
    assert "1 of 2 have a lower optimum by scan [1]" in text
    assert "at bound: 0.000 ± 0.000 (n=1)" in text
    assert "AICc weight: the first is true in 1.000 ± 0.000 (n=2), promised 0.750" in text
    assert "probability: the first is true in 0.500 ± 0.354 (n=2), promised 0.750" in text


def test_tables_are_ragged_and_repeatable() -> None:
    sizes = set()
    for law in DEPTH_LAWS:
        depth, loss, truth, noise = draw_table(law, 3)
        again = draw_table(law, 3)
        np.testing.assert_array_equal(depth, again[0])
        np.testing.assert_array_equal(loss, again[1])
        residual = np.log(loss / DEPTH_LAWS[law](depth, **truth))
        assert np.abs(residual).max() < 6 * noise
        sizes.add(depth.size)
    assert len(sizes) > 3
