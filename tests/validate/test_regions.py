"""Maps of regions: the exponent that no plateau can bend, its error, and how seeds are gathered."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tolerances import ROUNDOFF, SAMPLING_Z
from validate.regions import plateau_free_exponent, region_exponents, region_table
from validate.report.region_figures import deepest_triples

ALPHA = st.floats(0.2, 3.0)


@given(alpha=ALPHA, plateau=st.floats(0.0, 2.0), coefficient=st.floats(0.1, 10.0), ratio=st.floats(1.5, 4.0))
def test_a_power_law_gives_its_exponent_whatever_the_plateau(
    alpha: float, plateau: float, coefficient: float, ratio: float
) -> None:
    loss = plateau + coefficient * np.array([1.0, ratio, ratio**2]) ** -alpha
    found, error = plateau_free_exponent(loss, np.zeros(3), ratio=ratio)
    assert found == pytest.approx(alpha, rel=ROUNDOFF, abs=ROUNDOFF)
    assert error == 0


def test_an_exponential_law_has_an_exponent_that_grows_with_depth() -> None:
    depths = np.array([1.0, 2, 4, 8])
    loss = 0.1 + np.exp(-depths / 3)
    early, _ = plateau_free_exponent(loss[:3], np.zeros(3))
    late, _ = plateau_free_exponent(loss[1:], np.zeros(3))
    assert early == pytest.approx(np.log2((loss[0] - loss[1]) / (loss[1] - loss[2])), rel=ROUNDOFF)
    assert late > early + 0.5


def test_the_standard_error_is_the_scatter(rng: np.random.Generator) -> None:
    """Against the standard deviation over 4,000 draws of noisy losses."""
    loss, error = np.array([0.6, 0.35, 0.225]), np.array([2e-3, 1e-3, 1e-3])
    draws = loss + error * rng.standard_normal((4000, 3))
    found = np.array([plateau_free_exponent(draw, error)[0] for draw in draws])
    claimed = plateau_free_exponent(loss, error)[1]
    assert abs(found.std(ddof=1) / claimed - 1) < SAMPLING_Z / np.sqrt(2 * 4000)


@pytest.mark.parametrize("loss", [[0.3, 0.4, 0.2], [0.4, 0.3, 0.3], [0.1, 0.2, 0.3]])
def test_a_loss_that_does_not_fall_has_no_exponent(loss: list[float]) -> None:
    assert np.isnan(plateau_free_exponent(np.array(loss), np.ones(3))).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [0.0, 0.0, 0.0], 2.0), "loss=.*three numbers"),
        (([1.0, 0.5, 0.2], [0.0], 2.0), "standard_error=.*three numbers"),
        (([1.0, 0.5, 0.2], [0.0, -1.0, 0.0], 2.0), "standard_error=.*>= 0"),
        (([1.0, 0.5, 0.2], [0.0, 0.0, 0.0], 1.0), "ratio=1.0"),
        (([1.0, np.nan, 0.2], [0.0, 0.0, 0.0], 2.0), "loss"),
    ],
)
def test_bad_input_is_named(arguments: tuple[list[float], list[float], float], message: str) -> None:
    loss, error, ratio = arguments
    with pytest.raises(ValueError, match=message):
        plateau_free_exponent(np.array(loss), np.array(error), ratio=ratio)


def runs(**changes: object) -> pd.DataFrame:
    """Two seeds at L = 1, 2, 4 of loss 0.1 + 0.4 / L, the seeds 0.02 / L apart about it."""
    rows = [
        {
            "experiment": "map-context",
            "model": "reduced",
            "attention": "softmax",
            "spectrum": "s",
            "dim": 8,
            "context": 16,
            "label_noise": 0.0,
            "gain": None,
            "depth": depth,
            "seed": seed,
            "final_loss": 0.1 + (0.4 + 0.02 * (seed - 0.5)) / depth,
            "standard_error": 1e-4,
            "converged": True,
        }
        for depth in (1, 2, 4)
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows).assign(**changes)


def test_seeds_are_averaged_and_their_scatter_is_the_error() -> None:
    table = region_table(runs())
    assert table["depth"].tolist() == [1, 2, 4]
    assert table["seeds"].tolist() == [2, 2, 2]
    assert table["loss"].to_numpy() == pytest.approx(0.1 + 0.4 / np.array([1, 2, 4]), rel=ROUNDOFF)
    # Two values d apart: standard deviation d / sqrt(2), of their mean d / 2.
    assert table["standard_error"].to_numpy() == pytest.approx(0.01 / np.array([1, 2, 4]), rel=ROUNDOFF)
    (row,) = region_exponents(table).to_dict("records")
    assert (row["variant"], row["depth"], row["converged"]) == ("P = 16", 1, True)
    assert row["exponent"] == pytest.approx(1.0, rel=ROUNDOFF)


def test_one_unconverged_or_diverged_seed_shows() -> None:
    table = runs()
    table.loc[0, "converged"] = False
    table.loc[3, "final_loss"] = np.nan
    found = region_table(table)
    assert found["converged"].tolist() == [False, True, True]
    assert found["seeds"].tolist() == [2, 1, 2]
    assert not region_exponents(found)["converged"].any()


@pytest.mark.parametrize(
    ("experiment", "variant"),
    [
        ("map-noise", "σ² = 0.5"),
        ("map-kernel", "softmax"),
        ("map-gain", "b = 4"),
        ("map-architecture", "transformer + MLP softmax"),
        ("map-data", "gaussian"),
    ],
)
def test_each_map_names_its_places(experiment: str, variant: str) -> None:
    table = region_table(runs(experiment=experiment, label_noise=0.5, gain=4.0, model="transformer + MLP"))
    assert table["variant"].unique().tolist() == [variant]


LAWS = {"gaussian": "gaussian", "signs": "signs", "sphere": "sphere", "clusters": "clusters (4, s = 0.25)"}


def law_runs(experiment: str = "map-data") -> pd.DataFrame:
    """Both attentions on each law of the covariates; clusters are coarse or fine."""
    clustered = {"covariates": "clusters", "clusters": 4.0}
    laws = [{"covariates": name} for name in ("gaussian", "signs", "sphere")]
    laws += [{**clustered, "spread": 0.25}, {**clustered, "spread": 1.0}]
    parts = [
        runs(experiment=experiment, attention=attention, **law) for attention in ("linear", "softmax") for law in laws
    ]
    return pd.concat(parts, ignore_index=True)


def test_the_map_over_data_has_a_place_for_each_law_and_attention() -> None:
    table = region_exponents(region_table(law_runs()))
    places = table[["attention", "variant"]].to_numpy().tolist()
    variants = [*LAWS.values(), "clusters (4, s = 1)"]
    assert places == [[attention, variant] for attention in ("linear", "softmax") for variant in variants]
    assert table["exponent"].to_numpy() == pytest.approx(1.0, rel=ROUNDOFF)


def test_laws_on_another_map_are_not_averaged() -> None:
    table = region_table(law_runs("map-context"))
    assert table["seeds"].tolist() == [2] * len(table)
    assert set(table["variant"]) == {
        *("P = 16", "P = 16, signs", "P = 16, sphere", "P = 16, clusters (4, s = 0.25)"),
        "P = 16, clusters (4, s = 1)",
    }


@pytest.mark.parametrize(("open_at", "chosen"), [(None, 2), (8, 1), (4, 2), (1, 2)])
def test_of_four_depths_the_deepest_three_that_converged_are_taken(open_at: int | None, chosen: int) -> None:
    """Losses 1 / L and, from L = 4 on, steeper: the exponents of the two triples differ. With L = 4 open, none is."""
    four = pd.concat([runs(), runs()[lambda table: table["depth"] == 4].assign(depth=8)], ignore_index=True)
    four["final_loss"] = four["depth"].map({1: 1.0, 2: 0.5, 4: 0.25, 8: 0.2})
    four["converged"] = four["depth"] != open_at
    exponents = region_exponents(region_table(four.sample(frac=1, random_state=0)))
    (row,) = deepest_triples(exponents).to_dict("records")
    assert (row["depth"], row["converged"]) == (chosen, open_at in (None, 8, 1))
    assert row["exponent"] == pytest.approx({1: 1.0, 2: np.log2(0.25 / 0.05)}[chosen], rel=ROUNDOFF)


def test_other_experiments_and_no_runs_are_no_map() -> None:
    assert region_table(runs(experiment="depth-softmax")).empty
    assert region_table(pd.DataFrame()).empty
    assert region_exponents(region_table(pd.DataFrame())).empty


def test_without_three_depths_in_doubling_order_there_is_no_exponent() -> None:
    table = runs()
    assert region_exponents(region_table(table[table["depth"] < 4])).empty
