"""Finite context, isotropic data: Marchenko-Pastur moments, orthogonal polynomials, and the optimum at every depth."""

from __future__ import annotations

import sympy as sp

from theory.symbolic.averages import Average, MomentAverage
from theory.symbolic.checks import Identity, Limit
from theory.symbolic.derivation import Builder
from theory.symbolic.symbols import D, L, P, alpha, gamma, j, sigma2, x

TITLE = "Marchenko–Pastur and the isotropic optimum"
SUMMARY = (
    "With P tokens of isotropic data the eigenvalues of the sample covariance spread, and depth pays for that spread. "
    "In the limit of large dimension at fixed alpha = P/D the untied optimum has a closed form at every depth."
)

z = sp.IndexedBase("z", real=True)
a, b, mu, nu_ = (sp.Symbol(name, positive=True, integer=True) for name in ("i", "j", "mu", "nu"))
i3, mu3 = sp.symbols("k rho", positive=True, integer=True)
phi, g, p = (sp.Symbol(name, positive=True) for name in ("phi", "g", "p"))
SMALL = tuple({D: dim, P: context} for dim, context in ((1, 1), (1, 2), (2, 1), (2, 2)))
DOMAIN = {alpha: (1.3, 4.0), phi: (0.3, 2.5), g: (0.2, 0.9)}


def narayana(order: int) -> sp.Expr:
    """Return the moment of this order of the Marchenko-Pastur law of mean 1, a Narayana polynomial in 1/alpha."""
    terms = [sp.binomial(order, r) * sp.binomial(order - 1, r) / sp.Integer(r + 1) * alpha**-r for r in range(order)]
    return sp.Add(*terms) if order else sp.S.One


def average(polynomial: sp.Expr) -> MomentAverage:
    """Return the integral of a polynomial in x, of degree up to 6, against the law."""
    return MomentAverage(polynomial, x, [narayana(order) for order in range(1, 7)])


def orthogonal(order: int) -> sp.Expr:
    """Return the monic orthogonal polynomial of this degree, by its recursion."""
    before, now = sp.S.Zero, sp.S.One
    for degree in range(order):
        shift = 1 if degree == 0 else 1 + 1 / alpha
        before, now = now, sp.expand((x - shift) * now - (before / alpha if degree else 0))
    return now


def steps(build: Builder) -> None:
    """Add every step."""
    trace2 = sp.Sum(z[a, mu] * z[b, mu] * z[b, nu_] * z[a, nu_], (a, 1, D), (b, 1, D), (mu, 1, P), (nu_, 1, P))
    second = build.step(
        "second_moment",
        Average(trace2, (z,)) / (D * P**2),
        1 + (D + 1) / P,
        statement="The mean of $\\mathrm{tr}\\,\\hat\\Sigma^2 / D$ for $P$ standard normal tokens, exact at every "
        "size.",
        reason="Pair the normal variables (Isserlis).",
        check=Identity((*SMALL, {D: 3, P: 2})),
    )
    trace3 = sp.Sum(
        z[a, mu] * z[b, mu] * z[b, nu_] * z[i3, nu_] * z[i3, mu3] * z[a, mu3],
        *((index, 1, D) for index in (a, b, i3)),
        *((index, 1, P) for index in (mu, nu_, mu3)),
    )
    third = build.step(
        "third_moment",
        Average(trace3, (z,)) / (D * P**3),
        1 + 3 * (D + 1) / P + (D**2 + 3 * D + 4) / P**2,
        statement="The mean of $\\mathrm{tr}\\,\\hat\\Sigma^3 / D$, exact at every size.",
        reason="Pair the normal variables (Isserlis).",
        check=Identity(SMALL),
    )
    for name, exact, order in (("second", second, 2), ("third", third, 3)):
        build.step(
            f"{name}_limit",
            exact.subs(D, P / alpha),
            narayana(order),
            relation="->",
            statement="In the proportional limit, $P = \\alpha D \\to \\infty$.",
            reason="Drop what vanishes.",
            check=Limit(P),
        )
    point = 1 + 1 / alpha + 2 / sp.sqrt(alpha) * sp.cos(phi)
    density = (
        alpha * sp.sqrt((x - (1 - 1 / sp.sqrt(alpha)) ** 2) * ((1 + 1 / sp.sqrt(alpha)) ** 2 - x)) / (2 * sp.pi * x)
    )
    build.step(
        "density",
        -density.subs(x, point) * sp.Derivative(point, phi),
        2 / sp.pi * sp.sin(phi) ** 2 / point,
        statement="The Marchenko–Pastur density in the angle $\\varphi$, with $x = 1 + 1/\\alpha + "
        "(2/\\sqrt\\alpha)\\cos\\varphi$.",
        reason="The root becomes a sine. (For $\\alpha < 1$ the weight that is missing from 1 sits at $x = 0$.)",
        check=Identity(domain=DOMAIN, exact=False),
    )
    for order in (1, 2, 3, 4):
        build.step(
            f"narayana_{order}",
            sp.Integral(2 / sp.pi * sp.sin(phi) ** 2 * point ** (order - 1), (phi, 0, sp.pi)),
            narayana(order),
            statement=f"Its moment of order {order}: a Narayana polynomial, the limit of the exact moments above.",
            reason="Integrate powers of the cosine.",
            check=Identity(domain=DOMAIN),
        )
    for order in (1, 2):
        build.step(
            f"norm_{order}",
            average(orthogonal(order) ** 2),
            alpha**-order,
            statement="The monic polynomials $P_1 = x - 1$, $P_{n+1} = (x - 1 - 1/\\alpha) P_n - P_{n-1}/\\alpha$ "
            "have the "
            f"norms $\\alpha^{{-n}}$ under this law (degree {order})",
            reason="Insert the moments.",
        )
        build.step(
            f"centre_{order}",
            average(x * orthogonal(order) ** 2),
            (1 + 1 / alpha) * alpha**-order,
            statement="and the mean $E[x P_n^2] = (1 + 1/\\alpha)\\, \\alpha^{-n}$: the recursion is Stieltjes' own, "
            "which "
            "makes them orthogonal.",
            reason="Insert the moments.",
            check=Identity(domain=DOMAIN),
        )
    build.step(
        "at_zero",
        -(1 + 1 / alpha) * p - (-p) / alpha,
        -p,
        statement="At $x = 0$ the polynomials alternate: if $P_{n-1}(0) = -p$ and $P_n(0) = p$, then $P_{n+1}(0) = "
        "-p$. "
        "It begins with $1$ and $-1$.",
        reason="The terms in $1/\\alpha$ cancel.",
        check=Identity(domain=DOMAIN),
    )
    floor = build.step(
        "floor",
        1 / sp.Sum(alpha**j, (j, 0, L)),
        (1 - alpha) / (1 - alpha ** (L + 1)),
        statement="So $p_n(0)^2 = \\alpha^n$, and the untied optimum at depth $L$ is one over their sum.",
        reason="Christoffel function (see the untied optimum), and the geometric sum.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3, 5)), domain=DOMAIN),
        assumptions=("no label noise",),
    )
    build.step(
        "floor_critical",
        1 / sp.Sum(sp.S.One**j, (j, 0, L)),
        1 / (L + 1),
        statement="At $P = D$ it is a law in $1/L$, from the spectrum alone.",
        reason="$L + 1$ equal terms.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3, 5))),
    )
    build.step(
        "floor_deep",
        floor - (1 - alpha),
        alpha ** (L + 1) * (1 - alpha) / (1 - alpha ** (L + 1)),
        statement="With fewer tokens than dimensions a share $1 - \\alpha$ of the task is invisible at any depth; "
        "the rest "
        "is learned exponentially fast.",
        reason="Subtract.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3)), domain=DOMAIN),
        assumptions=("$\\alpha < 1$ for the reading; the identity holds for any",),
    )
    exact_loss = 1 - 2 * gamma + gamma**2 * second
    build.step(
        "one_layer_exact",
        exact_loss.subs(gamma, P / (P + D + 1)),
        (D + 1) / (P + D + 1),
        statement="Depth 1 at any size: the loss $1 - 2\\gamma + \\gamma^2\\, E\\,\\mathrm{tr}\\hat\\Sigma^2/D$ is "
        "least at "
        "$\\gamma = P/(P + D + 1)$.",
        reason="A parabola in the gain.",
    )
    limit_loss = 1 - 2 * gamma + gamma**2 * narayana(2)
    build.step(
        "one_layer",
        limit_loss.subs(gamma, alpha / (1 + alpha)),
        1 / (1 + alpha),
        statement="In the limit, depth 1: $\\gamma = \\alpha/(1+\\alpha)$.",
        reason="A parabola in the gain; the same as the floor at $L = 1$.",
    )
    noisy = limit_loss + sigma2 * gamma**2 / alpha
    build.step(
        "one_layer_noisy",
        noisy.subs(gamma, alpha / (1 + alpha + sigma2)),
        (1 + sigma2) / (1 + alpha + sigma2),
        statement="With label noise, which adds $(\\sigma^2/P)\\,\\mathrm{tr}(\\gamma^2 \\hat\\Sigma) = "
        "\\sigma^2\\gamma^2/\\alpha$.",
        reason="A parabola again.",
    )
    kernel = sum((-1) ** order * alpha**order * orthogonal(order) for order in range(3))
    best = kernel / (1 + alpha + alpha**2)
    build.step(
        "two_layers_polynomial",
        best.subs(x, 0),
        1,
        statement="Depth 2, untied: the extremal polynomial is $\\sum_n \\alpha^n P_n(0) P_n(x)$ over $1 + \\alpha + "
        "\\alpha^2$; "
        "it is 1 at zero,",
        reason="$P_n(0)^2 = 1$.",
    )
    build.step(
        "two_layers",
        average(best**2),
        1 / (1 + alpha + alpha**2),
        statement="and its loss is the floor at $L = 2$.",
        reason="Insert the moments up to order 4.",
        check=Identity(domain=DOMAIN),
    )
    tied = 1 - 4 * g + 6 * g**2 * narayana(2) - 4 * g**3 * narayana(3) + g**4 * narayana(4)
    build.step(
        "two_layers_tied",
        average((1 - g * x) ** 4),
        tied,
        statement="Depth 2, tied, $g = \\gamma/2$: a quartic in the gain.",
        reason="Expand, insert the moments.",
        check=Identity(domain=DOMAIN),
    )
    build.step(
        "two_layers_tied_optimum",
        sp.Derivative(average((1 - g * x) ** 4), g) / 4,
        g**3 * narayana(4) - 3 * g**2 * narayana(3) + 3 * g * narayana(2) - 1,
        statement="The best tied gain is the real zero of this cubic.",
        reason="Differentiate.",
        check=Identity(domain=DOMAIN),
    )
    build.formula("floor", 1 / sp.Sum(alpha**j, (j, 0, L)), (alpha, L), summary="Untied optimum, ISO, P/D = alpha.")
    build.formula(
        "one_layer_noisy", (1 + sigma2) / (1 + alpha + sigma2), (alpha, sigma2), summary="Depth 1 with label noise."
    )
    build.formula("one_layer_exact", (D + 1) / (P + D + 1), (D, P), summary="Depth 1 optimum at finite size, ISO.")
    build.formula(
        "two_layers_tied_slope",
        g**3 * narayana(4) - 3 * g**2 * narayana(3) + 3 * g * narayana(2) - 1,
        (g, alpha),
        summary="Vanishes at the best tied g = gamma/2 of depth 2, ISO.",
    )
    build.formula("second_moment", second, (D, P), summary="E tr(Sigma_hat^2)/D, ISO.")
    build.formula("third_moment", third, (D, P), summary="E tr(Sigma_hat^3)/D, ISO.")
