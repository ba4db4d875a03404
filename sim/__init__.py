"""Training of attention models on in-context regression: tasks, models, training, runs on disk, sweeps, probes.

Imports torch only when a name that needs it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> module that defines it; imported on first use, so that `import sim` stays fast.
_HOME: dict[str, str] = {}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
