"""``python -m benchmarks [NAME …]``: every benchmark, or those named, one after another."""

from __future__ import annotations

import importlib
import inspect
import sys

from benchmarks.measuring import machine

# Modules benchmarks.NAME with a `main()` that prints its table.
NAMES = ("theory_speed", "cost_table", "fit_speed", "recovery", "train_speed", "sweep_cost", "variance")


def run(names: list[str]) -> int:
    """Run the benchmarks called ``names`` (all if empty); return the exit status."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"benchmarks: {unknown[0]!r}: must be one of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    print(machine())
    for name in names or NAMES:
        print(f"\n=== {name} ===", flush=True)
        main = importlib.import_module(f"benchmarks.{name}").main
        # Some take a command line of their own; here they run as they are.
        main([]) if inspect.signature(main).parameters else main()
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
