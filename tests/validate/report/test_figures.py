"""The report's figures draw from their tables, and their axes can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from tests.validate.report.tables import report_tables
from validate.cli import main
from validate.report.depth_figures import draw_depth_laws
from validate.report.drawing import apart, columns_for, few_whole, new_canvas, plain_ticks
from validate.report.figures import FIGURES, figure_named


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES])
def test_every_figure_draws_from_its_stored_table_alone(tmp_path: Path, name: str) -> None:
    figure = figure_named(name)
    (tmp_path / "data").mkdir()
    for table in figure.tables:
        report_tables()[table].to_parquet(tmp_path / "data" / f"{table}.parquet")
    out = tmp_path / "figure.png"
    with pytest.raises(SystemExit) as stop:
        main(["plot", name, "--report", str(tmp_path), "--out", str(out)])
    assert stop.value.code == 0
    height, width, _ = matplotlib.image.imread(out).shape
    assert width > 400
    assert height > 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.drop(columns="half_time"), "must have a column 'half_time'"),
        (lambda table: table.assign(eigenvalue=1.0), "no spectrum has modes that differ"),
    ],
)
def test_a_table_that_cannot_be_drawn_is_one_line(
    change: Callable[[pd.DataFrame], pd.DataFrame], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    change(report_tables()["half_times"]).to_parquet(tmp_path / "data" / "half_times.parquet")
    with pytest.raises(SystemExit) as stop:
        main(["plot", "half-times", "--report", str(tmp_path)])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_ticks_of_depths_keep_their_distance() -> None:
    depths = [1.0, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    kept = apart(depths)
    assert (kept[0], kept[-1]) == (1.0, 64.0)
    assert np.diff(np.log(kept)).min() >= 0.07 * np.log(64)
    assert apart([4.0]) == [4.0]
    assert [few_whole(count) for count in (1, 4, 8, 16)] == [[1], [1, 2, 3, 4], [1, 3, 5, 7], [1, 5, 9, 13]]
    assert [columns_for(count) for count in (1, 2, 3, 4, 5, 6, 7)] == [1, 2, 3, 2, 3, 3, 3]


def test_loss_axis_between_neighbouring_values_has_plain_labels() -> None:
    canvas = new_canvas(5, 4)
    axes = canvas.add_subplot()
    depths = np.array([1, 2, 3, 6])
    axes.plot(depths, [2.61, 2.55, 2.5, 2.47])
    axes.set(xscale="log", yscale="log")
    plain_ticks(axes, depths=depths)
    canvas.draw_without_rendering()
    labels = [label.get_text() for label in axes.get_yticklabels() if label.get_text()]
    assert len(labels) >= 3
    assert all("e" not in label and "10^" not in label for label in labels)
    low, high = axes.get_ylim()
    assert all(low <= float(label) <= high for label in labels)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "6"]


def test_unconverged_runs_are_hollow() -> None:
    canvas = draw_depth_laws(report_tables()["depth_laws"])
    faces = [line.get_markerfacecolor() for line in canvas.axes[0].get_lines() if line.get_marker() == "o"]
    assert "white" in faces


def test_unknown_figure_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["plot", "nothing", "--report", str(tmp_path)])
    assert stop.value.code == 2
    assert "figure='nothing': must be one of depth-laws, exponents" in capsys.readouterr().err
