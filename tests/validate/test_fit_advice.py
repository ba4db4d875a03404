"""Advice, exclusion paths and pictures of fits, against brute force on the fitted law."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.tolerances import ROUNDOFF_LONG, SAME_OPTIMUM
from theory.results import save_figure
from validate import (
    FitResult,
    best_shape,
    draw_gap,
    draw_profiles,
    exclusion_path,
    exhausted_depth,
    fit_depth_law,
    fit_joint_law,
    profile_curve,
)

POWERS = np.repeat(2.0 ** np.arange(6), 2)


@pytest.fixture
def power(rng: np.random.Generator) -> FitResult:
    return fit_depth_law(POWERS, (1.7 + 2 / POWERS) * np.exp(0.01 * rng.standard_normal(POWERS.size)))


@pytest.fixture
def joint(rng: np.random.Generator) -> FitResult:
    width = np.tile([256.0, 512, 1024, 2048], 8)
    depth = np.repeat([2.0, 4, 6, 8, 12, 16, 24, 32], 4)
    loss = (1.7 + 40 * width**-0.7 + 1.2 / depth) * np.exp(0.002 * rng.standard_normal(32))
    return fit_joint_law({"width": width, "depth": depth}, loss, intervals="asymptotic")


def test_the_exhausted_depth_is_where_the_gap_is_five_percent(power: FitResult) -> None:
    advice = exhausted_depth(power, within=0.05)
    plateau = power.parameters["plateau"].value
    assert float(power.loss_at(advice.value).squeeze()) == pytest.approx(1.05 * plateau, rel=ROUNDOFF_LONG)
    assert advice.interval[0] < advice.value < advice.interval[1]
    assert advice.never == 0


def test_the_best_shape_against_a_scan(joint: FitResult) -> None:
    shape = best_shape(joint, 1e8)
    assert 12 * shape.width**2 * shape.depth == pytest.approx(1e8, rel=ROUNDOFF_LONG)
    depths = shape.depth * np.exp(np.linspace(-1, 1, 2001))
    losses = joint.loss_at(depths, width=np.sqrt(1e8 / 12 / depths))
    assert shape.loss <= losses.min() * (1 + ROUNDOFF_LONG)
    assert depths[np.argmin(losses)] == pytest.approx(shape.depth, rel=0.002 + SAME_OPTIMUM)
    assert shape.depth_interval[0] < shape.depth < shape.depth_interval[1]
    assert "data" in shape.reason
    assert "outside the data" in best_shape(joint, 1e15).reason


def test_advice_needs_the_right_law(power: FitResult) -> None:
    with pytest.raises(ValueError, match="width and depth"):
        best_shape(power, 1e8)
    with pytest.raises(ValueError, match="plateau"):
        exhausted_depth(fit_depth_law(POWERS, 2 / POWERS**0.5, law="spectral"))
    with pytest.raises(ValueError, match="within"):
        exhausted_depth(power, within=0)


def test_predictions_need_every_variable(joint: FitResult) -> None:
    with pytest.raises(ValueError, match="must be width, depth"):
        joint.predict(8)
    with pytest.raises(ValueError, match="positive"):
        joint.predict(8, width=-1)
    band = joint.predict([8, 64], width=1024)
    assert np.all((band.low < band.loss) & (band.loss < band.high))
    assert list(band.to_frame().columns) == ["width", "depth", "loss", "low", "high"]


def test_the_exclusion_path_is_a_refit_of_the_rows_kept(joint: FitResult) -> None:
    path = exclusion_path(joint, 5)
    assert path.left_out.tolist() == [0, 1, 2, 3, 4, 5]
    kept = np.argsort(joint.problem.loss_values)[:-3]
    columns = {name: column[kept] for name, column in joint.problem.columns.items()}
    refit = fit_joint_law(columns, joint.problem.loss_values[kept], intervals="asymptotic")
    for place, name in enumerate(path.names):
        assert path.values[3, place] == pytest.approx(refit.parameters[name].value, rel=SAME_OPTIMUM)
        assert path.stderrs[3, place] == pytest.approx(refit.parameters[name].stderr, rel=100 * SAME_OPTIMUM)
    assert path.largest_kept[3] == joint.problem.loss_values[kept].max()
    assert len(path.to_frame()) == 6
    with pytest.raises(ValueError, match="most"):
        exclusion_path(joint, 30)


def test_a_profile_rises_to_the_level_at_the_interval(power: FitResult) -> None:
    values, rise = profile_curve(power, "exponent")
    low, high = power.parameters["exponent"].interval
    level = power.noise.quantile(0.95)
    # The curve has 25 points: between them it is read off linearly.
    np.testing.assert_allclose(np.interp([low, high], values, rise), level, rtol=0.02 + SAME_OPTIMUM)


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_pictures_are_written_and_legible(power: FitResult, joint: FitResult, tmp_path: Path, suffix: str) -> None:
    drawings = [power.plot, lambda: draw_gap(power), lambda: draw_profiles(power, ("exponent",))]
    if suffix == ".png":
        drawings.append(joint.plot)
    for number, axes in enumerate(draw() for draw in drawings):
        save_figure(axes, tmp_path / f"{number}{suffix}")
        figure = axes.get_figure()
        assert figure is not None
        assert figure.get_figwidth() <= 3.5
        labels = [text.get_text() for text in axes.get_xticklabels() + axes.get_yticklabels()]
        assert any(labels)
        for line in axes.get_lines():
            assert to_hex(line.get_color()).upper() in {"#000000", "#0072B2", "#D55E00"}


def test_depth_ticks_are_the_depths_in_plain_decimals(power: FitResult) -> None:
    axes = power.plot()
    figure = axes.get_figure()
    assert figure is not None
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[-1].get_xticklabels()] == ["1", "2", "4", "8", "16", "32"]


def test_the_gap_is_drawn_only_where_it_means_something(power: FitResult, joint: FitResult) -> None:
    axes = draw_gap(power)
    drawn = axes.containers[0][0].get_ydata()
    half = 0.5 * np.diff(power.parameters["plateau"].interval)[0]
    assert np.all(np.asarray(drawn) > 2 * half)
    with pytest.raises(ValueError, match="law of depth"):
        draw_gap(joint)


def test_an_unanswered_fit_draws_its_data() -> None:
    axes = fit_depth_law([1.0, 2, 4, 8], [1.0, 2, 3, 4]).plot()
    assert len(axes.containers) == 1


def test_results_convert(power: FitResult) -> None:
    answer = power.to_dict()
    assert set(answer["parameters"]["plateau"]) == {"value", "stderr", "ci95", "status"}
    assert isinstance(power.to_frame(), pd.DataFrame)
    assert "plateau" in str(power)
    assert power.to_json().startswith('{"law": "power"')
