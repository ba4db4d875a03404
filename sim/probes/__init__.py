"""What layers do: errors of modes and layers, attention's focus, rotations, ablations; a small file for each."""

from __future__ import annotations

import importlib
from typing import Any

_HOME: dict[str, str] = {
    "LiveProbes": "sim.probes.report",
    "ProbeHistory": "sim.probes.report",
    "ProbeSettings": "sim.probes.report",
    "Probes": "sim.probes.report",
    "probe_run": "sim.probes.report",
    "probe_training": "sim.probes.report",
    "probe_weights": "sim.probes.report",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sim.probes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
