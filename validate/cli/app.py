"""The typer application, its list of subcommands, and the one place where errors become a line and an exit status."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Annotated, Any

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
    "layers",
    "reproduce",
    "report",
    "plot",
)

PROGRAM = "inverse-depth"
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name=PROGRAM,
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


# What a setting out of reach raises, deep inside at times: RuntimeError is torch's for memory and devices.
EXPECTED = (ValueError, OSError, ModuleNotFoundError, MemoryError, ArithmeticError, RuntimeError)
# What typer raises for an unknown option, a value of the wrong type, a missing argument: found by name, since releases
# of typer take it from different packages.
_USAGE_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> None:
    """Run the command; bad input and files that cannot be used are one line on stderr and exit status 2."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    """Return the exit status."""
    # Warnings wait for the end: where the command fails, the one line that says why stands alone.
    held: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: held.append(" ".join(str(message).split()))
            status = app(args=arguments, prog_name=PROGRAM, standalone_mode=False)
    except EXPECTED as error:
        return _complain(_one_line(error))
    except _USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            return EXIT_BAD_INPUT  # the help has been printed
        return _complain(_usage(error))
    for text in dict.fromkeys(held):
        print(f"inverse-depth: warning: {text}", file=sys.stderr)
    if status == EXIT_INTERRUPTED:
        print("inverse-depth: interrupted", file=sys.stderr)
    return status if isinstance(status, int) else 0


def _complain(text: str) -> int:
    """Print ``text`` as one line and return the exit status."""
    print(f"inverse-depth: error: {' '.join(text.split())}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _one_line(error: Exception) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)) and error.filename:
        return f"{error.filename}: must be or lie in a folder, but a file is in the way ({error.strerror})"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, ArithmeticError):
        return f"a number left the range of float64: must be given less extreme values ({error})"
    if isinstance(error, MemoryError):
        return f"out of memory: {str(error) or 'ask for less at once'}"
    return str(error)


def _usage(error: Exception) -> str:
    """Return a usage error as text: the option, its value, and the subcommand whose --help lists what is allowed."""
    message = getattr(error, "format_message", error.__str__)().rstrip(".")
    # Newer releases check with pydantic, whose message leaves the value out.
    details: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    value = f"got {details[0]['input']!r}; " if details and "input" in details[0] else ""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else PROGRAM
    return f"{message} ({value}see {where} --help)"
