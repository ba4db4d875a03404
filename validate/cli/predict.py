"""``inverse-depth predict``: the predicted training curve of the reduced linear model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from validate.cli import options

if TYPE_CHECKING:
    from theory.prediction import Prediction

EXAMPLE = """
Predict the loss of the reduced linear model along training, with its floors and exponents.

Every setting and context; tied or untied layers; label noise; a width bottleneck; starts from zero or small factors.

Example: inverse-depth predict --setting rrs --dim 45 --capacity 1.75 --source 0.5 --context 512 --depth 8
--method sgd --learning-rate 3.0 --steps-at 0,1,10,100,1000,3000 --seed 0 --json

Example: inverse-depth predict --depth 4 --untied --break-size 1e-3 --times 1e3,1e5,1e7 --half-times
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def predict(
        setting: options.Setting = "rrs",
        dim: options.LargeDim = "45",
        capacity: options.Capacity = 1.75,
        source: options.Source = 0.5,
        context: options.Context = "inf",
        label_noise: options.LabelNoise = 0.0,
        spectrum: options.SpectrumPath = None,
        labels: options.Labels = None,
        depth: options.Depth = 8,
        method: Annotated[str, typer.Option(help="flow (gradient flow) or sgd (its recursion in steps).")] = "flow",
        learning_rate: Annotated[float, typer.Option(help="On every entry of Gamma_l; time = rate x steps.")] = 1.0,
        steps_at: Annotated[str | None, typer.Option(help="Steps for sgd: 0,1,10 or ranges 0:3001, 0:3001:10.")] = None,
        times: Annotated[str | None, typer.Option(help="Times for flow: 10,1e3,1e5.")] = None,
        samples: Annotated[int | None, typer.Option(help="Wishart draws at finite context (default: by dim).")] = None,
        untied: Annotated[bool, typer.Option("--untied/--tied", help="Let the layers differ.")] = False,
        break_size: Annotated[
            float, typer.Option(help="Largest difference of a layer from the mean at the start, with --untied.")
        ] = 1e-3,
        width: Annotated[int | None, typer.Option(help="N <= dim, covariate directions the stream holds.")] = None,
        deterministic: Annotated[
            bool, typer.Option("--deterministic", help="The large-size limit instead of Wishart draws.")
        ] = False,
        start: Annotated[
            str, typer.Option(help="zero, or a product of small factors: merged key-query, or separate heads.")
        ] = "zero",
        start_size: Annotated[float, typer.Option(help="Size of the small factors.")] = 1e-3,
        batch: Annotated[
            int | None, typer.Option(help="Contexts a step: add the first correction of batch noise, with sgd.")
        ] = None,
        half_times: Annotated[bool, typer.Option("--half-times", help="Add when each mode is half learned.")] = False,
        seed: options.Seed = 0,
        as_json: options.AsJson = False,
        plot: Annotated[Path | None, typer.Option(help="Draw the curve to FILE.png, .pdf or .svg.")] = None,
    ) -> None:
        from theory.checks import choice
        from theory.prediction import METHODS
        from theory.prediction import predict as predict_curve
        from theory.results import save_figure
        from theory.task import LARGEST_DIM

        choice("method", method, METHODS)
        if method == "sgd" and times is not None:
            raise ValueError(f"times={times!r}: must be left out with --method sgd, which takes --steps-at")
        if method == "flow" and steps_at is not None:
            raise ValueError(f"steps-at={steps_at!r}: must be left out with --method flow, which takes --times")
        size = options.read_dim(dim)
        held = int(min(size, LARGEST_DIM))
        task = options.build_task(setting, held, capacity, source, context, label_noise, spectrum, labels)
        if size > held and spectrum is None:
            task = options.large_task(task, size, depth)
        result = predict_curve(
            task,
            depth,
            method=method,
            times=options.read_times(times or DEFAULT_TIMES) if method == "flow" else None,
            steps=options.read_steps(steps_at or DEFAULT_STEPS) if method == "sgd" else None,
            learning_rate=learning_rate,
            samples=samples,
            seed=seed,
            width=width,
            deterministic=deterministic,
            untied=untied,
            break_size=break_size if untied else 0.0,
            start=start,
            start_size=start_size,
            half_times=half_times,
            batch=batch,
        )
        if plot is not None:
            save_figure(result.plot(), plot)
        typer.echo(result.to_json() if as_json else "\n".join([str(result), _table(result, untied), *_notes(result)]))


DEFAULT_TIMES = "1,10,100,1e3,1e4,1e5,1e6"
DEFAULT_STEPS = "0,1,10,100,1000"
# Entries of a list that fit on a line of the table.
SHOWN = 8


def _table(result: Prediction, untied: bool) -> str:
    """Return the curve as aligned text; equal gains are shown once."""
    frame = result.to_frame()
    if not untied:
        frame = frame.drop(columns=[f"gain_{layer}" for layer in range(2, result.depth + 1)])
        frame = frame.rename(columns={"gain_1": "gain" if result.gains.ndim == 2 else "gain of mode 1"})
    return str(frame.to_string(index=False))


def _notes(result: Prediction) -> list[str]:
    """Return what else was found, one line each, long lists cut."""
    from theory.results import plain

    lines = []
    for name, value in result.notes.items():
        shown = plain(value)
        if isinstance(shown, dict):
            text = ", ".join(f"{key} {_short(item)}" for key, item in shown.items())
        else:
            text = _short(shown)
        lines.append(f"{name.replace('_', ' ')}: {text}")
    return lines


def _short(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_short(item) for item in value[:SHOWN]) + (" …" if len(value) > SHOWN else "")
    return f"{value:.6g}" if isinstance(value, float) else "never" if value is None else str(value)
