"""Progress of long training: a bar with rate and time left on a terminal, plain lines on stderr otherwise."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

SECONDS_BETWEEN_UPDATES = 0.2
SECONDS_BETWEEN_LINES = 15.0


class Progress(Protocol):
    """What training tells of itself."""

    def start(self, total: int, done: int) -> None:
        """Begin at step ``done`` of ``total``."""

    def update(self, step: int, loss: float) -> None:
        """Tell the last step done and its loss."""

    def note(self, text: str) -> None:
        """Tell something the reader should know."""

    def stop(self) -> None:
        """End."""


class Lines:
    """Plain lines on stderr, at most one every few seconds."""

    def start(self, total: int, done: int) -> None:
        """Begin at step ``done`` of ``total``."""
        self._total, self._first = total, done
        self._began = self._last = time.monotonic()

    def update(self, step: int, loss: float) -> None:
        """Write a line if the last is old enough."""
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = now
        rate = (step - self._first) / (now - self._began)
        left = (self._total - step) / rate if rate else float("inf")
        print(
            f"step {step}/{self._total}  loss {loss:.5g}  {rate:.3g} steps/s  {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    def note(self, text: str) -> None:
        """Write the note."""
        print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Nothing to close."""


class Bar:
    """A bar on the terminal."""

    def start(self, total: int, done: int) -> None:
        """Begin at step ``done`` of ``total``."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar: Any = RichProgress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:.3g} steps/s"),
            TimeRemainingColumn(),
            TextColumn("loss {task.fields[loss]:.5g}"),
            console=Console(stderr=True),
        )
        self._first, self._began = done, time.monotonic()
        self._task = self._bar.add_task("training", total=total, completed=done, loss=float("nan"), rate=0.0)
        self._bar.start()

    def update(self, step: int, loss: float) -> None:
        """Move the bar."""
        rate = (step - self._first) / max(time.monotonic() - self._began, 1e-9)
        self._bar.update(self._task, completed=step, loss=loss, rate=rate)

    def note(self, text: str) -> None:
        """Write the note above the bar."""
        self._bar.console.print(text)

    def stop(self) -> None:
        """Close the bar."""
        self._bar.stop()


def default_progress() -> Progress:
    """Return a bar if stderr is a terminal, else lines."""
    return Bar() if sys.stderr.isatty() else Lines()
