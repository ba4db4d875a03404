"""Training of attention models on in-context regression: tasks, models, training, runs on disk, sweeps, probes.

Imports torch only when a name that needs it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> module that defines it; imported on first use, so that `import sim` stays fast.
_HOME: dict[str, str] = {
    "Convergence": "sim.convergence",
    "Dask": "sim.executors",
    "InProcess": "sim.executors",
    "LiveProbes": "sim.probes.report",
    "LocalProcesses": "sim.executors",
    "ModelConfig": "sim.config",
    "ProbeHistory": "sim.probes.report",
    "ProbeSettings": "sim.probes.report",
    "Probes": "sim.probes.report",
    "Run": "sim.store",
    "RunConfig": "sim.config",
    "Runs": "sim.runs",
    "SpectrumConfig": "sim.sections",
    "TaskConfig": "sim.sections",
    "TeacherConfig": "sim.sections",
    "TrainingConfig": "sim.config",
    "TrainingLoop": "sim.loop",
    "build_model": "sim.models",
    "judge_convergence": "sim.convergence",
    "load": "sim.runs",
    "probe_run": "sim.probes.report",
    "probe_training": "sim.probes.report",
    "probe_weights": "sim.probes.report",
    "read_grid": "sim.grid",
    "read_run": "sim.store",
    "run_sweep": "sim.sweep",
    "train": "sim.training",
    "train_many": "sim.training",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
