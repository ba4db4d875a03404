"""Wrong signs to put into an equation: every term of every sum, every exponent, and the whole."""

from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from theory.symbolic.asymptotics import Minimum
from theory.symbolic.averages import Average, MomentAverage

# Of these only the first argument is mathematics to flip; the rest are limits, variables, moments.
FIRST_ONLY = (sp.Sum, sp.Product, sp.Integral, sp.Derivative, Minimum)


def flips(expression: sp.Basic) -> Iterator[sp.Basic]:
    """Yield ``expression`` with one sign changed, the whole first."""
    if expression != 0 and not isinstance(expression, sp.MatrixBase):
        yield -expression
    yield from _inner(expression)


def _inner(expression: sp.Basic) -> Iterator[sp.Basic]:
    if isinstance(expression, sp.MatrixBase):
        for place, entry in enumerate(expression):
            for wrong in flips(entry):
                made = list(expression)
                made[place] = wrong
                yield sp.ImmutableMatrix(*expression.shape, made)
        return
    # Inside an average over symmetric variables a flipped sign can leave a true statement.
    if not expression.args or isinstance(expression, (sp.Indexed, sp.MatrixSymbol, Average, MomentAverage)):
        return
    if expression.is_Add or isinstance(expression, sp.MatAdd):
        for term in expression.args:
            yield expression.func(*[-other if other is term else other for other in expression.args])
    if expression.is_Pow:
        yield expression.func(expression.base, -expression.exp)
    first_only = isinstance(expression, FIRST_ONLY)
    for place, part in enumerate(expression.args[:1] if first_only else expression.args):
        for wrong in _inner(part):
            args = list(expression.args)
            args[place] = wrong
            yield expression.func(*args)
