"""``inverse-depth report``: the report again, from the runs that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from validate.cli import options

EXAMPLE = """
Judge the claims and write the report again from the runs that are there, training nothing: after an interruption,
beside a study that still runs, or when a rule or a figure has changed. Runs that are missing are named, and the claims
that rest on them stay undecided.

Example: inverse-depth report --out out/smoke --results RESULTS.md
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def report(
        out: Annotated[Path, typer.Option(help="Folder that `inverse-depth reproduce` was given.")],
        preset: Annotated[
            str | None, typer.Option(help="smoke, laptop, paper, or a TOML file (default: what FOLDER was made by).")
        ] = None,
        data: Annotated[Path | None, typer.Option(help="Folder with the published data (default: as before).")] = None,
        results: Annotated[
            Path | None, typer.Option(help="FILE.md: the results as a page, its pictures in docs/results beside it.")
        ] = None,
        as_json: options.AsJson = False,
    ) -> None:
        from validate.reproduction import report as judge_again

        result = judge_again(out, preset=preset, data=data, results=results)
        typer.echo(result.to_json() if as_json else str(result))
