"""``inverse-depth notebook``: generate the notebooks, run them, render them; generate the derivation pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = """
Write the notebook NAME (overview, or a derivation), or all of them.

Example: inverse-depth notebook all --out notebooks --execute --html --set dim=64
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def notebook(
        name: Annotated[str, typer.Argument(help="overview, the name of a derivation, or all.")] = "all",
        out: Annotated[Path | None, typer.Option(help="Folder for NAME.ipynb (and NAME.html).")] = None,
        execute: Annotated[bool, typer.Option("--execute", help="Run each from a clean kernel.")] = False,
        html: Annotated[bool, typer.Option("--html", help="Also write a self-contained page.")] = False,
        settings: Annotated[
            list[str] | None, typer.Option("--set", help="NAME=NUMBER for the first cell; may be repeated.")
        ] = None,
        docs: Annotated[Path | None, typer.Option(help="Write the derivation pages (Markdown) to this folder.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")] = False,
    ) -> None:
        from theory.results import dump_json
        from validate.notebooks.write import write_notebooks

        made = write_notebooks(
            name,
            out=out,
            execute=execute,
            html=html,
            settings=settings or [],
            docs=docs,
            report=lambda line: typer.echo(line, err=True) if execute and sys.stderr is not None else None,
        )
        if as_json:
            typer.echo(dump_json({"files": [str(path) for path in made]}))
        else:
            typer.echo("\n".join(str(path) for path in made))
