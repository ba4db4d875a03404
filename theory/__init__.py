"""Predictions for the depth scaling of attention: spectra, losses, flows, floors, asymptotics, depth laws, derivations.

Imports neither torch nor matplotlib nor sympy until a function that needs one is called.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> module that defines it; imported on first use, so that `import theory` stays fast.
_HOME = {
    "Spectrum": "theory.spectra",
    "Task": "theory.task",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
