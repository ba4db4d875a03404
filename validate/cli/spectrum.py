"""``inverse-depth spectrum``: eigenvalues, capacity and source of measured data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from validate.cli import options

EXAMPLE = """
Print the spectrum of a file: capacity and source with intervals, freed of sampling bias, noise modes left out.

The file (.npy, .csv, .parquet) holds a vector of eigenvalues, a covariance matrix, or samples, one row each.

Example: inverse-depth spectrum data.npy --labels -1 --json --plot spectrum.png
"""
# Modes shown in the text: the first few of each factor of two.
SHOWN = 12


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def spectrum(
        file: Annotated[Path, typer.Argument(help="FILE.npy, .csv or .parquet.")],
        labels: options.Labels = None,
        kind: options.SpectrumKind = "auto",
        rows: Annotated[
            int | None, typer.Option(help="Samples behind eigenvalues or a covariance, to correct their bias.")
        ] = None,
        level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
        as_json: options.AsJson = False,
        plot: Annotated[Path | None, typer.Option(help="Draw the spectrum to FILE.png, .pdf or .svg.")] = None,
    ) -> None:
        from theory.results import save_figure
        from validate.spectrum_files import read_spectrum_file

        found = read_spectrum_file(file, labels=labels, kind=kind, rows=rows)
        result = found.estimate(level=level)
        if plot is not None:
            save_figure(result.plot(), plot)
        if as_json:
            from theory.results import dump_json

            typer.echo(dump_json({"file": str(file), "kind": found.kind, **result.to_dict()}))
            return
        frame = result.to_frame()
        shown = sorted({round(frame.shape[0] ** (i / (SHOWN - 1))) for i in range(SHOWN)})
        typer.echo(f"{file} ({found.kind}): {result}\n{frame.iloc[[k - 1 for k in shown]].to_string(index=False)}")
