"""Infinite depth, its 1/L corrections, and power laws with their prefactors: in the gain, time, depth and compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mpmath
import sympy as sp

from theory.symbolic.checks import Expansion, ForFunction, Identity, Limit, Ratio
from theory.symbolic.derivation import Builder
from theory.symbolic.symbols import A, D, L, beta, gamma, k, nu, time

TITLE = "Depth to infinity, and power laws with prefactors"
SUMMARY = (
    "At infinite depth each mode decays exponentially in the gain. On a power-law spectrum, lambda_k = k^-nu with "
    "lambda_k omega_k = A k^-(nu beta + 1), sums become Gamma functions: loss against gain, time, depth and compute, "
    "each with its prefactor."
)

y, u, e, c, s, b = sp.symbols("y u e C s b", positive=True)
G = sp.Function("G", positive=True)
DOMAIN = {beta: (0.3, 2.0), nu: (0.6, 2.0), gamma: (1.0, 9.0), A: (0.3, 2.0), time: (2.0, 9.0), L: (1.0, 9.0)}
MONOMIAL = ForFunction(G, sp.Lambda(s, s**b), Identity(domain=DOMAIN, exact=False))
# The infinite sum by its zeta series needs this many digits beyond the answer's at the largest gain.
SPARE_DIGITS = 75


def zeta_series(side: sp.Basic, point: Mapping[Any, Any]) -> mpmath.mpf:
    """Return Sum_(k>=1) c k^-p exp(-q k^-r) through its series in zeta functions, which converges for every q.

    Parameters
    ----------
    side : Sum
        The sum itself; c, p, q and r are read off it.
    point : mapping
        Values of its symbols.
    """
    sign, sum_ = side.as_coeff_Mul()
    term = sign * sum_.function.xreplace({key: sp.Rational(str(value)) for key, value in point.items()})
    exponential = next(iter(term.atoms(sp.exp)))
    front = term / exponential
    small, power_in = exponential.args[0].as_coeff_exponent(k)
    factor, power_out = front.as_coeff_exponent(k)
    if power_in >= 0 or power_out >= -1:
        return mpmath.inf
    with mpmath.workdps(mpmath.mp.dps + SPARE_DIGITS):
        q, r, p = (mpmath.mpmathify(value.evalf(mpmath.mp.dps)) for value in (small, -power_in, -power_out))
        total, size, order = mpmath.mpf(0), mpmath.mpf(1), 0
        while abs(size) > mpmath.mpf(10) ** (-mpmath.mp.dps) or order < abs(q):
            total += size * mpmath.zeta(p + r * order)
            order += 1
            size *= q / order
        return total * mpmath.mpmathify(factor.evalf(mpmath.mp.dps))


class Minimum(sp.Expr):
    """min over a symbol of an expression, for display; evaluated by `tied_minimum`."""

    def _latex(self, printer: Any) -> str:
        return rf"\min_{{{printer._print(self.args[1])}}} {printer._print(self.args[0])}"

    def _sympystr(self, printer: Any) -> str:
        return f"min over {self.args[1]} of {self.args[0]}"


def tied_minimum(side: sp.Basic, point: Mapping[Any, Any]) -> mpmath.mpf:
    """Return the minimum over the gain of Sum_k c k^-p (1 - gamma k^-r / L)^(2L): by zeta functions and bisection.

    Each power of the gain carries a zeta function; the loss is convex in the gain.
    """
    sign, minimum = side.as_coeff_Mul()
    body, name = minimum.args
    term = sign * body.function.xreplace({key: sp.Rational(str(value)) for key, value in point.items()})
    depth = int(point[L])
    with mpmath.workdps(mpmath.mp.dps + SPARE_DIGITS):
        base = next(item for item in term.atoms(sp.Pow) if item.base.has(name))
        inner = base.base.coeff(name, 1)
        step, ratio = inner.as_coeff_exponent(k)
        front, power = (term / base).as_coeff_exponent(k)
        if base.base.coeff(name, 0) != 1 or base.exp != 2 * depth or ratio >= 0 or power >= -1:
            return mpmath.inf
        q, r, p = (mpmath.mpmathify(value.evalf(mpmath.mp.dps)) for value in (step, -ratio, -power))
        terms = [mpmath.binomial(2 * depth, n) * q**n * mpmath.zeta(p + r * n) for n in range(2 * depth + 1)]
        slopes = [n * value for n, value in enumerate(terms)][1:]
        low, high = mpmath.mpf(0), mpmath.mpf(3 * depth)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if mpmath.polyval(slopes[::-1], middle) > 0 else (middle, high)
        return mpmath.mpmathify(front.evalf(mpmath.mp.dps)) * mpmath.polyval(terms[::-1], low)


def steps(build: Builder) -> None:
    """Add every step."""
    build.step(
        "infinite_depth",
        (1 - y / L) ** (2 * L),
        sp.exp(-2 * y),
        relation="->",
        statement="Each mode's factor at infinite depth, $y = \\gamma \\lambda_k$ held fixed.",
        reason="The limit that defines the exponential.",
        check=Limit(L),
    )
    build.step(
        "finite_depth",
        sp.exp(2 / e * sp.log(1 - e * y) + 2 * y),
        1 - y**2 * e + (y**4 / 2 - 2 * y**3 / 3) * e**2,
        statement="Its correction at finite depth, $e = 1/L$: the factor is $e^{-2y}$ times this.",
        reason="Expand the logarithm.",
        remainder="O\\left(e^{3}\\right)",
        check=Expansion(e, 3),
    )
    density = A * k ** (-nu * beta - 1) * sp.exp(-2 * gamma * k ** (-nu))
    law = build.given(
        "power_law",
        sp.Symbol("loss"),
        sp.Sum(density, (k, 1, sp.oo)),
        statement="The loss at infinite depth on the power-law spectrum.",
        assumptions=("$D \\to \\infty$: a truncated spectrum follows this until $\\gamma \\approx D^\\nu$",),
    )
    mode = (2 * gamma / u) ** (1 / nu)
    prefactor = A / nu * (2 * gamma) ** (-beta)
    real_mode = sp.Symbol("k", positive=True)
    smooth = density.xreplace({k: real_mode})
    build.step(
        "substitution",
        -smooth.subs(real_mode, mode) * sp.Derivative(mode, u),
        prefactor * u ** (beta - 1) * sp.exp(-u),
        statement="Substitute $u = 2\\gamma k^{-\\nu}$ in the integral over modes.",
        reason="$k = (2\\gamma/u)^{1/\\nu}$, and $u$ falls while $k$ grows.",
        check=Identity(domain=DOMAIN, exact=False),
    )
    in_gain = build.step(
        "gamma_integral",
        prefactor * sp.Integral(u ** (beta - 1) * sp.exp(-u), (u, 0, sp.oo)),
        A / nu * sp.gamma(beta) * (2 * gamma) ** (-beta),
        statement="What is left is Euler's integral.",
        reason="Definition of the Gamma function.",
        check=Identity(domain=DOMAIN),
    )
    build.step(
        "sum_to_integral",
        law,
        in_gain,
        relation="~",
        statement="The sum equals the integral up to exponentially small terms as the gain grows.",
        reason="Summand and all derivatives vanish at both ends, so every term of the Euler–Maclaurin formula "
        "vanishes.",
        check=Ratio(gamma, (4, 12, 24), 2, 1e-6, {nu: 1.5, beta: 0.75, A: 0.6}, left=zeta_series),
    )
    correction = sp.Integral(-(y**2) / (4 * L) * y ** (beta - 1) * sp.exp(-y), (y, 0, sp.oo)) / sp.gamma(beta)
    build.step(
        "depth_correction",
        correction,
        -beta * (beta + 1) / (4 * L),
        statement="Finite depth at fixed gain: the correction $-y^2/L$, averaged over modes (with $2y$ as the "
        "variable), "
        "lowers the loss by this relative amount.",
        reason="Euler's integral with two more powers, $\\Gamma(\\beta+2)/\\Gamma(\\beta) = \\beta(\\beta+1)$.",
        check=Identity(domain=DOMAIN),
        assumptions=("$\\gamma \\ll L$",),
    )
    slope = sp.Derivative(in_gain, gamma)
    speed = build.step(
        "speed",
        -slope / D,
        2 * A / (D * nu) * sp.gamma(beta + 1) * (2 * gamma) ** (-beta - 1),
        statement="Gradient flow at infinite depth, $d\\gamma/dt$, in the time of a learning rate that grows like $L$ "
        "(without it, read $t/L$ for $t$).",
        reason="Differentiate the loss; $\\beta\\Gamma(\\beta) = \\Gamma(\\beta + 1)$.",
        check=Identity(domain=DOMAIN),
    )
    rate = 4 * (beta + 2) * A * sp.gamma(beta + 1) / (D * nu)
    gain = (rate * time) ** (1 / (beta + 2)) / 2
    build.step(
        "gain_in_time",
        sp.Derivative(gain, time),
        speed.subs(gamma, gain),
        statement="The solution for late times is $\\gamma(t)$, a power of time.",
        reason="Separate variables: $(2\\gamma)^{\\beta+2}$ grows linearly.",
        check=Identity(domain=DOMAIN, exact=False),
        assumptions=("late times, where the start is forgotten",),
    )
    in_time = build.step(
        "loss_in_time",
        in_gain.subs(gamma, gain),
        A / nu * sp.gamma(beta) * (rate * time) ** (-beta / (beta + 2)),
        statement="The loss against time: exponent $-\\beta/(2+\\beta)$.",
        reason="Insert $\\gamma(t)$ in the loss against the gain.",
        check=Identity(domain=DOMAIN, exact=False),
    )
    build.step(
        "finite_depth_integral",
        sp.Integral(A / nu * u ** (beta - 1) * (1 - u) ** (2 * L), (u, 0, 1)),
        A / nu * sp.gamma(beta) * sp.gamma(2 * L + 1) / sp.gamma(2 * L + 1 + beta),
        statement="At depth $L$ with $\\gamma = L$, in $u = \\lambda$, the integral over modes is Euler's beta "
        "integral.",
        reason="$\\gamma\\lambda/L = \\lambda$ runs from 0 to 1 and $\\lambda\\omega$ has density $(A/\\nu) "
        "\\lambda^{\\beta-1}$.",
        check=Identity(tuple({L: depth} for depth in (1, 2)), domain=DOMAIN),
    )
    build.step(
        "beta_limit",
        sp.gamma(2 * L + 1) / sp.gamma(2 * L + 1 + beta),
        (2 * L) ** (-beta),
        relation="~",
        statement="For deep models this is the loss at infinite depth again, at $\\gamma = L$.",
        reason="Stirling's formula.",
        check=Ratio(L, (1e4, 1e5, 1e6), 1, 1e-5, {beta: 0.75}),
    )
    tied = build.step(
        "tied_optimum",
        in_gain.subs(gamma, 2 * L),
        A / nu * sp.gamma(beta) * (4 * L) ** (-beta),
        statement="The largest useful gain is $2L$: there the strongest mode, $\\lambda_1 = 1$, has $|1 - \\gamma/L| "
        "= 1$, "
        "beyond it that mode diverges. The best tied loss therefore follows this law.",
        reason="Below $2L$ the loss falls with the gain, and strong modes cost only exponentially little.",
        check=Identity(domain=DOMAIN),
        assumptions=("corrections are of relative size $\\log L / L$, as the next step shows",),
    )
    modes = sp.Sum(A * k ** (-nu * beta - 1) * (1 - gamma * k ** (-nu) / L) ** (2 * L), (k, 1, sp.oo))
    build.step(
        "tied_minimum",
        Minimum(modes, gamma),
        tied,
        relation="~",
        statement="The minimum itself, computed at growing depth.",
        reason="The approach is slow, of relative size $\\log L / L$, for the reason in the next step.",
        check=Ratio(L, (8, 16, 32, 64), 0.5, 0.1, {nu: 1.5, beta: 0.75, A: 0.6}, left=tied_minimum),
    )
    margin = (beta + 1) * sp.log(L) / (2 * L)
    build.step(
        "margin",
        sp.exp(-2 * L * margin),
        L ** (-beta - 1),
        statement="With $\\gamma = (2 - \\delta) L$ and $\\delta = (\\beta + 1) \\log L / (2L)$ the first mode costs "
        "$(1 - \\delta)^{2L} \\approx e^{-2L\\delta}$: a factor $L$ less than the tail. So the best $\\delta$ is of "
        "that "
        "size, and vanishes.",
        reason="Insert $\\delta$.",
        check=Identity(domain=DOMAIN),
    )
    collapsed = build.given(
        "scaling_form",
        sp.Symbol("loss"),
        L ** (-beta) * G(c * L ** (-(beta + 3))),
        statement="Loss against time and depth in one form: $L^{-\\beta} G(t/L^{\\beta+2})$, which joins the law in "
        "time "
        "to the tied optimum. At compute $C = L t$, the argument of $G$ is $C L^{-(\\beta+3)}$.",
        assumptions=("tied gains, power-law spectrum, $1 \\ll L$",),
    )
    build.step(
        "scaling_time",
        (L ** (-beta) * (time / L ** (beta + 2)) ** (-beta / (beta + 2))),
        time ** (-beta / (beta + 2)),
        statement="For early times, $G(s) \\propto s^{-\\beta/(\\beta+2)}$ and the depth drops out.",
        reason="Powers of $L$ cancel.",
        check=Identity(domain=DOMAIN, exact=False),
    )
    stationary = -beta * G(s) - (beta + 3) * s * sp.Derivative(G(s), s)
    build.step(
        "best_depth",
        L * sp.Derivative(collapsed, L) * L**beta,
        sp.Subs(stationary, s, c * L ** (-(beta + 3))),
        statement="At fixed compute the best depth solves an equation in $s = C L^{-(\\beta+3)}$ alone, so "
        "$L \\propto C^{1/(\\beta+3)}$.",
        reason="Chain rule.",
        check=MONOMIAL,
    )
    best = (c / s) ** (1 / (beta + 3))
    build.step(
        "loss_in_compute",
        collapsed.subs(L, best),
        s ** (beta / (beta + 3)) * G(s) * c ** (-beta / (beta + 3)),
        statement="The loss at the best depth: exponent $-\\beta/(3+\\beta)$ in compute.",
        reason="Insert the best depth, at fixed $s$.",
        check=MONOMIAL,
    )
    build.formula("loss_in_gain", in_gain, (A, nu, beta, gamma), summary="Loss against gain at infinite depth.")
    build.formula("loss_in_time", in_time, (A, nu, beta, D, time), summary="Loss against depth-scaled time, RRS.")
    build.formula("tied_optimum", tied, (A, nu, beta, L), summary="Best tied loss at depth L, leading order.")
    build.formula(
        "depth_correction", -beta * (beta + 1) / (4 * L), (beta, L), summary="Relative correction at fixed gain."
    )
