"""``inverse-depth layers``: how the layers of a model share their errors, and the loss of fewer or more of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from validate.cli import options

EXAMPLE = """
Measure how layers share their errors: plateau, gain, correlation length, effective number of independent layers.

FILE (.npy, .csv, .parquet) holds each layer's own error on each example, a row a layer and a column an example; or
any table with a row for each layer and example, with --layer, --example and --error naming its columns.

Example: inverse-depth layers errors.npy --depth 4,64 --json --plot layers.png
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def layers(
        file: Annotated[Path, typer.Argument(help="Errors, layers x examples.")],
        layer: Annotated[str | None, typer.Option(help="Column of the layer's number, in a long table.")] = None,
        example: Annotated[str | None, typer.Option(help="Column that names the example, in a long table.")] = None,
        error: Annotated[str | None, typer.Option(help="Column of the errors, in a long table.")] = None,
        group: Annotated[
            str | None, typer.Option(help="Column whose equal entries mark examples that are not independent.")
        ] = None,
        depth: Annotated[str | None, typer.Option(help="Layers, such as 4,64, whose mean's loss is predicted.")] = None,
        order: Annotated[
            str, typer.Option(help="random: any such layers; consecutive: neighbours, with the law of distance.")
        ] = "random",
        level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
        resamples: Annotated[int, typer.Option(help="Resamples of the examples, for intervals of ratios.")] = 400,
        seed: options.Seed = 0,
        as_json: options.AsJson = False,
        plot: Annotated[
            Path | None, typer.Option(help="Draw covariance by distance to FILE.png, .pdf or .svg.")
        ] = None,
    ) -> None:
        from theory.checks import choice
        from theory.results import dump_json, save_figure
        from validate.layer_files import read_layer_file
        from validate.layers import ORDERS, layer_statistics

        choice("order", order, ORDERS)
        depths = [] if depth is None else options.read_depths(depth)
        found = read_layer_file(file, layer=layer, example=example, error=error, group=group)
        result = layer_statistics(found.errors, groups=found.groups, level=level, resamples=resamples, seed=seed)
        predicted = {count: result.predict(count, order=order) for count in depths}
        if plot is not None:
            save_figure(result.plot(), plot)
        if as_json:
            rows = [{"depth": count, "order": order, **item.to_dict()} for count, item in predicted.items()]
            typer.echo(dump_json({"file": str(file), **result.to_dict(), "predictions": rows}))
            return
        lines = [f"{file}: {result}"]
        for count, item in predicted.items():
            low, high = item.interval
            beyond = " (extrapolated)" if count > result.layers else ""
            lines.append(f"loss of {count} {order} layers = {item.value:.5g}  [{low:.4g}, {high:.4g}]{beyond}")
        typer.echo("\n".join(lines))
