"""The command ``inverse-depth``: one module a subcommand, each importing what it needs only when it runs."""

from __future__ import annotations

from validate.cli.app import main

__all__ = ["main"]
