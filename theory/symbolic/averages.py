"""Exact averages over independent standard normal variables, by their moments."""

from __future__ import annotations

from typing import Any

import sympy as sp


class Average(sp.Expr):
    """E[expression] over independent standard normal ``variables``; ``doit()`` carries it out.

    ``variables`` is a tuple of symbols, indexed quantities, or indexed bases (then every entry that occurs), in which
    ``expression`` is a polynomial, a polynomial times exp of a linear form, or both.
    """

    def __new__(cls, expression: Any, variables: Any) -> Average:
        """Return the average, not carried out."""
        return sp.Expr.__new__(cls, sp.sympify(expression, strict=True), sp.Tuple(*variables))

    def doit(self, **hints: Any) -> sp.Expr:
        """Return the average."""
        expression = self.args[0].doit(**hints)
        return gaussian_average(expression, _members(expression, self.args[1]))

    def _latex(self, printer: Any) -> str:
        names = ", ".join(printer._print(name) for name in self.args[1])
        return rf"\mathbb{{E}}_{{{names}}}\left[{printer._print(self.args[0])}\right]"

    def _sympystr(self, printer: Any) -> str:
        return f"E[{printer._print(self.args[0])}]"


class MomentAverage(sp.Expr):
    """E[expression] over independent copies e_1, e_2, … of one variable with given moments; ``doit()`` carries it out.

    ``moments`` lists E[e], E[e^2], …; ``expression`` is a polynomial in the entries of the indexed base.
    """

    def __new__(cls, expression: Any, base: Any, moments: Any) -> MomentAverage:
        """Return the average, not carried out."""
        return sp.Expr.__new__(cls, sp.sympify(expression, strict=True), base, sp.Tuple(*moments))

    def doit(self, **hints: Any) -> sp.Expr:
        """Return the average."""
        expression = sp.expand(self.args[0].doit(**hints))
        moments = (sp.S.One, *(moment.doit(**hints) for moment in self.args[2]))
        members = _members(expression, (self.args[1],))
        if not members:
            return expression
        total = sp.S.Zero
        for powers, coefficient in sp.Poly(expression, *members).terms():
            total += coefficient * sp.prod([moments[power] for power in powers])
        return total

    def _latex(self, printer: Any) -> str:
        return rf"\mathbb{{E}}\left[{printer._print(self.args[0])}\right]"

    def _sympystr(self, printer: Any) -> str:
        return f"E[{printer._print(self.args[0])}]"


def _members(expression: sp.Expr, variables: Any) -> tuple[sp.Expr, ...]:
    """Return the variables, an indexed base standing for all its entries in ``expression``."""
    found: list[sp.Expr] = []
    for variable in variables:
        if isinstance(variable, sp.IndexedBase):
            entries = [item for item in expression.atoms(sp.Indexed) if item.base == variable]
            found += sorted(entries, key=sp.default_sort_key)
        else:
            found.append(variable)
    return tuple(found)


def gaussian_average(expression: sp.Expr, variables: tuple[sp.Expr, ...]) -> sp.Expr:
    """Return E[expression] over independent standard normal ``variables``.

    E[z^n] = (n - 1)!! for even n and 0 for odd n; a factor exp(a z) shifts z by a and gives exp(a^2/2).

    Raises
    ------
    ValueError
        If the expression is neither a polynomial nor a polynomial times exp of a linear form in a variable.
    """
    result = sp.expand(expression)
    for variable in variables:
        result = sp.expand(sum((_term_average(term, variable) for term in sp.Add.make_args(result)), sp.S.Zero))
    return result


def _term_average(term: sp.Expr, variable: sp.Expr) -> sp.Expr:
    """Return the average of one product over one variable."""
    if not term.has(variable):
        return term
    z = sp.Dummy("z", real=True)
    powers = sp.powsimp(term.xreplace({variable: z}))
    outside, inside = powers.as_independent(z, as_Add=False)
    factor = sp.S.One
    slope = sp.S.Zero
    for part in sp.Mul.make_args(inside):
        if isinstance(part, sp.exp) and part.has(z):
            exponent = sp.expand(part.args[0])
            slope += exponent.coeff(z, 1)
            rest = sp.expand(exponent - exponent.coeff(z, 1) * z)
            if rest.has(z):
                raise ValueError(f"{term}: must be a polynomial times exp of a linear form in {variable}")
            factor *= sp.exp(rest)
        else:
            factor *= part
    shifted = sp.Poly(factor.subs(z, z + slope) if slope != 0 else factor, z)
    total = sp.S.Zero
    for (power,), coefficient in shifted.terms():
        if power % 2 == 0:
            total += coefficient * (sp.factorial2(power - 1) if power else 1)
    return outside * total * sp.exp(slope**2 / 2)
