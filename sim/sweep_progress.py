"""Progress of a sweep: a bar over its updates times layers on a terminal, one line a run otherwise."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, Protocol

from sim.jobs import Outcome


class SweepProgress(Protocol):
    """What a sweep tells of itself."""

    def start(self, runs: int, steps: int) -> None:
        """Begin with this much to do."""

    def advance(self, runs: int, steps: float) -> None:
        """So many runs have ended, so many layer steps been done."""

    def ended(self, outcome: Outcome, label: str) -> None:
        """Say how a run ended."""

    def note(self, text: str) -> None:
        """Say something the reader should know."""

    def stop(self) -> None:
        """End."""


class Silent:
    """Says nothing."""

    def start(self, runs: int, steps: int) -> None:
        """Nothing."""

    def advance(self, runs: int, steps: float) -> None:
        """Nothing."""

    def ended(self, outcome: Outcome, label: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class SweepLines:
    """Plain lines on stderr."""

    def start(self, runs: int, steps: int) -> None:
        """Say how much there is to do."""
        self._runs, self._steps, self._done, self._taken = runs, steps, 0, 0.0
        self._began = time.monotonic()
        self.note(f"{runs} runs to do, {steps} updates of a layer in all")

    def advance(self, runs: int, steps: float) -> None:
        """Remember it for the next line."""
        self._done, self._taken = runs, steps

    def ended(self, outcome: Outcome, label: str) -> None:
        """Write a line."""
        rate = self._taken / (time.monotonic() - self._began)
        left = f"{(self._steps - self._taken) / rate:.0f} s left" if rate else ""
        self.note(f"[{self._done}/{self._runs}] {sentence(outcome, label)}; {rate:.3g} layer steps/s, {left}")

    def note(self, text: str) -> None:
        """Write the note."""
        print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Nothing to close."""


class SweepBar:
    """A bar on the terminal, failures above it."""

    def start(self, runs: int, steps: int) -> None:
        """Begin the bar."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bar: Any = Progress(
            TextColumn("{task.fields[done]}/{task.fields[runs]} runs"),
            BarColumn(),
            TextColumn("{task.fields[rate]:.3g} layer steps/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console(),
        )
        self._began = time.monotonic()
        self._task = self._bar.add_task("sweep", total=max(steps, 1), done=0, runs=runs, rate=0.0)
        self._bar.start()

    def advance(self, runs: int, steps: float) -> None:
        """Move the bar."""
        rate = steps / max(time.monotonic() - self._began, 1e-9)
        self._bar.update(self._task, completed=steps, done=runs, rate=rate)

    def ended(self, outcome: Outcome, label: str) -> None:
        """Write failures above the bar."""
        if outcome.status == "failed":
            self.note(sentence(outcome, label))

    def note(self, text: str) -> None:
        """Write the note, above the bar if there is one."""
        console = self._bar.console if hasattr(self, "_bar") else self._console()
        console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        """Close the bar."""
        if hasattr(self, "_bar"):
            self._bar.stop()

    @staticmethod
    def _console() -> Any:
        from rich.console import Console

        return Console(stderr=True)


def sentence(outcome: Outcome, label: str) -> str:
    """Return how a run ended, in words."""
    start = f"{outcome.digest} {label}".strip()
    if outcome.status == "failed":
        return f"{start}: failed: {outcome.error}"
    if math.isnan(outcome.final_loss):
        return f"{start}: " + ("diverged" if outcome.trained else "finished by another process")
    verdict = "converged" if outcome.converged else "not converged"
    return f"{start}: loss {outcome.final_loss:.5g} ± {outcome.standard_error:.1g}, {verdict}, {outcome.seconds:.3g} s"


def default_sweep_progress() -> SweepProgress:
    """Return a bar if stderr is a terminal, else lines."""
    return SweepBar() if sys.stderr.isatty() else SweepLines()
