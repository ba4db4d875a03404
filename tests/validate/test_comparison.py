"""Comparison with published training curves, and of curves made to agree or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.tolerances import ROUNDOFF
from theory import Spectrum, Task, predict
from validate import compare_curve, read_curve
from validate.comparison import centred_mean

# What the comparison with the published curves promises, at every step and for the floor.
PUBLISHED_CURVE = 0.006
PUBLISHED_FLOOR = 0.003


@pytest.mark.shared
@pytest.mark.parametrize("depth", [1, 8])
def test_published_training_is_predicted_at_every_step(shared_data: Path, depth: int) -> None:
    curve = read_curve(shared_data / f"published_rrs_linear_L{depth}.csv")
    task = Task(Spectrum.power_law(45, 1.75, 0.5), "rrs", 512)
    result = compare_curve(curve, task, depth, learning_rate=3.0, first_step=1, last_step=2990)
    assert result.step.tolist() == list(range(1, 2991))
    assert np.abs(result.relative_deviation).max() <= PUBLISHED_CURVE
    if depth == 1:
        assert abs(result.prediction.floor["untied"].loss / result.tail_mean - 1) <= PUBLISHED_FLOOR


def test_a_curve_made_by_the_prediction_agrees_and_a_scaled_one_does_not() -> None:
    task = Task(Spectrum.power_law(6, 1.0, 0.5))
    exact = predict(task, 2, method="sgd", learning_rate=0.5, steps=range(50))
    curve = pd.DataFrame({"step": range(50), "loss": exact.loss})
    same = compare_curve(curve, task, 2, learning_rate=0.5, first_step=3, last_step=40)
    assert np.abs(same.relative_deviation).max() <= ROUNDOFF
    assert same.standard_errors is None
    scaled = compare_curve(curve.assign(loss=1.1 * exact.loss), task, 2, learning_rate=0.5)
    np.testing.assert_allclose(scaled.relative_deviation, 1 / 1.1 - 1, rtol=ROUNDOFF)


def test_deviation_in_standard_errors_uses_the_stated_ones() -> None:
    task = Task(Spectrum.power_law(6, 1.0, 0.5))
    exact = predict(task, 2, method="sgd", learning_rate=0.5, steps=range(20)).loss
    curve = pd.DataFrame({"step": range(20), "loss": exact - 0.02, "standard_error": 0.01})
    result = compare_curve(curve, task, 2, learning_rate=0.5, window=1)
    np.testing.assert_allclose(result.standard_errors, 2.0, rtol=ROUNDOFF)


@pytest.mark.parametrize(("size", "window"), [(1, 11), (4, 11), (30, 5), (7, 7)])
def test_centred_mean_is_the_brute_force_mean(rng: np.random.Generator, size: int, window: int) -> None:
    values = rng.normal(size=size)
    half = window // 2
    expected = [values[max(0, i - half) : i + half + 1].mean() for i in range(size)]
    np.testing.assert_allclose(centred_mean(values, window), expected, rtol=ROUNDOFF, atol=ROUNDOFF)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one row"),
        ("a,b\n1,2\n", "column='step': must be one of a, b"),
        ("step,loss\n", "at least one row"),
        ("step,loss\n0,1\n1,nan\n", "loss in line 3 is nan"),
        ("step,loss\n0,1\n1,oops\n", "line 3: 'oops'"),
        ("step,loss\n0,1\n0,1\n", "each step once"),
        ("step,loss\n0,1\n0.5,1\n", "step in line 3 is 0.5: must be a whole number"),
    ],
)
def test_a_bad_curve_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_curve(path)
