"""``inverse-depth reproduce``: the main job, from training to the report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from theory.checks import integer
from validate.cli import options

EXAMPLE = """
Train what a preset asks for, judge every claim and write the report (report.html, claims.json, data/).
The same command again resumes; `inverse-depth report` judges what is there so far. Exit status 1 if a run failed.

Example: inverse-depth reproduce --preset smoke --out out/smoke
"""

EXIT_FAILED_RUNS = 1


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def reproduce(
        out: Annotated[Path, typer.Option(help="Folder for runs and report.")],
        preset: Annotated[str, typer.Option(help="smoke, laptop, paper, or a TOML file.")] = "smoke",
        device: Annotated[str, typer.Option(help="auto (CUDA where there is one), cpu, cuda or cuda:N.")] = "auto",
        workers: Annotated[int, typer.Option(help="Local processes; 0: one a CPU core.")] = 0,
        data: Annotated[Path | None, typer.Option(help="Folder with the published data, if it is at hand.")] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained; write nothing.")] = False,
        as_json: options.AsJson = False,
    ) -> None:
        integer("workers", workers, minimum=0)
        from validate.reproduction import preview
        from validate.reproduction import reproduce as run_all

        if dry_run:
            outlook = preview(preset, out, device=device, data=data)
            typer.echo(outlook.to_json() if as_json else str(outlook))
            return
        options.stop_as_ctrl_c()
        result = run_all(preset, out, device=device, workers=workers or os.cpu_count() or 1, data=data)
        typer.echo(result.to_json() if as_json else str(result))
        if result.failures:
            raise typer.Exit(EXIT_FAILED_RUNS)
