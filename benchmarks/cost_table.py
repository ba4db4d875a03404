"""What a tied curve costs: time and memory against dim, depth and number of times, and the exponent of each.

Memory is what the computation itself allocates at its peak (tracemalloc follows numpy's arrays).
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np

from benchmarks.measuring import best, table
from theory.measure import SpectralMeasure
from theory.spectra import Spectrum
from theory.tied import tied_curve

DIMS = tuple(10**power for power in range(2, 10))
# Larger spectra are not held mode by mode.
LARGEST_HELD = 10**7
DEPTHS = (1, 4, 16, 64, 256, 1024)
COUNTS = (10, 100, 1000, 10_000)
DIM, DEPTH, COUNT = 10_000, 16, 200


def _cost(call: Callable[[], object], repeats: int = 7) -> tuple[float, float]:
    """Return seconds and peak MB."""
    call()
    seconds = best(call, repeats=repeats, seconds=4.0)
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return seconds, peak


def _times(count: int) -> np.ndarray:
    return np.logspace(0, 12, count)


def _exponent(sizes: list[float], values: list[float]) -> float:
    """Return the slope of log value against log size over the upper half of the sizes."""
    half = len(sizes) // 2
    kept = [(math.log(a), math.log(b)) for a, b in zip(sizes[half:], values[half:], strict=True) if b > 0]
    return float(np.polyfit(*np.array(kept).T, 1)[0]) if len(kept) > 1 else math.nan


def _print(title: str, name: str, sizes: list[float], costs: list[tuple[float, float]]) -> None:
    rows: list[list[object]] = [[f"{size:g}", *cost] for size, cost in zip(sizes, costs, strict=True)]
    rows.append(["exponent", *(_exponent(sizes, [cost[i] for cost in costs]) for i in range(2))])
    table(title, (name, "seconds", "peak MB"), rows)


def main() -> None:
    """Print the four tables."""
    compressed = [
        _cost(lambda dim=dim: tied_curve(SpectralMeasure.power_law(dim, 1.0, 0.5), DEPTH, _times(COUNT)))  # type: ignore[misc]
        for dim in DIMS
    ]
    _print(f"Power law, depth {DEPTH}, {COUNT} times", "dim", [float(dim) for dim in DIMS], compressed)
    held_dims = [dim for dim in DIMS if dim <= LARGEST_HELD]
    held = []
    for dim in held_dims:
        spectrum = Spectrum.power_law(dim, 1.0, 0.5)
        held.append(_cost(lambda given=spectrum: tied_curve(given, DEPTH, _times(COUNT))))  # type: ignore[misc]
    title = f"Any spectrum, held mode by mode and compressed on the way, depth {DEPTH}, {COUNT} times"
    _print(title, "dim", [float(dim) for dim in held_dims], held)
    spectrum = Spectrum.power_law(DIM, 1.0, 0.5)
    depths = [_cost(lambda depth=depth: tied_curve(spectrum, depth, _times(COUNT))) for depth in DEPTHS]  # type: ignore[misc]
    _print(f"Any spectrum, dim {DIM}, {COUNT} times", "depth", [float(depth) for depth in DEPTHS], depths)
    counts = [_cost(lambda count=count: tied_curve(spectrum, DEPTH, _times(count))) for count in COUNTS]  # type: ignore[misc]
    _print(f"Any spectrum, dim {DIM}, depth {DEPTH}", "times", [float(count) for count in COUNTS], counts)


if __name__ == "__main__":
    main()
