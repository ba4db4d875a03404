"""The report's figures draw from their tables, and their axes can be read."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from tests.validate.test_claims import half_times
from validate.cli import main
from validate.report.figures import FIGURES, draw_depth_laws, figure_named, new_canvas, plain_ticks

DEPTHS = [1, 2, 4, 8]


def tables() -> dict[str, pd.DataFrame]:
    depth_laws = pd.concat(
        [
            pd.DataFrame(
                {
                    "attention": attention,
                    "spectrum": "s",
                    "depth": DEPTHS,
                    "loss": 0.1 + scale / np.array(DEPTHS),
                    "standard_error": 0.01,
                    "converged": [True, True, True, False],
                    "fitted": np.nan,
                    "low": np.nan,
                    "high": np.nan,
                }
            )
            for attention, scale in (("linear", 0.5), ("softmax", 0.7))
        ]
    )
    steps = [0, 1, 10, 100]
    return {
        "curves": pd.DataFrame(
            {"depth": 1, "step": steps, "trained": [1, 0.8, 0.5, 0.3], "predicted": [1, 0.8, 0.5, 0.3]}
        ),
        "depth_laws": depth_laws,
        "linear_optimum": pd.DataFrame(
            {
                "source": 1.0,
                "depth": DEPTHS,
                "loss": 1 / np.array(DEPTHS),
                "standard_error": 0.01,
                "converged": True,
                "optimum": 1 / np.array(DEPTHS),
                "floor": 0.5 / np.array(DEPTHS),
            }
        ),
        "exponents": pd.DataFrame(
            {
                "attention": ["linear", "softmax"],
                "spectrum": "s",
                "exponent": [2.0, 1.0],
                "low": [1.5, 0.9],
                "high": [np.inf, 1.1],
                "settled": [False, True],
            }
        ),
        "mode_maps": pd.DataFrame(
            [
                {"attention": a, "spectrum": "s", "step": step, "mode": mode, "share": 1 / (1 + step / mode)}
                for a in ("linear", "softmax")
                for step in steps
                for mode in (1, 2, 3)
            ]
        ),
        "half_times": half_times(1, 0.5),
        "focus": pd.DataFrame(
            {"spectrum": "s", "depth": 2, "layer": [1, 2], "participation": [4.0, 3.0], "context": 8}
        ),
        "layers": pd.DataFrame({"spectrum": "s", "predicted": [0.2, 0.1], "observed": [0.21, 0.12]}),
    }


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES])
def test_every_figure_draws_from_its_stored_table_alone(tmp_path: Path, name: str) -> None:
    figure = figure_named(name)
    (tmp_path / "data").mkdir()
    tables()[figure.table].to_parquet(tmp_path / "data" / f"{figure.table}.parquet")
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
    canvas = draw_depth_laws(tables()["depth_laws"])
    faces = [line.get_markerfacecolor() for line in canvas.axes[0].get_lines() if line.get_marker() == "o"]
    assert "white" in faces


def test_unknown_figure_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["plot", "nothing", "--report", str(tmp_path)])
    assert stop.value.code == 2
    assert "figure='nothing': must be one of curves, depth-laws" in capsys.readouterr().err
