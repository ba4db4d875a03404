"""The untied optimum: extremal polynomial, Christoffel function, Chebyshev's closed form, and the power law."""

from __future__ import annotations

import sympy as sp

from theory.symbolic.checks import Identity, Ratio
from theory.symbolic.derivation import Builder
from theory.symbolic.symbols import A, L, beta, j, n, nu, x

TITLE = "The untied optimum"
SUMMARY = (
    "L free gains make any residual polynomial of degree L with q(0) = 1 and real zeros. The best one is extremal for "
    "the measure that puts weight lambda_k omega_k on lambda_k, and the loss it leaves is the Christoffel function "
    "at 0."
)

s = sp.IndexedBase("s", positive=True)
theta, phi, kappa = (sp.Symbol(name, positive=True) for name in ("theta", "phi", "kappa"))
rho, top = sp.Symbol("rho", positive=True), sp.Symbol("b", positive=True)
DOMAIN = {beta: (0.3, 2.0), nu: (0.6, 2.0), kappa: (1.5, 9.0), theta: (0.3, 1.2), A: (0.3, 2.0), L: (2.0, 6.0)}
# Moments of a measure on (0, 1): random numbers that are positive definite as a Hankel matrix.
MOMENTS = {s[0]: (5.0, 6.0), s[1]: (1.2, 1.4), s[2]: (0.8, 0.9), s[3]: (0.3, 0.35), s[4]: (0.9, 1.0)}


def hankel(size: int, shift: int = 0) -> sp.Matrix:
    """Return the matrix of moments s_(i+j+shift)."""
    return sp.Matrix(size, size, lambda row, column: s[row + column + shift])


def orthogonal_at_zero(moments: sp.Matrix) -> list[sp.Expr]:
    """Return P_j(0)^2 / h_j of the monic orthogonal polynomials P_j with norms h_j, by determinants."""
    size = moments.rows
    minors = [sp.S.One] + [moments[:order, :order].det() for order in range(1, size + 1)]
    values = []
    for order in range(size):
        # P_order(0) = (-1)^order det(moments shifted by one) / det(moments), both of this order.
        shifted = moments[:order, 1 : order + 1].det() if order else sp.S.One
        values.append((shifted / minors[order]) ** 2 * minors[order] / minors[order + 1])
    return values


def floor_power_law() -> sp.Expr:
    """Return (A/nu) beta B(L+1, beta)^2, the floor of the density (A/nu) x^(beta-1) on (0, 1)."""
    return A / nu * beta * (sp.gamma(L + 1) * sp.gamma(beta) / sp.gamma(L + 1 + beta)) ** 2


def steps(build: Builder) -> None:
    """Add every step."""
    gain = sp.Symbol("g", positive=True)
    one = build.given(
        "one_layer_loss",
        sp.Symbol("loss"),
        s[0] - 2 * gain * s[1] + gain**2 * s[2],
        statement="The loss $\\sum_k \\lambda_k\\omega_k q(\\lambda_k)^2$ of one layer, $q = 1 - g x$, in the moments "
        "$s_n = \\sum_k \\lambda_k\\omega_k \\lambda_k^n$.",
    )
    build.step(
        "one_layer",
        one.subs(gain, s[1] / s[2]),
        s[0] - s[1] ** 2 / s[2],
        statement="Its minimum over the gain, at $g = s_1/s_2$.",
        reason="A parabola.",
    )
    for depth in (1, 2):
        matrix = hankel(depth + 1)
        corner, block = matrix[0, 1:], matrix[1:, 1:]
        schur = matrix[0, 0] - (corner * block.adjugate() * corner.T)[0, 0] / block.det()
        build.step(
            f"determinants_{depth}",
            schur,
            matrix.det() / block.det(),
            statement=f"Over all polynomials of degree {depth} with $q(0) = 1$ the loss is a quadratic form in the "
            "other "
            "coefficients. Its minimum is a ratio of two determinants of moments.",
            reason="Minimising over all coefficients but the first leaves the Schur complement of the moment matrix.",
            check=Identity(domain=MOMENTS),
        )
        build.step(
            f"christoffel_{depth}",
            block.det() / matrix.det(),
            sp.Add(*orthogonal_at_zero(matrix), evaluate=False),
            statement="One over it is $\\sum_j p_j(0)^2$ over the orthonormal polynomials of the measure, up to "
            "degree "
            f"{depth}: the Christoffel function.",
            reason="$q(x) = \\sum_j p_j(0) p_j(x) / \\sum_j p_j(0)^2$ by Cauchy–Schwarz, since $q = \\sum_j c_j p_j$ "
            "costs "
            "$\\sum_j c_j^2$ and must satisfy $\\sum_j c_j p_j(0) = 1$. Its zeros are Gauss nodes of the measure "
            "times "
            "$x$, real and inside the support, so real gains $L/x_l$ reach it.",
            check=Identity(domain=MOMENTS),
        )
    build.step(
        "chebyshev_orthonormal",
        sp.Integral(2 * sp.cos(n * phi) ** 2 / sp.pi, (phi, 0, sp.pi)),
        1,
        statement="A band $[a, b]$ with the arcsine density: the orthonormal polynomials are $1$ and $\\sqrt2\\, "
        "T_n$ of "
        "the rescaled variable.",
        reason="$x$ is an affine function of $\\cos\\varphi$, $\\varphi$ uniform.",
        check=Identity(tuple({n: order} for order in (1, 2, 3))),
    )
    build.step(
        "band_sum",
        1 + 2 * sp.Sum(sp.cosh(j * theta) ** 2, (j, 1, L)),
        L + sp.Rational(1, 2) + sp.sinh((2 * L + 1) * theta) / (2 * sp.sinh(theta)),
        statement="Their squares at $x = 0$, summed: the inverse floor of the band in closed form, "
        "$\\cosh\\theta = (b + a)/(b - a)$.",
        reason="$2\\cosh^2 = 1 + \\cosh$, and a geometric sum.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3, 5)), domain=DOMAIN, exact=False),
    )
    build.step(
        "chebyshev_minimax",
        sp.chebyshevt_poly(4, sp.cosh(theta)),
        sp.cosh(4 * theta),
        statement="The smallest possible maximum of $|q|$ over the band is $1/T_L(\\cosh\\theta) = "
        "1/\\cosh(L\\theta)$, so "
        "any spectrum in the band has a floor below $1/\\cosh^2(L\\theta)$ (shown for $L = 4$).",
        reason="$T_L(\\cosh\\theta) = \\cosh L\\theta$.",
        check=Identity(domain=DOMAIN, exact=False),
    )
    edge = (kappa + 1) / (kappa - 1)
    build.step(
        "band_rate",
        edge + sp.sqrt(edge**2 - 1),
        (sp.sqrt(kappa) + 1) / (sp.sqrt(kappa) - 1),
        statement="So a gap in the spectrum makes the floor exponential in depth: $e^\\theta$ in the condition number "
        "$\\kappa = b/a$, the rate of conjugate gradients.",
        reason="Solve $\\cosh\\theta = (\\kappa+1)/(\\kappa-1)$.",
        check=Identity(domain=DOMAIN, exact=False),
    )
    moment = build.step(
        "power_moments",
        sp.Integral(A / nu * x ** (beta - 1 + n), (x, 0, 1)),
        A / nu / (beta + n),
        statement="A power law reaching down to 0: the measure has the density $(A/\\nu) x^{\\beta-1}$ on $(0, 1)$, "
        "if its "
        "modes are dense. These are its moments.",
        reason="Integrate.",
        check=Identity(tuple({n: order} for order in (1, 2)), domain=DOMAIN),
        assumptions=("modes dense near the top too: the last steps drop this",),
    )
    jacobi = nu / A * (2 * j + beta) * (sp.gamma(j + beta) / (sp.gamma(j + 1) * sp.gamma(beta))) ** 2
    for order in (0, 1, 2):
        matrix = sp.Matrix(order + 1, order + 1, lambda row, column: moment.subs(n, row + column))
        build.step(
            f"jacobi_{order}",
            orthogonal_at_zero(matrix)[order],
            jacobi.subs(j, order),
            statement=f"The orthonormal polynomial of degree {order} at 0, squared: Jacobi's.",
            reason="$P_j(0)$ and norm of the Jacobi polynomials for the weight $x^{\\beta-1}$ on $(0,1)$.",
            check=Identity(domain=DOMAIN),
        )
    inverse = 1 / floor_power_law()
    build.step(
        "christoffel_start",
        jacobi.subs(j, 0),
        inverse.subs(L, 0),
        statement="The sum of the first term alone in closed form,",
        reason="$\\Gamma(1+\\beta) = \\beta\\Gamma(\\beta)$.",
        check=Identity(domain=DOMAIN),
    )
    build.step(
        "christoffel_induction",
        inverse + jacobi.subs(j, L + 1),
        inverse.subs(L, L + 1),
        statement="and one more term gives the same form with $L + 1$: the sum is $(\\nu/(A\\beta))\\, "
        "B(L+1,\\beta)^{-2}$ "
        "for every depth.",
        reason="$(L+1+\\beta)^2 - (L+1)^2 = \\beta (2L + 2 + \\beta)$.",
        check=Identity(domain=DOMAIN),
    )
    floor = floor_power_law()
    limit = build.step(
        "power_law_floor",
        floor,
        A / nu * sp.gamma(beta) * sp.gamma(beta + 1) * L ** (-2 * beta),
        relation="~",
        statement="The untied floor of a dense power law: exponent $-2\\beta$, twice the tied one.",
        reason="Stirling's formula.",
        check=Ratio(L, (1e4, 1e5, 1e6), 1, 1e-5, {beta: 0.75, nu: 1.5, A: 0.6}),
    )
    build.step(
        "rescaled_band",
        sp.Integral(A / nu * x ** (beta - 1), (x, 0, top)),
        top**beta * sp.Integral(A / nu * x ** (beta - 1), (x, 0, 1)),
        statement="The spectrum $k^{-\\nu}$ is not dense at its top. There a zero placed on a mode removes it "
        "altogether, "
        "and shrinks no other: $0 \\le 1 - x/\\lambda_k \\le 1$ below it. What remains lives on $(0, b)$ and has the "
        "same "
        "floor times $b^\\beta$.",
        reason="Substitute $x \\to b x$; degrees are unchanged.",
        check=Identity(domain=DOMAIN),
    )
    spent = limit.subs(L, L * (1 - rho)) * (rho * L) ** (-nu * beta)
    discrete = build.step(
        "zeros_spent",
        spent,
        A
        / nu
        * sp.gamma(beta)
        * sp.gamma(beta + 1)
        * rho ** (-nu * beta)
        * (1 - rho) ** (-2 * beta)
        * L ** (-(2 + nu) * beta),
        statement="Spend a share $\\rho$ of the $L$ zeros on the strongest modes, so $b = (\\rho L)^{-\\nu}$, and "
        "the rest "
        "on the remainder. An upper bound for the floor of the discrete spectrum: exponent $-(2+\\nu)\\beta$, steeper "
        "than $-2\\beta$.",
        reason="Insert $b$ and the remaining degree $(1-\\rho)L$.",
        check=Identity(domain=DOMAIN, exact=False),
    )
    best = nu / (nu + 2)
    build.step(
        "best_share",
        sp.Derivative(sp.log(rho) * nu * beta + sp.log(1 - rho) * 2 * beta, rho).doit().subs(rho, best),
        0,
        statement="The best share is $\\rho = \\nu/(\\nu+2)$.",
        reason="The logarithm of the bound is stationary there.",
        check=Identity(domain=DOMAIN),
    )
    build.formula(
        "dense_floor", floor, (A, nu, beta, L), summary="Untied floor of a dense power law at depth L, exact."
    )
    build.formula(
        "band_inverse_floor",
        L + sp.Rational(1, 2) + sp.sinh((2 * L + 1) * theta) / (2 * sp.sinh(theta)),
        (theta, L),
        summary="Inverse untied floor of an arcsine band, cosh theta = (b + a)/(b - a).",
    )
    build.formula(
        "discrete_bound",
        discrete.subs(rho, best),
        (A, nu, beta, L),
        summary="Leading upper bound for the untied floor of the discrete power law k^-nu.",
    )
