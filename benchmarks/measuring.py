"""What every benchmark shares: the best of several timings, a table of ratios, the machine it ran on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence


def best(call: Callable[[], object], *, repeats: int = 5, seconds: float = 5.0) -> float:
    """Return the shortest of up to ``repeats`` timings, in seconds; stops after ``seconds`` in all."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < repeats and (not times or time.perf_counter() < until):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def cheapest(
    solve: Callable[[float], object],
    error_of: Callable[[object], float],
    *,
    wanted: float,
    tolerances: Sequence[float],
    repeats: int = 5,
) -> tuple[float, float, float]:
    """Return seconds, achieved error and tolerance for the first tolerance that achieves ``wanted``; NaN if none does.

    The call is made once before it is timed, so that nothing is compiled inside the timing.
    """
    error, tolerance = float("inf"), float("nan")
    for tolerance in tolerances:
        try:
            error = error_of(solve(tolerance))
        except (RuntimeError, ValueError, FloatingPointError) as complaint:
            print(f"    tolerance {tolerance:g}: {type(complaint).__name__}")
            continue
        if error <= wanted:
            return best(lambda chosen=tolerance: solve(chosen), repeats=repeats), error, tolerance  # type: ignore[misc]
    return float("nan"), error, tolerance


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as aligned text under a title."""
    cells = [
        list(columns),
        *([f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows),
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def machine() -> str:
    """Return processor, usable cores and Python in a line."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, Python {platform.python_version()}"
