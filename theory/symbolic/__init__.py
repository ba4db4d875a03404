"""Derivations, built and verified with sympy, from which formulas, functions and notebooks are generated.

``derive("gradient_flow")`` returns one, verified; what has been verified before, from the same sources and the same
sympy, is not verified again.
"""

from __future__ import annotations

import importlib
from typing import Any

# Name of a derivation = module that builds it, in reading order.
NAMES: tuple[str, ...] = (
    "residual_recursion",
    "population_loss",
    "gradient_flow",
    "asymptotics",
    "untied_optimum",
    "marchenko_pastur",
    "depth_laws",
    "kernel_view",
)

_HOME = {
    "Builder": "theory.symbolic.derivation",
    "Derivation": "theory.symbolic.derivation",
    "DerivationError": "theory.symbolic.derivation",
    "Formula": "theory.symbolic.formulas",
    "Step": "theory.symbolic.derivation",
    "derive": "theory.symbolic.registry",
}

__all__ = ["NAMES", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'theory.symbolic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
