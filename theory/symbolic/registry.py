"""Finding a derivation by name, and not verifying twice what was verified before."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from theory.checks import choice
from theory.symbolic import NAMES
from theory.symbolic.cache import load_evidence, save_evidence, source_key
from theory.symbolic.derivation import GIVEN, Builder, Derivation

_BUILT: dict[str, Derivation] = {}


def derive(name: str, *, cached: bool = True) -> Derivation:
    """Return the derivation called ``name``, every step verified.

    Parameters
    ----------
    name : str
        One of ``theory.symbolic.NAMES``.
    cached : bool
        Trust evidence from disk if the sources, sympy, mpmath and Python are exactly those it was found with and the
        equations hash to the same; ``False`` verifies every step now.

    Raises
    ------
    ValueError
        If there is no such derivation.
    DerivationError
        If a step does not follow.
    """
    choice("name", name, NAMES)
    if cached and name in _BUILT:
        return _BUILT[name]
    key = source_key(f"theory.symbolic.{name}")
    stored = load_evidence(name, key) if cached else None
    if stored is not None:
        digest, evidence = stored
        result = build(name, known=evidence)
        if result.digest != digest:
            stored = None
    if stored is None:
        result = build(name)
        save_evidence(name, key, result.digest, {step.name: step.evidence for step in result if step.evidence != GIVEN})
    _BUILT[name] = result
    return result


def build(name: str, **options: Any) -> Derivation:
    """Return the derivation built afresh; ``options`` go to its `Builder`."""
    module = importlib.import_module(f"theory.symbolic.{name}")
    summary: tuple[str, str] = (module.TITLE, module.SUMMARY)
    builder = Builder(name, *summary, **options)
    steps: Callable[[Builder], None] = module.steps
    steps(builder)
    return builder.build()
