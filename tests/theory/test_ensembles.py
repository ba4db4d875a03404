"""Central-limit forms against explicit covariance matrices and exact expectations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, model_error
from theory.ensembles import (
    ar1_loss,
    best_weights,
    effective_layers,
    ensemble_loss,
    exchangeable_loss,
    readout_expansion,
    readout_law,
    softmax_curvature,
    stationary_loss,
)


def toeplitz(size: int, r: float) -> np.ndarray:
    return r ** np.abs(np.subtract.outer(np.arange(size), np.arange(size)))


@pytest.mark.parametrize("depth", [1, 2, 7, 40])
@pytest.mark.parametrize("r", [0.0, 0.3, 0.9, 0.989])
def test_ar1_is_the_sum_over_the_matrix(depth: int, r: float) -> None:
    matrix = 1.7 * toeplitz(depth, r) + 0.2
    assert ar1_loss(depth, 1.7, r, shared=0.2) == pytest.approx(ensemble_loss(matrix), rel=ROUNDOFF_LONG)
    rho = r ** np.arange(1, depth)
    assert stationary_loss(depth, 1.7, rho) + 0.2 == pytest.approx(ensemble_loss(matrix), rel=ROUNDOFF)


def test_exchangeable_is_the_sum_over_the_matrix() -> None:
    for depth in (1, 3, 12):
        matrix = 2.0 * (0.7 * np.eye(depth) + 0.3)
        assert exchangeable_loss(depth, 2.0, 0.3) == pytest.approx(ensemble_loss(matrix), rel=ROUNDOFF)


def test_limits() -> None:
    assert ar1_loss(9, 1.0, 1.0) == 1.0
    assert effective_layers(np.eye(6)) == pytest.approx(6.0, rel=ROUNDOFF)
    assert effective_layers(np.ones((6, 6))) == pytest.approx(1.0, rel=ROUNDOFF)
    # L loss tends to the integrated correlation time (1+r)/(1-r), with a correction of order 1/L.
    assert 4000 * float(ar1_loss(4000, 1.0, 0.5)) == pytest.approx(3.0, abs=model_error(4000, 1, constant=5))


def test_best_weights_against_random_ones(rng: np.random.Generator) -> None:
    factor = rng.standard_normal((6, 6))
    matrix = factor @ factor.T + 0.1 * np.eye(6)
    weights = best_weights(matrix)
    least = ensemble_loss(matrix, weights)
    assert least == pytest.approx(1.0 / np.linalg.inv(matrix).sum(), rel=ROUNDOFF_LONG)
    for _ in range(200):
        other = weights + 0.3 * rng.standard_normal(6)
        assert ensemble_loss(matrix, other / other.sum()) >= least


def test_softmax_curvature_is_the_second_difference_of_the_loss(rng: np.random.Generator) -> None:
    logits = rng.standard_normal(4)
    target = 2

    def loss(z: np.ndarray) -> float:
        return float(np.log(np.exp(z).sum()) - z[target])

    step = 1e-4
    eye = step * np.eye(4)
    numeric = np.array(
        [
            [
                (loss(logits + a + b) - loss(logits + a - b) - loss(logits - a + b) + loss(logits - a - b)) / 4
                for b in eye
            ]
            for a in eye
        ]
    )
    p = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(softmax_curvature(p), numeric / step**2, atol=model_error(1 / step, 1, constant=0.1))


def test_readout_law_of_a_quadratic_loss_is_exact() -> None:
    h, s, v = np.diag([2.0, 1.0]), np.array([[0.3, 0.1], [0.1, 0.2]]), np.eye(2)
    plateau, coefficient = readout_law(h, s, v, floor=0.5)
    assert plateau == pytest.approx(0.5 + 0.5 * (2 * 0.3 + 0.2), rel=ROUNDOFF)
    assert coefficient == pytest.approx(1.5, rel=ROUNDOFF)


def test_readout_expansion_against_an_exact_expectation() -> None:
    """loss = exp(e), layers with centred exponential errors: E exp(mean) = (e^(-s/L) / (1 - s/L))^L."""
    size = 0.5
    first, second = readout_expansion(1.0, 1.0, 1.0, size**2, 2 * size**3)
    for depth in (50, 200):
        exact = np.exp(depth * (-size / depth - np.log1p(-size / depth))) - 1.0
        left = exact - first / depth - second / depth**2
        assert abs(left) < model_error(depth, 3, constant=0.1)
        assert abs(left) > model_error(depth, 4, constant=0.01)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ensemble_loss(np.ones((2, 3))), "square"),
        (lambda: ensemble_loss([[1, 2], [0, 1]]), "symmetric"),
        (lambda: ensemble_loss(np.eye(2), [1.0]), "one a layer"),
        (lambda: best_weights(np.ones((2, 2))), "positive definite"),
        (lambda: exchangeable_loss(3, 1.0, 1.5), "correlation=1.5"),
        (lambda: stationary_loss(4, 1.0, [0.5]), "at least depth - 1"),
        (lambda: softmax_curvature([0.5, 0.6]), "sum to 1.1"),
        (lambda: effective_layers([[1.0, -1.0], [-1.0, 1.0]]), "must be positive"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
