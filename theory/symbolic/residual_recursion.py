"""From the attention update to the residual weight: v^(l+1) = (I - Gamma_l Sigma_hat / L) v^l, with label noise."""

from __future__ import annotations

from typing import Any

import sympy as sp

from theory.symbolic.averages import Average
from theory.symbolic.checks import Identity
from theory.symbolic.derivation import Builder
from theory.symbolic.symbols import D, L, P, gains, l, m, n, sigma2, x

TITLE = "The residual recursion"
SUMMARY = (
    "In the reduced model labels travel through the layers and covariates stay. Linear attention then does one thing "
    "only: each layer multiplies the part of the task not yet learned, the residual weight, by a matrix. Label noise "
    "enters as a source."
)

X = sp.MatrixSymbol("X", D, P)
W = sp.MatrixSymbol("w", D, 1)
E = sp.MatrixSymbol("epsilon", P, 1)
C = sp.MatrixSymbol("c", D, 1)
V = sp.MatrixSymbol("v", D, 1)
Q = sp.MatrixSymbol("x_q", D, 1)
G = sp.MatrixSymbol("Gamma", D, D)
S = sp.MatrixSymbol("Sigma", D, D)
Z = sp.MatrixSymbol("Lambda^{1/2}", D, D)
z = sp.IndexedBase("z", real=True)
v0, noise = sp.symbols("w xi", real=True)


def explicit(dim: int, context: int) -> dict[Any, Any]:
    """Return sizes with an explicit matrix of symbols for every matrix symbol."""
    shapes = {X: (dim, context), W: (dim, 1), E: (context, 1), C: (dim, 1), V: (dim, 1), Q: (dim, 1), G: (dim, dim)}
    made = {
        matrix: sp.ImmutableMatrix(*shape, lambda i, j, name=matrix.name: sp.Symbol(f"{name}{i}{j}", real=True))
        for matrix, shape in shapes.items()
    }
    diagonal = sp.ImmutableMatrix(sp.diag(*[sp.Symbol(f"s{i}", positive=True) for i in range(dim)]))
    return {**made, Z: diagonal, S: diagonal * diagonal, D: dim, P: context}


SMALL = (explicit(1, 2), explicit(2, 1), explicit(2, 3))


def steps(build: Builder) -> None:
    """Add every step."""
    labels = build.given(
        "labels",
        sp.MatrixSymbol("y", P, 1),
        X.T * W + E,
        statement="The labels of the $P$ context tokens, the columns of $X$: a linear task plus noise.",
    )
    start = labels - X.T * C
    build.step(
        "state",
        start,
        X.T * (W - C) + E,
        statement="Attention only ever adds combinations of the rows of $X$ to the labels, so after any number of "
        "layers they are $y - X^T c$ for some $c$, with $c = 0$ at the start.",
        reason="The definition of the labels, and induction: the next step keeps this form.",
        check=Identity(SMALL),
    )
    update = build.given(
        "update",
        sp.MatrixSymbol("h^{(l+1)}", P, 1),
        start - X.T * G * X * start / (L * P),
        statement="One layer of linear attention, $A(x_\\mu, x_\\nu) = x_\\mu^T \\Gamma x_\\nu / P$, acting on them.",
    )
    moved = C + G * X * start / (L * P)
    build.step(
        "learned",
        update,
        labels - X.T * moved,
        statement="One layer moves $c$ by $\\Gamma X h / (L P)$.",
        reason="Collect the factor $X^T$.",
        check=Identity(SMALL),
    )
    build.step(
        "query",
        -Q.T * C - Q.T * G * X * start / (L * P),
        -Q.T * moved,
        statement="The query starts with label 0 and moves with the same $c$: its label is $-x_q^T c$, so the "
        "prediction is $f = x_q^T c$.",
        reason="The same layer acts on the query, which attends to the context.",
        check=Identity(SMALL),
    )
    covariance = X * X.T / P
    build.step(
        "residual",
        W - moved,
        (W - C) - G * covariance * (W - C) / L - G * X * E / (L * P),
        statement="The residual weight $v = w - c$ is multiplied by $I - \\Gamma \\hat\\Sigma / L$, with "
        "$\\hat\\Sigma = X X^T / P$, and driven by the noise.",
        reason="Insert the labels into the motion of $c$.",
        check=Identity(SMALL),
    )
    q = sp.Product(1 - gains[l] * x / L, (l, 1, L))
    r = sp.Sum(gains[l] / L * sp.Product(1 - gains[m] * x / L, (m, 1, l - 1)), (l, 1, L))
    solution = q * v0 - r * noise
    build.step(
        "first_layer",
        solution,
        (1 - gains[1] * x) * v0 - gains[1] * noise,
        statement="With $\\Gamma_l = \\gamma_l I$ everything commutes: in an eigendirection of $\\hat\\Sigma$ with "
        "eigenvalue $x$ and noise $\\xi$, the component of $X\\epsilon/P$, one layer is solved by $v = q w - r \\xi$.",
        reason="The recursion for $L = 1$, from $v = w$.",
        check=Identity(({L: 1},)),
    )
    product = sp.Product(1 - gains[l] * x / L, (l, 1, n))
    response = sp.Sum(gains[l] / L * sp.Product(1 - gains[m] * x / L, (m, l + 1, n)), (l, 1, n))
    after = product * v0 - response * noise
    build.step(
        "induction",
        (1 - gains[n + 1] * x / L) * after - gains[n + 1] * noise / L,
        after.subs(n, n + 1),
        statement="If $n$ layers give $q_n w - r_n \\xi$, one more gives the same with $n + 1$.",
        reason="Apply the recursion once; the noise that entered at layer $l$ passes the layers after it.",
        check=Identity(tuple({n: value} for value in (1, 2, 3, 4))),
    )
    build.step(
        "order",
        response.subs(n, L),
        r,
        statement="The noise response does not depend on the order of the layers.",
        reason="Both sums telescope to the same thing, as the next step shows.",
        check=Identity(tuple({L: value} for value in (1, 2, 3, 4))),
    )
    build.step(
        "telescope",
        x * r,
        1 - q,
        statement="The response to noise is $r(x) = (1 - q(x))/x$.",
        reason="$\\gamma_l x / L = 1 - (1 - \\gamma_l x / L)$: the sum telescopes.",
        check=Identity(tuple({L: value} for value in (1, 2, 3, 4))),
    )
    vector = sp.Matrix([sp.Symbol(f"v{i}", real=True) for i in range(2)])
    root = sp.diag(*[sp.Symbol(f"s{i}", positive=True) for i in range(2)])
    token = root * sp.Matrix([z[1], z[2]])
    build.step(
        "loss",
        Average(token.dot(vector) ** 2, (z[1], z[2])),
        (vector.T * root**2 * vector)[0, 0],
        statement="The loss of one context, averaged over the query $x = \\Lambda^{1/2} z$, is $v^T \\Sigma v$ "
        "(written for two dimensions, $\\Lambda^{1/2} = \\mathrm{diag}(s_0, s_1)$).",
        reason="$E[z_i z_j] = \\delta_{ij}$.",
        assumptions=("the query's covariates have mean 0 and covariance $\\Sigma$",),
    )
    data = sp.Matrix(2, 2, lambda i, j: sp.Symbol(f"x{i}{j}", real=True))
    filtered = sp.Matrix(2, 2, lambda i, j: sp.Symbol(f"r{min(i, j)}{max(i, j)}", real=True))
    source = sp.sqrt(sigma2) * filtered * data * sp.Matrix([z[1], z[2]]) / 2
    build.step(
        "noise_loss",
        Average((source.T * root**2 * source)[0, 0], (z[1], z[2])),
        sigma2 / 2 * sp.factor_terms((filtered * (data * data.T / 2) * filtered * root**2).trace()),
        statement="Averaged over the noise, its share of the loss is $(\\sigma^2/P)\\, \\mathrm{tr}\\,"
        "[r(\\hat\\Sigma)\\, \\hat\\Sigma\\, r(\\hat\\Sigma)\\, \\Sigma]$ (written for $D = P = 2$).",
        reason="The noise has covariance $\\sigma^2 I$, so $X\\epsilon/P$ has covariance $\\sigma^2 \\hat\\Sigma / P$.",
        assumptions=("noise independent of covariates and task",),
    )
    build.formula(
        "residual_polynomial",
        q,
        (x, gains, L),
        summary="Residual polynomial q(x) = prod_l (1 - gamma_l x / L).",
    )
    build.formula("noise_response", r, (x, gains, L), summary="Response r(x) = (1 - q(x)) / x to label noise.")
