"""``inverse-depth compare``: a training curve from a file against its prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from validate.cli import options

EXAMPLE = """
Hold a file with the columns step,loss (the loss before each step) against the prediction for its setting.

Example: inverse-depth compare --curve curve.csv --setting rrs --dim 45 --capacity 1.75 --source 0.5 --context 512
--depth 1 --method sgd --learning-rate 3.0 --first-step 1 --last-step 2990 --tolerance 0.006
"""

EXIT_DISAGREES = 1


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def compare(
        curve: Annotated[Path, typer.Option(help="CSV (or a run's metrics.parquet) with columns step and loss.")],
        setting: options.Setting = "rrs",
        dim: options.Dim = 45,
        capacity: options.Capacity = 1.75,
        source: options.Source = 0.5,
        context: options.Context = "inf",
        label_noise: options.LabelNoise = 0.0,
        spectrum: options.SpectrumPath = None,
        labels: options.Labels = None,
        depth: options.Depth = 1,
        method: Annotated[str, typer.Option(help="sgd (its recursion in steps) or flow.")] = "sgd",
        learning_rate: Annotated[float, typer.Option(help="On every entry of Gamma_l.")] = 1.0,
        window: Annotated[int, typer.Option(help="Odd: both curves are averaged over this many steps.")] = 11,
        first_step: Annotated[int, typer.Option(help="First step that is judged.")] = 0,
        last_step: Annotated[int | None, typer.Option(help="Last step that is judged (default: all).")] = None,
        tolerance: Annotated[
            float | None, typer.Option(help="Exit with status 1 if a relative deviation exceeds this.")
        ] = None,
        samples: Annotated[int | None, typer.Option(help="Wishart draws at finite context.")] = None,
        seed: options.Seed = 0,
        as_json: options.AsJson = False,
        plot: Annotated[Path | None, typer.Option(help="Draw both curves to FILE.png, .pdf or .svg.")] = None,
    ) -> None:
        from theory.checks import choice, real
        from theory.prediction import METHODS
        from theory.results import dump_json, save_figure
        from validate.comparison import compare_curve, read_curve

        choice("method", method, METHODS)
        if tolerance is not None:
            real("tolerance", tolerance, above=0)
        result = compare_curve(
            read_curve(curve),
            options.build_task(setting, dim, capacity, source, context, label_noise, spectrum, labels),
            depth,
            learning_rate=learning_rate,
            method=method,
            window=window,
            first_step=first_step,
            last_step=last_step,
            samples=samples,
            seed=seed,
        )
        answer = result.to_dict()
        worst = answer["max_relative_deviation"]
        answer["agrees"] = None if tolerance is None else bool(worst <= tolerance)
        if plot is not None:
            save_figure(result.plot(), plot)
        typer.echo(dump_json(answer) if as_json else str(result))
        if answer["agrees"] is False:
            typer.echo(f"deviation {worst:.4g} exceeds tolerance={tolerance:g}", err=True)
            raise typer.Exit(EXIT_DISAGREES)
