"""The typer application, its list of subcommands, and the one place where errors become a line and an exit status."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

# Modules validate.cli.NAME, each with `register(app)`; the order is that of --help.
SUBCOMMANDS: tuple[str, ...] = (
    "predict",
    "spectrum",
    "simulate",
    "sweep",
    "compare",
    "notebook",
    "fit",
    "reproduce",
    "plot",
)

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="inverse-depth",
    help="Predict, train, compare and judge the depth scaling of attention.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"inverse-depth {version('inverse-depth')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    pass


for _name in SUBCOMMANDS:
    importlib.import_module(f"validate.cli.{_name}").register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; bad input and files that cannot be used are one line on stderr and exit status 2."""
    try:
        app(args=arguments, standalone_mode=True)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        sys.exit(_complain(error))
    except KeyboardInterrupt:
        print("inverse-depth: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _complain(error: Exception) -> int:
    """Print ``error`` as one line and return the exit status."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror}"
    else:
        text = " ".join(str(error).split())
    print(f"inverse-depth: error: {text}", file=sys.stderr)
    return EXIT_BAD_INPUT
