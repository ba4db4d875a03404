"""Nonlinear attention as a kernel: where it must equal linear attention, and where it can act otherwise."""

from __future__ import annotations

import sympy as sp

from theory.symbolic.averages import Average, MomentAverage
from theory.symbolic.checks import Expansion, Identity
from theory.symbolic.derivation import Builder
from theory.symbolic.symbols import D, L, l, n

TITLE = "The kernel view of nonlinear attention"
SUMMARY = (
    "On an infinite Gaussian context softmax attention reads out a tilted mean, which is linear: it equals linear "
    "attention. Nonlinearity can act only through a finite context, non-Gaussian data, or a coupled stream; and in "
    "the "
    "proportional limit a kernel acts as linear + constant + identity, the identity being an implicit ridge."
)

z = sp.IndexedBase("z", real=True)
y = sp.IndexedBase("y", real=True)
i = sp.Symbol("i", positive=True, integer=True)
s1, s2 = sp.symbols("s_1 s_2", positive=True)
u1, u2, u, w, w1, w2 = sp.symbols("u_1 u_2 u w w_1 w_2", real=True)
k2 = sp.Symbol("kappa_2", positive=True)
k3, k4 = sp.symbols("kappa_3 kappa_4", real=True)
s, ridge, kap, tau, g = (sp.Symbol(name, positive=True) for name in ("s", "upsilon", "kappa", "tau", "g"))
f0, f1, f2, fd = sp.symbols("f_0 f_1 f_2 f_D", real=True)
x = sp.IndexedBase("x", real=True)


def steps(build: Builder) -> None:
    """Add every step."""
    infinite_context(build)
    finite_context(build)
    proportional_limit(build)


def infinite_context(build: Builder) -> None:
    """Add what attention reads out when averages over tokens are exact."""
    token = (s1 * z[1], s2 * z[2])
    tilt = sp.exp(u1 * token[0] + u2 * token[1])
    label = w1 * token[0] + w2 * token[1]
    weight = Average(tilt, (z[1], z[2]))
    mean = build.step(
        "tilted_mean",
        Average(token[0] * tilt, (z[1], z[2])) / weight,
        s1**2 * u1,
        statement="Softmax weights $e^{u\\cdot x}$, $u = \\Gamma^T x_q$, tilt the Gaussian: its mean becomes "
        "$\\Sigma u$ "
        "(first of two components, $\\Sigma = \\mathrm{diag}(s_1^2, s_2^2)$),",
        reason="Complete the square.",
        assumptions=("$P \\to \\infty$", "Gaussian covariates"),
    )
    build.step(
        "tilted_covariance",
        Average(token[0] ** 2 * tilt, (z[1], z[2])) / weight - mean**2,
        s1**2,
        statement="and its covariance does not change.",
        reason="Complete the square.",
    )
    build.step(
        "softmax_is_linear",
        Average(label * tilt, (z[1], z[2])) / weight,
        Average(label * (u1 * token[0] + u2 * token[1]), (z[1], z[2])),
        statement="Labels linear in $x$ are read out as $w^T \\Sigma u$: exactly what linear attention reads out, at "
        "any "
        "score strength. Labels stay linear, so this holds layer after layer.",
        reason="The tilted mean of a linear function.",
        assumptions=("labels linear in $x$, noise independent of $x$", "covariates do not move (reduced model)"),
    )
    build.step(
        "stein",
        Average((u * s * z[1]) ** n * w * s * z[1], (z[1],)),
        w * s**2 * u * n * Average((u * s * z[1]) ** (n - 1), (z[1],)),
        statement="Any kernel $\\phi$ of the score, not normalised: $E[\\phi\\, w\\cdot x] = E[\\phi']\\, w^T\\Sigma "
        "u$, linear "
        "up to a gain that depends on the query's length (shown for powers).",
        reason="Gaussian integration by parts (Stein).",
        check=Identity(tuple({n: power} for power in (1, 2, 3, 4, 5))),
    )
    v = sp.Symbol("v", real=True)
    gauss = sp.exp(-(v**2) / 2) / sp.sqrt(2 * sp.pi)
    for name, kernel, low, gain, words in (
        ("relu", v, 0, sp.Rational(1, 2), "relu halves"),
        ("sine", sp.sin(v), -sp.oo, sp.exp(sp.Rational(-1, 2)), "a sine kernel weakens (and an even kernel erases)"),
    ):
        build.step(
            f"gain_{name}",
            sp.Integral(kernel * v * gauss, (v, low, sp.oo)),
            gain,
            statement=f"So on an infinite Gaussian context {words} the readout (unit variance).",
            reason="Stein's gain $E[\\phi']$.",
        )
    moments = (sp.S.Zero, k2, k3, k4 + 3 * k2**2)
    series = sum(u**power / sp.factorial(power) * x[1] ** power for power in range(5))
    build.step(
        "not_gaussian",
        sp.Derivative(sp.log(MomentAverage(series, x, moments)), u),
        k2 * u + k3 * u**2 / 2 + k4 * u**3 / 6,
        statement="Data that are not Gaussian are read out with the cumulants $\\kappa_3, \\kappa_4$: here "
        "nonlinearity acts.",
        reason="The tilted mean is the derivative of the cumulant generating function.",
        remainder="O\\left(u^{4}\\right)",
        check=Expansion(u, 4),
    )
    build.formula(
        "not_gaussian", k2 * u + k3 * u**2 / 2 + k4 * u**3 / 6, (k2, k3, k4, u), summary="Tilted mean, to u^3."
    )


def finite_context(build: Builder) -> None:
    """Add the variance and bias of softmax attention over P tokens."""
    token = s * z[1]
    tilt = sp.exp(u * token)
    centred = w * token - w * s**2 * u
    weight = Average(tilt, (z[1],))
    variance = build.step(
        "finite_variance",
        Average(tilt**2 * centred**2, (z[1],)) / weight**2,
        sp.exp(s**2 * u**2) * (w**2 * s**2 + w**2 * s**4 * u**2),
        statement="Over $P$ tokens the readout is a ratio of two sums. $P$ times its variance, to leading order: "
        "strong "
        "scores leave only $P e^{-u^T\\Sigma u}$ effective tokens.",
        reason="Delta method; $e^{2 u x}$ tilts by twice as much.",
        assumptions=("$P \\gg e^{u^T \\Sigma u}$",),
    )
    bias = build.step(
        "finite_bias",
        -Average(tilt**2 * centred, (z[1],)) / weight**2,
        -sp.exp(s**2 * u**2) * w * s**2 * u,
        statement="$P$ times its bias, to leading order: the readout is weakened.",
        reason="Second order of the delta method.",
        assumptions=("$P \\gg e^{u^T \\Sigma u}$",),
    )
    build.formula(
        "finite_variance", variance, (s, u, w), summary="P x variance of softmax attention over P tokens, 1-d."
    )
    build.formula("finite_bias", bias, (s, u, w), summary="P x bias of softmax attention over P tokens, 1-d.")


def proportional_limit(build: Builder) -> None:
    """Add what a kernel matrix becomes when P and D grow together."""
    score = sp.Sum(z[i] * y[i], (i, 1, D)) / D
    own = sp.Sum(z[i] ** 2, (i, 1, D)) / D
    dims = tuple({D: dim} for dim in (1, 2, 3))
    spread = build.step(
        "score_spread",
        Average(score**2, (z, y)),
        1 / D,
        statement="$P$ and $D$ large together: scores $x_\\mu\\cdot x_\\nu/D$ between different tokens are small,",
        reason="Independent terms.",
        check=Identity(dims),
        assumptions=("isotropic covariates; $f$ smooth",),
    )
    build.step(
        "score_own",
        Average(own**2, (z,)) - Average(own, (z,)) ** 2,
        2 / D,
        statement="while a token's score with itself concentrates at 1.",
        reason="$\\mathrm{Var}\\, z^2 = 2$.",
        check=Identity(dims),
    )
    build.step(
        "off_diagonal",
        Average(f0 + f1 * score + f2 * score**2 / 2, (z, y)),
        f0 + f2 * spread / 2,
        statement="So off the diagonal a kernel $f$ is its Taylor series: a constant, a linear kernel, and a "
        "fluctuation "
        "whose matrix norm vanishes; here its mean, in the derivatives $f_0, f_1, f_2$ at 0.",
        reason="El Karoui (2010): the rest has vanishing operator norm.",
        check=Identity(dims),
    )
    identity = build.given(
        "identity_part",
        ridge,
        fd - f0 - f1,
        statement="On the diagonal $f$ takes its true value $f_D = f(1)$. Name what that has beyond constant and "
        "linear.",
    )
    build.step(
        "on_diagonal",
        f0 + f1 * Average(own, (z,)) + identity,
        fd,
        statement="So the kernel matrix is constant + linear + $\\upsilon$ times the identity.",
        reason="$x_\\mu\\cdot x_\\mu/D \\to 1$.",
        check=Identity(dims),
    )
    build.step(
        "exponential",
        identity.xreplace(
            {
                f0: sp.exp(g * tau).subs(tau, 0),
                f1: sp.Derivative(sp.exp(g * tau), tau).doit().subs(tau, 0),
                fd: sp.exp(g),
            }
        ),
        sp.exp(g) - 1 - g,
        statement="For exponential (softmax) scores of strength $g$ it is positive.",
        reason="$f(t) = e^{g t}$.",
    )
    build.step(
        "ridge",
        sp.Integral(kap * sp.exp(-(kap + ridge) * tau), (tau, 0, sp.oo)),
        kap / (kap + ridge),
        statement="Through many layers an eigenmode of the linear kernel, eigenvalue $\\kappa$, decays at the rate "
        "$\\kappa + \\upsilon$, and the query collects $\\kappa$ of it: kernel ridge regression with ridge "
        "$\\upsilon$.",
        reason="The query has no self-term.",
        assumptions=(
            "constant part removed by centring; $L \\to \\infty$ at fixed $\\tau = \\sum_l \\gamma_l / L$, then "
            "$\\tau \\to \\infty$",
        ),
    )
    shrink = 1 - g * (kap + ridge) / L
    collected = build.step(
        "ridge_depth",
        sp.Sum(g * kap / L * shrink ** (l - 1), (l, 1, L)),
        kap / (kap + ridge) * (1 - shrink**L),
        statement="The same at depth $L$ with equal gains $g$.",
        reason="A geometric sum.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3, 4))),
    )
    build.formula(
        "implicit_ridge", sp.exp(g) - 1 - g, (g,), summary="Implicit ridge of exponential scores of strength g."
    )
    build.formula("ridge_depth", collected, (kap, ridge, g, L), summary="Share of a kernel mode learned at depth L.")
