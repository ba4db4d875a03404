"""The report's figures draw from their tables, and their axes can be read."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from tests.validate.report.tables import report_tables
from validate.cli import main
from validate.report.depth_figures import draw_depth_laws
from validate.report.drawing import new_canvas, plain_ticks
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
