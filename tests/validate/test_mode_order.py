"""The rank correlation of half-times and eigenvalues: against its definition pair by pair, and Kendall's tau."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from tests.tolerances import ROUNDOFF
from validate.mode_order import goodman_kruskal, order_of_modes


@pytest.mark.parametrize("levels", [3, 1000])
def test_gamma_counts_the_pairs_that_are_tied_in_neither(rng: np.random.Generator, levels: int) -> None:
    x, y = rng.integers(levels, size=(2, 12)).astype(float)
    y[y > 0.8 * levels] = np.inf
    products = [
        (a - b) * np.sign(c - d) for (a, c), (b, d) in itertools.combinations(zip(x, y, strict=True), 2) if c != d
    ]
    agree, oppose = sum(value > 0 for value in products), sum(value < 0 for value in products)
    assert goodman_kruskal(x, y) == pytest.approx((agree - oppose) / (agree + oppose), rel=ROUNDOFF)


def test_without_ties_it_is_kendalls_tau(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 20))
    assert goodman_kruskal(x, y) == pytest.approx(kendalltau(x, y).statistic, rel=ROUNDOFF)


@pytest.mark.parametrize(
    ("times", "gamma"),
    [
        ([1.0, 2.0, 3.0], -1.0),
        ([3.0, 2.0, 1.0], 1.0),
        ([1.0, 2.0, np.nan], -1.0),
        ([1.0, np.nan, np.nan], None),
        ([2.0, 2.0, 2.0], None),
    ],
)
def test_a_run_has_an_order_if_two_modes_are_half_learned_at_different_times(
    times: list[float], gamma: float | None
) -> None:
    place = {"attention": "linear", "spectrum": "s", "depth": 2, "seed": 0}
    table = pd.DataFrame({**place, "eigenvalue": [1.0, 0.5, 0.2], "half_time": times})
    assert order_of_modes(table, "linear") == ({} if gamma is None else {("s", 2, 0): gamma})
    assert order_of_modes(table, "softmax") == {}
    assert order_of_modes(table.assign(eigenvalue=1.0), "linear") == {}
