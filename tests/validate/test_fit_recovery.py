"""Recovery on synthetic tables of every law: coverage, calibration of the AICc weights, no false optimum."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.recovery import draw_table, study_table
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
    # On fewer rows AICc weights promise too much, and `rank_laws` says so.
    decided = [row for row in rows if row["winner"] and row["n"] > FEW_ROWS]
    right = np.array([row["winner"] == row["law"] for row in decided], dtype=float)
    promised = np.array([row["winner_weight"] for row in decided])
    error = np.std(right - promised) / np.sqrt(len(decided))
    assert abs(np.mean(right - promised)) < sampling(error)
    searched = [row for row in answered if "brute" in row]
    assert len(searched) >= 20
    for row in searched:
        assert row["brute"] >= row["cost"] * (1 - 1e-6), row


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
