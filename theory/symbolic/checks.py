"""How a step is verified: identities, expansions, limits and asymptotic ratios, each exact where sympy can be.

Every check is called with the two sides of a step and returns the evidence as a sentence, or raises `Mismatch`.
Numbers are compared first, at random points and 50 digits, because a wrong step then fails at once.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mpmath
import sympy as sp
from sympy.core.function import PoleError

from theory.symbolic.averages import Average

DIGITS = 50
# Agreement asked of two 50-digit evaluations: the rest is lost to cancellation.
AGREEMENT = sp.Float("1e-36", DIGITS)
# Digits of a quadrature that only guards a proof, and its agreement, lost to endpoint singularities.
QUICK_DIGITS = 15
QUICK_AGREEMENT = sp.Float("1e-7")
# Digits of a ratio that tends to 1 slowly.
RATIO_DIGITS = 30
POINTS = 2
Sizes = Mapping[Any, Any]


class Mismatch(Exception):
    """The two sides of a step differ."""


def instance(expression: sp.Basic, sizes: Sizes, *, integrals: bool = True) -> sp.Basic:
    """Return ``expression`` with sizes (and matrices) put in, and its sums, products and averages carried out.

    ``integrals=False`` leaves integrals to numerical quadrature.

    Raises
    ------
    Mismatch
        If something cannot be carried out, such as an average of what is no polynomial.
    """
    result = expression.xreplace({key: sp.sympify(value, strict=True) for key, value in sizes.items()})
    try:
        result = result.doit(integrals=integrals)
    except (sp.PolynomialError, ValueError, TypeError, IndexError) as wrong:
        raise Mismatch(f"{expression} cannot be carried out: {wrong}") from None
    if isinstance(result, sp.MatrixExpr):
        result = result.as_explicit()
    if isinstance(result, sp.MatrixBase):
        return sp.ImmutableMatrix(result.applyfunc(lambda entry: entry.doit(integrals=integrals)))
    return result


def entries(expression: sp.Basic) -> list[sp.Expr]:
    """Return the entries of a matrix, or the expression itself in a list."""
    return list(expression) if isinstance(expression, sp.MatrixBase) else [expression]


def atoms(*expressions: sp.Basic) -> list[sp.Basic]:
    """Return what must be given a number: indexed quantities and free symbols that are not inside one."""
    found: set[sp.Basic] = set()
    for expression in expressions:
        indexed = expression.atoms(sp.Indexed)
        found |= indexed
        hidden = {item: sp.Dummy() for item in indexed}
        rest = expression.xreplace(hidden)
        found |= rest.free_symbols - set(hidden.values())
    return sorted(found, key=sp.default_sort_key)


def random_point(
    names: Sequence[sp.Basic], domain: Mapping[Any, tuple[float, float]], seed: str
) -> dict[sp.Basic, sp.Float]:
    """Return a number of 100 digits for each name, in its domain (default 0.2 … 0.9), the same for the same seed."""
    source = random.Random(seed)
    point = {}
    for name in names:
        base = name.base if isinstance(name, sp.Indexed) else name
        low, high = domain.get(name, domain.get(base, (0.2, 0.9)))
        point[name] = sp.Float(sp.Rational(round(source.uniform(low, high) * 997), 997), 2 * DIGITS)
    return point


def number(expression: sp.Basic, digits: int = DIGITS) -> sp.Expr:
    """Return a constant expression as a number of (at least) this many digits.

    Raises
    ------
    Mismatch
        If something in it has no value.
    """
    expression = sp.sympify(expression, strict=True).replace(lambda part: isinstance(part, sp.Integral), quadrature)
    value = expression.evalf(digits + 5, maxn=400)
    if not value.is_number or value.has(sp.nan, sp.zoo) or not value.is_finite:
        raise Mismatch(f"{expression} has no value")
    return value


def quadrature(integral: sp.Integral) -> sp.Float:
    """Return a one-dimensional integral by tanh-sinh quadrature of fixed cost: a divergent one gives some number."""
    name, *ends = integral.limits[0]
    with mpmath.workdps(QUICK_DIGITS):
        value = mpmath.quad(
            sp.lambdify(name, integral.function, "mpmath"), sp.lambdify([], ends, "mpmath")(), maxdegree=6
        )
        return sp.Float(value.real, QUICK_DIGITS) if mpmath.isfinite(value) else sp.nan


def same_number(left: sp.Expr, right: sp.Expr, agreement: sp.Float = AGREEMENT) -> bool:
    """Return whether two numbers agree to rounding."""
    return bool(abs(left - right) <= agreement * (1 + abs(left) + abs(right)))


def is_zero(expression: sp.Expr) -> bool:
    """Return whether sympy can show that ``expression`` vanishes, by the cheapest way that does it."""
    for simplify in (sp.expand, sp.cancel, sp.gammasimp, sp.simplify):
        try:
            if simplify(expression) == 0:
                return True
        except (sp.PolynomialError, NotImplementedError, ValueError, TypeError):
            continue
    return False


@dataclasses.dataclass(frozen=True)
class Identity:
    """Both sides are equal, for each of some sizes.

    Parameters
    ----------
    sizes : sequence of mappings
        What is put in for L, D, … before sums are carried out (and explicit matrices for matrix symbols).
    domain : mapping
        Interval from which a symbol's random value is drawn.
    exact : bool
        Also prove the difference zero with sympy; without it the evidence is numeric only.
    """

    sizes: Sequence[Sizes] = ({},)
    domain: Mapping[Any, tuple[float, float]] = dataclasses.field(default_factory=dict)
    exact: bool = True

    def __call__(self, left: sp.Basic, right: sp.Basic) -> str:
        """Return the evidence, or raise `Mismatch`."""
        for sizes in self.sizes:
            one, two = (instance(side, sizes, integrals=False) for side in (left, right))
            if len(entries(one)) != len(entries(two)):
                raise Mismatch(f"shapes differ at {_show(sizes)}")
            for first, second in zip(entries(one), entries(two), strict=True):
                self._compare(first, second, sizes)
        proved = "proved by sympy" if self.exact else f"equal at {POINTS} random points, {DIGITS} digits"
        shown = [_show(sizes) for sizes in self.sizes if _show(sizes)]
        return f"{proved} for {'; '.join(shown)}" if shown else proved

    def _compare(self, left: sp.Expr, right: sp.Expr, sizes: Sizes) -> None:
        if left == right:
            return
        names = atoms(left, right)
        # Quadrature to 50 digits is slow and, where a proof follows, not needed.
        quick = self.exact and (left.has(sp.Integral) or right.has(sp.Integral))
        for trial in range(POINTS if names and not quick else 1):
            point = random_point(names, self.domain, f"{trial}")
            one, two = (number(side.xreplace(point), QUICK_DIGITS if quick else DIGITS) for side in (left, right))
            if not same_number(one, two, QUICK_AGREEMENT if quick else AGREEMENT):
                where = ", ".join(filter(None, [_show(sizes), _show(point)]))
                shown = " != ".join(str(sp.Float(value.as_real_imag()[0], 8)) for value in (one, two))
                raise Mismatch(f"{shown} at {where}")
        if self.exact and not is_zero(instance(left, {}) - instance(right, {})):
            raise Mismatch(f"sympy cannot show that the difference vanishes {_show(sizes)}".rstrip())


@dataclasses.dataclass(frozen=True)
class Expansion:
    """Both sides agree up to, not including, the given order in a symbol that goes to zero."""

    symbol: sp.Symbol
    order: int
    sizes: Sizes = dataclasses.field(default_factory=dict)

    def __call__(self, left: sp.Basic, right: sp.Basic) -> str:
        """Return the evidence, or raise `Mismatch`."""
        difference = instance(left, self.sizes) - instance(right, self.sizes)
        try:
            series = sp.series(difference, self.symbol, 0, self.order).removeO()
        except (NotImplementedError, ValueError, PoleError) as wrong:
            raise Mismatch(f"no expansion: {wrong}") from None
        if not is_zero(sp.expand(series)):
            raise Mismatch(f"the difference has the terms {sp.simplify(series)}")
        return f"expanded by sympy, equal below order {self.order} in {self.symbol}"


@dataclasses.dataclass(frozen=True)
class Limit:
    """The left side tends to the right side."""

    symbol: sp.Symbol
    to: Any = sp.oo
    sizes: Sizes = dataclasses.field(default_factory=dict)

    def __call__(self, left: sp.Basic, right: sp.Basic) -> str:
        """Return the evidence, or raise `Mismatch`."""
        try:
            value = sp.limit(instance(left, self.sizes), self.symbol, self.to)
        except (NotImplementedError, ValueError, PoleError) as wrong:
            raise Mismatch(f"no limit: {wrong}") from None
        if isinstance(value, sp.Limit) or not is_zero(value - instance(right, self.sizes)):
            raise Mismatch(f"the limit is {value}")
        return f"limit taken by sympy, {self.symbol} → {self.to}"


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Left / right tends to 1: checked on a growing sequence, with the rate at which the rest vanishes.

    Parameters
    ----------
    symbol : Symbol
        What grows.
    values : sequence of numbers
        Growing by a constant factor.
    power : float
        |left/right - 1| must fall at least like symbol^-power between the last two values (up to a tenth of it).
    last : float
        Largest |left/right - 1| allowed at the last value.
    point : mapping
        Values of the other symbols.
    left, right : callable, optional
        ``f(value, point) -> mpf``, where sympy cannot evaluate a side by itself (an infinite sum, a minimum); it is
        given the side too, so that what is evaluated is the expression shown.
    """

    symbol: sp.Symbol
    values: Sequence[float]
    power: float
    last: float
    point: Mapping[Any, Any]
    left: Callable[[sp.Basic, Mapping[Any, Any]], Any] | None = None

    def __call__(self, left: sp.Basic, right: sp.Basic) -> str:
        """Return the evidence, or raise `Mismatch`."""
        rest = []
        with mpmath.workdps(RATIO_DIGITS):
            for value in self.values:
                point = {**self.point, self.symbol: value}
                one = self.left(left, point) if self.left else mpmath.mpmathify(number(instance(left, point)))
                two = mpmath.mpmathify(number(instance(right, point)))
                rest.append(abs(one / two - 1) if two else mpmath.inf)
                if not rest[0] < 1:
                    raise Mismatch(f"|ratio - 1| is {float(rest[0]):.2g} at {self.symbol} = {value}")
            growth = mpmath.mpf(self.values[-1]) / self.values[-2]
            needed = rest[-2] * growth ** (-0.9 * self.power)
            shown = ", ".join(f"{float(item):.2g}" for item in rest)
            if not (rest[-1] <= self.last and rest[-1] <= needed):
                raise Mismatch(f"|ratio - 1| is {shown}")
        values = ", ".join(f"{float(value):g}" for value in self.values)
        return f"|ratio - 1| = {shown} at {self.symbol} = {values}"


@dataclasses.dataclass(frozen=True)
class ForFunction:
    """An equation linear in an unknown function, checked for one family of functions, such as all powers."""

    function: Any
    member: sp.Lambda
    check: Identity

    def __call__(self, left: sp.Basic, right: sp.Basic) -> str:
        """Return the evidence, or raise `Mismatch`."""
        made = [side.subs(self.function, self.member).doit() for side in (left, right)]
        return f"{self.check(*made)}, for {self.function}({self.member.variables[0]}) = {self.member.expr}"


def _show(sizes: Sizes) -> str:
    return ", ".join(f"{key} = {value}" for key, value in sizes.items() if not isinstance(value, sp.MatrixBase))


__all__ = ["Average", "Expansion", "Identity", "Limit", "Mismatch", "Ratio"]
