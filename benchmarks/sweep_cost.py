"""What a sweep costs beside its training: a run's folder, worker processes, many runs in one program, reading back.

``python -m benchmarks.sweep_cost`` prints seconds a run, and the ratio to training the same runs in a plain loop that
writes nothing.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sim.executors import InProcess, LocalProcesses
from sim.grid import Plan, plan_runs
from sim.runs import load
from sim.sweep import run_sweep
from sim.training import train

RUNS = 32
STEPS = 400


def plans() -> list[Plan]:
    """Return small runs that differ in their seed."""
    return plan_runs(
        {
            "base": {
                "task": {"context": 16, "spectrum": {"kind": "isotropic", "dim": 8}},
                "model": {"attention": "softmax", "depth": 4},
                "training": {"optimizer": "adam", "batch": 32, "steps": STEPS},
            },
            "grid": {"training": {"seed": list(range(RUNS))}},
        }
    )


def bare(own: list[Plan], store: Path) -> None:
    """Train without a store."""
    for plan in own:
        assert plan.config is not None
        train(plan.config, device="cpu")


def main() -> dict[str, float]:
    """Print the table and return seconds a run."""
    cores = os.cpu_count() or 1
    ways: dict[str, Callable[[list[Plan], Path], object]] = {
        "train, no folder": bare,
        "sweep, in process": lambda own, store: run_sweep(own, store, executor=InProcess(), device="cpu"),
        f"sweep, {cores} processes": lambda own, store: run_sweep(
            own, store, executor=LocalProcesses(cores), device="cpu"
        ),
        "sweep, 8 runs together": lambda own, store: run_sweep(own, store, device="cpu", together=8),
        "sweep, finished already": lambda own, store: run_sweep(own, store.parent / "sweep, in process", device="cpu"),
        "load and to_frame": lambda own, store: load(store.parent / "sweep, in process").to_frame(),
    }
    own = plans()
    assert own[0].config is not None
    train(own[0].config, device="cpu")  # torch's first use is slow
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, way in ways.items():
            began = time.perf_counter()
            way(own, Path(folder) / name)
            seconds[name] = (time.perf_counter() - began) / RUNS
    print(f"{RUNS} runs of {STEPS} steps, softmax, depth 4; {cores} cores; processes include their start")
    print(f"{'':28}{'s a run':>10}{'ratio':>10}")
    for name, value in seconds.items():
        print(f"{name:28}{value:10.4f}{value / seconds['train, no folder']:10.3f}")
    return seconds


if __name__ == "__main__":
    main()
