"""``inverse-depth plot``: one figure of a report, redrawn alone from its stored table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from theory.checks import reject

SUFFIXES = (".png", ".pdf", ".svg")
EXAMPLE = """
Redraw one figure of a report from the table stored beside it.

Example: inverse-depth plot depth-laws --report out/smoke --out depth_laws.pdf
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def plot(
        name: Annotated[
            str,
            typer.Argument(help="depth-laws, exponents, rivals, crossover, regions, curves, …; a wrong one lists all."),
        ],
        report: Annotated[Path, typer.Option(help="Folder that `inverse-depth reproduce` wrote.")],
        out: Annotated[Path | None, typer.Option(help="FILE.png, .pdf or .svg (default: NAME.png).")] = None,
    ) -> None:
        import pandas as pd

        from theory.results import save_figure
        from validate.report.drawing import NothingToDraw
        from validate.report.figures import figure_named

        figure = figure_named(name)
        chosen = out or Path(f"{name}.png")
        if chosen.suffix.lower() not in SUFFIXES or chosen.is_dir():
            raise reject("out", str(chosen), "a file name ending in .png, .pdf or .svg")
        frames = []
        for table in figure.tables:
            path = report / "data" / f"{table}.parquet"
            if not path.exists():
                raise ValueError(f"report={str(report)!r}: must hold data/{table}.parquet, a table of {name!r}")
            try:
                frames.append(pd.read_parquet(path))
            except (ValueError, OSError) as error:
                raise ValueError(f"report={str(report)!r}: data/{table}.parquet must be a table ({error})") from None
        try:
            canvas = figure.draw(*frames)
        except NothingToDraw:
            raise
        except KeyError as error:
            raise ValueError(f"report={str(report)!r}: a table of {name!r} must have a column {error}") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"report={str(report)!r}: a table of {name!r} must hold what it shows ({error})") from None
        typer.echo(str(save_figure(canvas.axes[0], chosen)))
