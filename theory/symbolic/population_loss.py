"""The population loss in the three settings, why Gamma stays a multiple of I under rotations, and the factor 1/D."""

from __future__ import annotations

import itertools
from typing import Any

import sympy as sp

from theory.symbolic.averages import Average
from theory.symbolic.checks import Identity
from theory.symbolic.derivation import Builder
from theory.symbolic.symbols import D, L, gains, gamma, k, l, lam, omega

TITLE = "The population loss"
SUMMARY = (
    "With infinitely many context tokens the sample covariance is the population covariance, and the loss is a sum "
    "over its modes. Random rotations (RRS) force one gain a layer; a fixed eigenbasis (FS) allows one gain a layer "
    "and mode; ISO has a single mode, repeated."
)

SIZES = tuple({D: dim, L: depth} for dim, depth in ((1, 1), (2, 1), (2, 3), (3, 2)))
z = sp.IndexedBase("z", real=True)
theta = sp.Symbol("theta", real=True)
TURN = sp.Matrix([[sp.cos(theta), -sp.sin(theta)], [sp.sin(theta), sp.cos(theta)]])


def mode_loss() -> sp.Expr:
    """Return the RRS loss, sum_k lambda_k omega_k prod_l (1 - gamma_l lambda_k / L)^2."""
    factor = sp.Product((1 - gains[l] * lam[k] / L) ** 2, (l, 1, L))
    return sp.Sum(lam[k] * omega[k] * factor, (k, 1, D))


def tied_loss() -> sp.Expr:
    """Return the loss with one gain for all layers."""
    return sp.Sum(lam[k] * omega[k] * (1 - gamma * lam[k] / L) ** (2 * L), (k, 1, D))


def group_average(matrix: sp.Matrix) -> sp.Matrix:
    """Return the average of R M R^T over all signed permutations R, a finite group of rotations and reflections."""
    dim = matrix.rows
    group = [
        (order, signs)
        for order in itertools.permutations(range(dim))
        for signs in itertools.product((1, -1), repeat=dim)
    ]

    def entry(i: int, j: int) -> sp.Expr:
        return sp.Add(*[s[i] * s[j] * matrix[o[i], o[j]] for o, s in group]) / len(group)

    return sp.ImmutableMatrix(dim, dim, entry)


def symmetric(name: str, dim: int) -> sp.Matrix:
    """Return a symmetric matrix of symbols."""
    return sp.Matrix(dim, dim, lambda i, j: sp.Symbol(f"{name}{min(i, j)}{max(i, j)}", real=True))


def context_gradient(turn: sp.Matrix) -> sp.Matrix:
    """Return d loss / d Gamma_1 of a two-mode, two-layer context rotated by ``turn``, at Gamma_l = gamma_l I."""
    covariance = turn * sp.Matrix([[lam[1], 0], [0, lam[2]]]) * turn.T
    power = turn * sp.Matrix([[omega[1], 0], [0, omega[2]]]) * turn.T
    step = sp.Symbol("step", real=True)

    def entry(i: int, j: int) -> sp.Expr:
        moved = sp.eye(2) * gains[1] + sp.Matrix(2, 2, lambda a, b: step if (a, b) == (i, j) else 0)
        passed = (sp.eye(2) - gains[2] * covariance / 2) * (sp.eye(2) - moved * covariance / 2)
        return (power * passed.T * covariance * passed).trace().diff(step).xreplace({step: sp.S.Zero})

    return sp.ImmutableMatrix(2, 2, entry)


class HaarAverage(sp.Expr):
    """The average of O M O^T over rotations in a dimension, for display; ``doit()`` averages over a finite group."""

    def doit(self, **hints: Any) -> sp.Matrix:
        """Return the average as a matrix."""
        return group_average(symmetric("M", int(self.args[0])))

    def _latex(self, printer: Any) -> str:
        return r"\mathbb{E}_O\left[O M O^T\right]"


class ContextGradient(sp.Expr):
    """The gradient of one context's loss, rotated by an angle, for display; ``doit()`` differentiates."""

    def doit(self, **hints: Any) -> sp.Matrix:
        """Return the matrix of derivatives."""
        angle = self.args[0]
        return context_gradient(TURN.xreplace({theta: angle}) if angle != 0 else sp.eye(2))

    def _latex(self, printer: Any) -> str:
        turned = "" if self.args[0] == 0 else "_O"
        return rf"\nabla_{{\Gamma_1}} \ell{turned}"


def steps(build: Builder) -> None:
    """Add every step."""
    loss = build.given(
        "loss",
        sp.Symbol("loss"),
        mode_loss(),
        statement="Population, RRS. In the covariance eigenbasis the residual weight of mode $k$ is "
        "$v_k = w_k \\prod_l (1 - \\gamma_l \\lambda_k / L)$, and the loss is $E\\, v^T \\Sigma v$.",
        assumptions=("$P \\to \\infty$", "no label noise: its share falls like $1/P$"),
    )
    weights = [sp.sqrt(omega[mode]) * z[mode] for mode in (1, 2)]
    residual = [
        w * sp.Product(1 - gains[l] * lam[mode] / L, (l, 1, L)) for mode, w in ((1, weights[0]), (2, weights[1]))
    ]
    build.step(
        "from_residual",
        Average(lam[1] * residual[0] ** 2 + lam[2] * residual[1] ** 2, (z[1], z[2])),
        loss.subs(D, 2),
        statement="Averaging over the task gives that sum (written for two modes).",
        reason="$E[w_j w_k] = \\omega_k \\delta_{jk}$.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3))),
        assumptions=("task components of different modes are uncorrelated",),
    )
    isotropic = build.step(
        "isotropic",
        loss.xreplace({lam[k]: sp.S.One, omega[k]: 1 / D}),
        sp.Product((1 - gains[l] / L) ** 2, (l, 1, L)),
        statement="ISO: all eigenvalues are 1 and the task power is shared equally.",
        reason="The summands no longer depend on $k$.",
        check=Identity(SIZES),
    )
    per_mode = sp.IndexedBase("gamma", real=True)
    fixed = sp.Sum(lam[k] * omega[k] * sp.Product((1 - per_mode[l, k] * lam[k] / L) ** 2, (l, 1, L)), (k, 1, D))
    own = [
        w * sp.Product(1 - per_mode[l, mode] * lam[mode] / L, (l, 1, L))
        for mode, w in ((1, weights[0]), (2, weights[1]))
    ]
    build.step(
        "fixed_basis",
        Average(lam[1] * own[0] ** 2 + lam[2] * own[1] ** 2, (z[1], z[2])),
        fixed.subs(D, 2),
        statement="FS: in a fixed eigenbasis $\\Gamma_l$ can hold a gain for each mode (again written for two modes).",
        reason="A diagonal $\\Gamma_l$ commutes with $\\Sigma$.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3))),
    )
    for dim, name in ((2, "two"), (3, "three")):
        matrix = symmetric("M", dim)
        build.step(
            f"haar_{name}",
            HaarAverage(sp.Integer(dim)),
            sp.ImmutableMatrix(sp.eye(dim) * matrix.trace() / dim),
            statement=f"The Haar average of $O M O^T$ is $(\\mathrm{{tr}} M/D)\\, I$. It is unchanged by further "
            f"rotations, so it equals its own average over the signed permutations, computed here for $D = {dim}$.",
            reason="Flipping a sign kills every off-diagonal entry; permuting equates the diagonal ones.",
        )
    force_one = -(lam[k] ** 2) * omega[k] * (1 - gains[1] * lam[k] / 2) * (1 - gains[2] * lam[k] / 2) ** 2
    aligned = sp.ImmutableMatrix([[force_one.subs(k, 1), 0], [0, force_one.subs(k, 2)]])
    build.step(
        "context_gradient",
        ContextGradient(sp.S.Zero),
        aligned,
        statement="The gradient of one context's loss with respect to all entries of $\\Gamma_1$, at $\\Gamma_l = "
        "\\gamma_l I$, in the context's own eigenbasis (two layers, two modes): diagonal, one force a mode.",
        reason="Differentiate entry by entry, then set $\\Gamma_l = \\gamma_l I$.",
    )
    build.step(
        "conjugation",
        ContextGradient(theta),
        TURN * aligned * TURN.T,
        statement="In a context rotated by $O$ the gradient is $O G O^T$.",
        reason="The loss of a rotated context is the loss of the unrotated one with $O^T \\Gamma_l O$.",
        check=Identity(exact=False),
    )
    two_layers = loss.subs({D: 2, L: 2})
    build.step(
        "factor_one_over_dim",
        sp.ImmutableMatrix(sp.eye(2) * aligned.trace() / 2),
        sp.ImmutableMatrix(sp.eye(2) * sp.Derivative(two_layers, gains[1]) / 2),
        statement="Its Haar average is $I/D$ times its trace, and the trace is the derivative of the loss with "
        "respect "
        "to the gain. So $\\Gamma_l$ stays a multiple of $I$, and $d\\gamma_l/dt = -(1/D)\\, \\partial\\, loss / "
        "\\partial \\gamma_l$.",
        reason="The average of $O G O^T$ above, and the population loss differentiated.",
    )
    tied = build.step(
        "tied",
        loss.xreplace({gains[l]: gamma}),
        tied_loss(),
        statement="With the same gain in every layer the product is a power.",
        reason="$L$ equal factors, squared.",
        check=Identity(SIZES),
    )
    force = sp.Sum(lam[k] ** 2 * omega[k] * (1 - gamma * lam[k] / L) ** (2 * L - 1), (k, 1, D))
    build.step(
        "tied_flow",
        -sp.Derivative(tied, gamma) / (D * L),
        2 / (D * L) * force,
        statement="Gradient flow from equal gains, $d\\gamma/dt$: each layer feels $1/L$ of the derivative along the "
        "tied direction, and $1/D$ from the rotations.",
        reason="$d\\,loss/d\\gamma = \\sum_l \\partial\\, loss/\\partial\\gamma_l$, and all $L$ terms are equal.",
        check=Identity(SIZES),
    )
    build.formula("loss", loss, (lam, omega, gains, D, L), summary="Population loss of the reduced linear model, RRS.")
    build.formula("isotropic", isotropic, (gains, L), summary="Population loss, ISO.")
    build.formula("fixed_basis", fixed, (lam, omega, per_mode, D, L), summary="Population loss, FS.")
    build.formula("tied", tied, (lam, omega, gamma, D, L), summary="Population loss with one gain for all layers.")
    build.formula(
        "tied_flow", 2 / (D * L) * force, (lam, omega, gamma, D, L), summary="d gamma/dt of the tied gradient flow."
    )
