"""``inverse-depth predict``: the predicted training curve of the reduced linear model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from validate.cli import options

EXAMPLE = """
Predict the loss of the reduced linear model along training, with its floors and exponents.

Example: inverse-depth predict --setting rrs --dim 45 --capacity 1.75 --source 0.5 --context 512 --depth 8
--method sgd --learning-rate 3.0 --steps-at 0,1,10,100,1000,3000 --seed 0 --json
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def predict(
        setting: options.Setting = "rrs",
        dim: options.Dim = 45,
        capacity: options.Capacity = 1.75,
        source: options.Source = 0.5,
        context: options.Context = "inf",
        label_noise: options.LabelNoise = 0.0,
        depth: options.Depth = 8,
        method: Annotated[str, typer.Option(help="flow (gradient flow) or sgd (its recursion in steps).")] = "flow",
        learning_rate: Annotated[float, typer.Option(help="On every entry of Gamma_l; time = rate x steps.")] = 1.0,
        steps_at: Annotated[str | None, typer.Option(help="Steps for sgd: 0,1,10 or ranges 0:3001, 0:3001:10.")] = None,
        times: Annotated[str | None, typer.Option(help="Times for flow: 10,1e3,1e5.")] = None,
        samples: Annotated[int | None, typer.Option(help="Wishart draws at finite context (default: by dim).")] = None,
        seed: options.Seed = 0,
        as_json: options.AsJson = False,
        plot: Annotated[Path | None, typer.Option(help="Draw the curve to FILE.png, .pdf or .svg.")] = None,
    ) -> None:
        from theory.checks import choice
        from theory.prediction import METHODS
        from theory.prediction import predict as predict_curve
        from theory.results import save_figure

        choice("method", method, METHODS)
        if method == "sgd" and times is not None:
            raise ValueError(f"times={times!r}: must be left out with --method sgd, which takes --steps-at")
        if method == "flow" and steps_at is not None:
            raise ValueError(f"steps-at={steps_at!r}: must be left out with --method flow, which takes --times")
        task = options.build_task(setting, dim, capacity, source, context, label_noise)
        result = predict_curve(
            task,
            depth,
            method=method,
            times=options.read_times(times or DEFAULT_TIMES) if method == "flow" else None,
            steps=options.read_steps(steps_at or DEFAULT_STEPS) if method == "sgd" else None,
            learning_rate=learning_rate,
            samples=samples,
            seed=seed,
        )
        if plot is not None:
            save_figure(result.plot(), plot)
        typer.echo(result.to_json() if as_json else f"{result}\n{_table(result)}")


DEFAULT_TIMES = "1,10,100,1e3,1e4,1e5,1e6"
DEFAULT_STEPS = "0,1,10,100,1000"


def _table(result: object) -> str:
    """Return the curve as aligned text, gains left out: they are equal and shown once."""
    frame = result.to_frame()  # type: ignore[attr-defined]
    frame = frame.drop(columns=[name for name in frame.columns if name.startswith("gain_") and name != "gain_1"])
    return str(frame.rename(columns={"gain_1": "gain"}).to_string(index=False))
