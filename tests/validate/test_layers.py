"""Layer statistics on errors drawn from a known covariance."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, sampling
from theory.ensembles import ar1_loss, ensemble_loss
from validate.layers import layer_errors, layer_statistics
from validate.tables import RunTable

LAYERS, SHARED, OWN, R = 10, 0.3, 1.2, 0.6


def draw(rng: np.random.Generator, examples: int, layers: int = LAYERS) -> np.ndarray:
    lag = np.abs(np.subtract.outer(np.arange(layers), np.arange(layers)))
    root = np.linalg.cholesky(SHARED + OWN * R**lag)
    return root @ rng.standard_normal((layers, examples))


def test_estimates_meet_the_known_covariance(rng: np.random.Generator) -> None:
    lag = np.abs(np.subtract.outer(np.arange(LAYERS), np.arange(LAYERS)))
    matrix = SHARED + OWN * R**lag
    off = (matrix.sum() - np.trace(matrix)) / (LAYERS * (LAYERS - 1))
    got = layer_statistics(draw(rng, 4000))
    for quantity, truth in (
        (got.plateau, off),
        (got.gain, SHARED + OWN - off),
        (got.loss, ensemble_loss(matrix)),
        (got.effective_layers, (SHARED + OWN) / ensemble_loss(matrix)),
        (got.neighbour_correlation, R),
        (got.correlation_length, -1 / np.log(R)),
        (got.shared, SHARED),
    ):
        assert abs(quantity.value - truth) < sampling(quantity.stderr)
        assert quantity.interval[0] < quantity.value < quantity.interval[1]


def test_the_covariance_is_unbiased(rng: np.random.Generator) -> None:
    """The mean over many small samples is the truth, within its own standard error."""
    plateaus = np.array([layer_statistics(draw(rng, 5, 4), resamples=20).plateau.value for _ in range(400)])
    lag = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    matrix = SHARED + OWN * R**lag
    truth = (matrix.sum() - np.trace(matrix)) / 12
    assert abs(plateaus.mean() - truth) < sampling(plateaus.std(ddof=1) / np.sqrt(plateaus.size))


def test_plateau_and_gain_give_the_loss(rng: np.random.Generator) -> None:
    got = layer_statistics(draw(rng, 50))
    assert got.loss.value == pytest.approx(got.plateau.value + got.gain.value / LAYERS, rel=ROUNDOFF)
    assert got.loss.value == pytest.approx(ensemble_loss(got.covariance), rel=ROUNDOFF)


def test_fewer_layers_are_the_mean_over_subsets_and_windows(rng: np.random.Generator) -> None:
    errors = draw(rng, 30, 5)
    got = layer_statistics(errors)
    from itertools import combinations

    subsets = [np.mean(np.mean(errors[list(chosen)], axis=0) ** 2) for chosen in combinations(range(5), 3)]
    assert got.predict(3).value == pytest.approx(np.mean(subsets), rel=ROUNDOFF)
    assert got.predict(5, order="consecutive").value == pytest.approx(got.loss.value, rel=ROUNDOFF)
    assert got.predict(1, order="consecutive").value == pytest.approx(np.trace(got.covariance) / 5, rel=ROUNDOFF)


def test_more_layers_are_predicted(rng: np.random.Generator) -> None:
    got = layer_statistics(draw(rng, 6000)).predict(40, order="consecutive")
    truth = float(ar1_loss(40, OWN, R, shared=SHARED))
    assert abs(got.value - truth) < sampling(got.stderr)


def test_intervals_hold_their_share(rng: np.random.Generator) -> None:
    lag = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    matrix = SHARED + OWN * R**lag
    truth = (matrix.sum() - np.trace(matrix)) / 12
    fits = [layer_statistics(draw(rng, 100, 4), resamples=20).plateau.interval for _ in range(400)]
    share = np.mean([low <= truth <= high for low, high in fits])
    assert abs(share - 0.95) < sampling(np.sqrt(0.95 * 0.05 / 400))


def test_groups_are_the_independent_units(rng: np.random.Generator) -> None:
    """Doubled examples add nothing once they are grouped."""
    errors = draw(rng, 60)
    once = layer_statistics(errors)
    twice = layer_statistics(np.repeat(errors, 2, axis=1), groups=np.repeat(np.arange(60), 2))
    assert twice.plateau.value == pytest.approx(once.plateau.value, rel=ROUNDOFF)
    assert twice.plateau.stderr == pytest.approx(once.plateau.stderr, rel=ROUNDOFF)


def test_long_tables_are_pivoted_and_gaps_are_named() -> None:
    table = RunTable({"layer": [2, 1, 1, 2], "id": ["a", "a", "b", "b"], "e": ["2", "1", "3", "4"]}, [2, 3, 4, 5], "f")
    np.testing.assert_array_equal(layer_errors(table, "layer", "id", "e"), [[1, 3], [2, 4]])
    with pytest.raises(ValueError, match="id=b is missing"):
        layer_errors(table.keep(np.array([1, 1, 1, 0], dtype=bool)), "layer", "id", "e")
    twice = RunTable({"layer": [1, 1], "id": ["a", "a"], "e": [1, 2]}, [2, 3], "f")
    with pytest.raises(ValueError, match="occurs twice: line 3"):
        layer_errors(twice, "layer", "id", "e")


def test_bad_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 x 2"):
        layer_statistics(np.ones((1, 5)))
    with pytest.raises(ValueError, match=r"errors\[1, 0\] is not finite"):
        layer_statistics([[1.0, 2.0], [np.nan, 1.0]])


def test_it_draws_itself(rng: np.random.Generator) -> None:
    got = layer_statistics(draw(rng, 40))
    axes = got.plot()
    assert axes.get_xlabel() == "distance between layers"
    assert len(got.to_frame()) == LAYERS
    assert got.to_dict()["plateau"]["ci95"][0] < got.to_dict()["plateau"]["value"]
