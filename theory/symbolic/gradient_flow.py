"""Gradient flow of the gains: tied, untied and per mode; the tied manifold is invariant and unstable."""

from __future__ import annotations

import sympy as sp

from theory.symbolic.checks import Identity
from theory.symbolic.derivation import Builder
from theory.symbolic.population_loss import mode_loss, tied_loss
from theory.symbolic.symbols import D, L, gains, gamma, j, k, l, lam, m, omega, time

TITLE = "Gradient flow and the tied manifold"
SUMMARY = (
    "Layers that start equal stay equal, but only exactly so: the loss curves down in every direction that tells "
    "layers "
    "apart, so noise separates them. In a fixed eigenbasis every mode learns by itself, in closed form."
)

DEPTHS = tuple({D: dim, L: depth} for dim, depth in ((1, 1), (1, 2), (2, 3), (1, 4)))


def curvature() -> sp.Expr:
    """Return sum_k lambda_k omega_k (lambda_k/L)^2 (1 - gamma lambda_k/L)^(2L-2)."""
    term = lam[k] * omega[k] * (lam[k] / L) ** 2 * (1 - gamma * lam[k] / L) ** (2 * L - 2)
    return sp.Sum(term, (k, 1, D))


def hessian(depth: int, dim: int) -> sp.Matrix:
    """Return the matrix of second derivatives in the gains at a tied point, differentiated entry by entry."""
    loss = mode_loss().subs({L: depth, D: dim}).doit()
    names = [gains[layer] for layer in range(1, depth + 1)]
    return sp.hessian(loss, names).subs(dict.fromkeys(names, gamma))


def steps(build: Builder) -> None:
    """Add every step."""
    loss = build.given("loss", sp.Symbol("loss"), mode_loss(), statement="The population loss, one gain a layer (RRS).")
    others = sp.Product((1 - gains[m] * lam[k] / L) ** 2, (m, 2, L))
    build.step(
        "force",
        -sp.Derivative(loss, gains[1]) / D,
        2 / (D * L) * sp.Sum(lam[k] ** 2 * omega[k] * (1 - gains[1] * lam[k] / L) * others, (k, 1, D)),
        statement="The untied flow $d\\gamma_1/dt$ (and likewise for every layer: the loss does not depend on their "
        "order).",
        reason="Only one factor of the product depends on $\\gamma_1$.",
        check=Identity(DEPTHS),
    )
    rest = sp.Product((1 - gains[m] * lam[k] / L) ** 2, (m, 3, L))
    pair = (1 - gains[1] * lam[k] / L) * (1 - gains[2] * lam[k] / L)
    build.step(
        "difference",
        -(sp.Derivative(loss, gains[1]) - sp.Derivative(loss, gains[2])) / D,
        2 * (gains[1] - gains[2]) / (D * L) * sp.Sum(lam[k] ** 3 * omega[k] / L * pair * rest, (k, 1, D)),
        statement="The motion of a difference, $d(\\gamma_1 - \\gamma_2)/dt$, is the difference itself times a rate: "
        "equal layers stay equal (the tied manifold is invariant), and the rate is positive there.",
        reason="The two forces differ in $(1-\\gamma_2\\lambda/L) - (1-\\gamma_1\\lambda/L) = "
        "(\\gamma_1-\\gamma_2)\\lambda/L$.",
        check=Identity(({D: 1, L: 2}, {D: 2, L: 3})),
    )
    base = curvature()
    for depth, dim in ((2, 2), (3, 1)):
        matrix = hessian(depth, dim)
        sizes = {L: depth, D: dim}
        build.step(
            f"hessian_{depth}",
            sp.ImmutableMatrix(matrix),
            sp.ImmutableMatrix(depth, depth, lambda i, j, s=sizes: (2 if i == j else 4) * base.subs(s).doit()),
            statement=f"The Hessian at a tied point, all entries, for $L = {depth}$ and {dim} mode(s): "
            "$2 S$ on the diagonal, $4 S$ off it, $S = \\sum_k \\lambda_k \\omega_k (\\lambda_k/L)^2 "
            "(1 - \\gamma\\lambda_k/L)^{2L-2}$.",
            reason="On the diagonal the squared factor itself is differentiated twice (2); off it two squares once "
            "(4).",
        )
    value, curved = sp.symbols("chi S")
    ones = {depth: sp.eye(depth) * (-2 * curved) + sp.ones(depth, depth) * 4 * curved for depth in (2, 3, 4)}
    for depth, matrix in ones.items():
        build.step(
            f"spectrum_{depth}",
            matrix.charpoly(value).as_expr(),
            (value + 2 * curved) ** (depth - 1) * (value - (4 * L - 2).subs(L, depth) * curved),
            statement=f"Its characteristic polynomial for $L = {depth}$: $-2S$, $L - 1$ times, for directions that "
            "tell "
            "layers apart, and $(4L - 2) S$ once, for the tied direction.",
            reason="The matrix is $-2S\\, I + 4S\\, \\mathbf{1}\\mathbf{1}^T$.",
        )
    transversal = build.step(
        "transversal",
        sp.Add(2 * base, -4 * base, evaluate=False),
        -2 * base,
        statement="The eigenvalue of every direction that tells layers apart is negative: the tied manifold is "
        "unstable "
        "for $L \\ge 2$.",
        reason="Diagonal entry minus off-diagonal entry.",
        check=Identity(DEPTHS),
    )
    build.step(
        "tied_curvature",
        sp.Derivative(tied_loss(), (gamma, 2)),
        L * (4 * L - 2) * base,
        statement="Along the tied direction the second derivative of the tied loss is $L$ times the symmetric "
        "eigenvalue.",
        reason="$\\mathbf{1}^T H \\mathbf{1} = L (4L-2) S$.",
        check=Identity(DEPTHS),
    )
    force = sp.Sum(lam[k] ** 2 * omega[k] * (1 - gamma * lam[k] / L) ** (2 * L - 1), (k, 1, D))
    speed = 2 * force / (D * L)
    rate = -transversal / D
    build.step(
        "conserved",
        sp.Derivative(force, gamma) * speed,
        -(2 * L - 1) * rate * force,
        statement="While the layers are nearly tied, a difference $\\delta$ grows at the rate $\\kappa = 2S/D$, and "
        "the "
        "force $F = \\sum_k \\lambda_k^2\\omega_k(1-\\gamma\\lambda_k/L)^{2L-1}$ falls at $(2L-1)\\kappa$: "
        "$\\delta^{2L-1} F$ is conserved.",
        reason="Both come from the same sum; $d\\gamma/dt = 2F/(DL)$.",
        check=Identity(DEPTHS),
    )
    decay = 1 + 4 * (L - 1) / L**2 * lam[k] ** 3 * omega[k] * time
    factor = decay ** (-1 / (2 * (L - 1)))
    build.step(
        "fixed_basis",
        sp.Derivative(factor, time),
        -2 / L**2 * lam[k] ** 3 * omega[k] * factor ** (2 * L - 1),
        statement="FS: each mode has its own gains and, with no rotation to average over, no factor $1/D$. Tied from "
        "zero, $a = 1 - \\gamma_k\\lambda_k/L$ obeys $da/dt = -(2/L^2)\\lambda_k^3\\omega_k a^{2L-1}$, solved by a "
        "power.",
        reason="Differentiate the solution; it starts at 1.",
        check=Identity(tuple({L: depth} for depth in (2, 3, 5))),
        assumptions=("$L \\ge 2$; for $L = 1$ the solution is the exponential of the next step",),
    )
    build.step(
        "fixed_basis_one",
        sp.Derivative(sp.exp(-2 * lam[k] ** 3 * omega[k] * time), time),
        -2 * lam[k] ** 3 * omega[k] * sp.exp(-2 * lam[k] ** 3 * omega[k] * time),
        statement="FS at depth 1: an exponential.",
        reason="The same equation with $2L - 1 = 1$.",
    )
    before, after = (sp.Product((1 - gains[l] * lam[k] / L) ** 2, (l, *ends)) for ends in ((1, j - 1), (j + 1, L)))
    build.formula(
        "force",
        2 / (D * L) * sp.Sum(lam[k] ** 2 * omega[k] * (1 - gains[j] * lam[k] / L) * before * after, (k, 1, D)),
        (lam, omega, gains, j, D, L),
        summary="d gamma_j/dt of the untied gradient flow, RRS.",
    )
    build.formula(
        "transversal", transversal, (lam, omega, gamma, D, L), summary="Hessian eigenvalue that unties layers."
    )
    build.formula("growth_rate", rate, (lam, omega, gamma, D, L), summary="Growth rate of differences between layers.")
    build.formula(
        "fixed_basis_loss",
        sp.Sum(lam[k] * omega[k] * factor ** (2 * L), (k, 1, D)),
        (lam, omega, time, D, L),
        summary="FS loss against time from zero gains, tied in depth, L >= 2.",
    )
