"""Central-limit depth laws: averaging layers that err, what is shared, what is not, and when 1/L is not the law."""

from __future__ import annotations

import sympy as sp

from theory.symbolic.averages import Average, MomentAverage
from theory.symbolic.checks import Expansion, Identity, Limit
from theory.symbolic.derivation import Builder
from theory.symbolic.symbols import L, k, l, m, n

TITLE = "Depth laws from averaging"
SUMMARY = (
    "If each layer makes its own estimate with an error and the model averages them, the loss is the mean entry of "
    "the "
    "errors' covariance matrix. What layers share stays, what is theirs alone averages out as 1/L. Identical layers "
    "in smooth dynamics give 1/L^2 instead, and contracting layers exp(-L)."
)

C = sp.IndexedBase("C", real=True)
corr = sp.IndexedBase("rho", real=True)
var = sp.IndexedBase("V", positive=True)
err = sp.IndexedBase("e", real=True)
z = sp.IndexedBase("z", real=True)
rho, s, r, e = (sp.Symbol(name, positive=True) for name in ("rho", "s", "r", "e"))
k3, k4, a, g, x = sp.symbols("kappa_3 kappa_4 a g x", real=True)
curve, cubic, quartic = sp.symbols("ell_2 ell_3 ell_4", real=True)
p1, p2 = sp.symbols("p_1 p_2", positive=True)
DEPTHS = tuple({L: depth} for depth in (1, 2, 3, 4))
DEEPER = tuple({L: depth} for depth in (2, 3, 4))
DOMAIN = {p1: (0.1, 0.4), p2: (0.1, 0.4), g: (0.1, 0.9)}


def pairs(entry: sp.Expr) -> sp.Sum:
    """Return the sum over all pairs of layers."""
    return sp.Sum(entry, (l, 1, L), (m, 1, L))


def stationary(correlation: sp.Expr) -> sp.Expr:
    """Return s^2/L [1 + 2 sum_(k<L) (1 - k/L) rho_k] for a correlation written in k."""
    return s**2 / L * (1 + 2 * sp.Sum((1 - k / L) * correlation, (k, 1, L - 1)))


def ar1() -> sp.Expr:
    """Return the closed form for rho_k = r^k."""
    return s**2 / L * ((1 + r) / (1 - r) - 2 * r * (1 - r**L) / (L * (1 - r) ** 2))


def steps(build: Builder) -> None:
    """Add every step."""
    averaging(build)
    readout(build)
    other_laws(build)


def averaging(build: Builder) -> None:
    """Add the loss of an average of layers, for every pattern of correlation."""
    loss = build.given(
        "ensemble",
        sp.Symbol("loss"),
        pairs(C[l, m]) / L**2,
        statement="Layer $l$ alone errs by $e_l$, and $C = E[e e^T]$. The mean of the layers errs by $\\mathbf{1}^T "
        "e / L$.",
        assumptions=("the model's output is the plain mean of its layers' estimates",),
    )
    same = sp.KroneckerDelta(l, m)
    shared = build.step(
        "exchangeable",
        loss.xreplace({C[l, m]: s**2 * (rho + (1 - rho) * same)}),
        rho * s**2 + (1 - rho) * s**2 / L,
        statement="Exchangeable layers, variance $s^2$, correlation $\\rho$: a plateau and a term in $1/L$.",
        reason="$L$ diagonal entries, $L(L-1)$ others.",
        check=Identity(DEPTHS),
    )
    diagonal = sp.Sum(C[l, l], (l, 1, L)) / L
    off = (pairs(C[l, m]) - sp.Sum(C[l, l], (l, 1, L))) / (L * (L - 1))
    build.step(
        "plateau_and_gain",
        loss,
        off + (diagonal - off) / L,
        statement="Any covariance, at one depth: plateau = mean off-diagonal entry, gain = mean diagonal entry − "
        "plateau.",
        reason="Split the sum into diagonal and the rest.",
        check=Identity(DEEPER),
        assumptions=("a law in $L$ only if both means do not depend on $L$",),
    )
    general = build.step(
        "stationary",
        loss.xreplace({C[l, m]: s**2 * (same + (1 - same) * corr[sp.Abs(l - m)])}),
        stationary(corr[k]),
        statement="Stationary layers: correlation $\\rho_k$ between layers $k$ apart.",
        reason="$L - k$ pairs are $k$ apart, counted twice.",
        check=Identity(DEPTHS),
    )
    closed = build.step(
        "autoregressive",
        general.xreplace({corr[k]: r**k}),
        ar1(),
        statement="AR(1) layers, $\\rho_k = r^k$.",
        reason="A geometric sum and its derivative.",
        check=Identity((*DEPTHS, {L: 7})),
        assumptions=("$|r| < 1$",),
    )
    build.step(
        "autoregressive_induction",
        (L + 1) ** 2 * closed.subs(L, L + 1) - L**2 * closed,
        s**2 * (1 + 2 * r * (1 - r**L) / (1 - r)),
        statement="For every $L$: adding a layer adds its variance and twice its covariance with those before.",
        reason="$\\sum_{k=1}^{L} r^k = r (1 - r^L)/(1 - r)$.",
    )
    build.step(
        "autoregressive_deep",
        L * closed,
        s**2 * (1 + r) / (1 - r),
        relation="->",
        statement="Deep models see $L (1-r)/(1+r)$ independent layers (shown at $r = 1/3$).",
        reason="The second term falls like $1/L^2$.",
        check=Limit(L, sizes={r: sp.Rational(1, 3)}),
    )
    weight = sp.IndexedBase("w", real=True)
    weighted = pairs(weight[l] * weight[m] * C[l, m]).xreplace({C[l, m]: same * var[l]})
    best = 1 / var[l] / sp.Sum(1 / var[m], (m, 1, L))
    build.step(
        "unequal_layers",
        loss.xreplace({C[l, m]: same * var[l]}),
        sp.Sum(var[l], (l, 1, L)) / L**2,
        statement="Unequal independent layers, variance $V_l$, plain mean: the mean variance over $L$.",
        reason="Only the diagonal is left.",
        check=Identity(DEPTHS),
    )
    build.step(
        "best_weights",
        sp.Sum(best**2 * var[l], (l, 1, L)),
        1 / sp.Sum(1 / var[l], (l, 1, L)),
        statement="Weights that sum to 1 do best in proportion to $1/V_l$: the harmonic mean variance over $L$.",
        reason="Lagrange: $w_l V_l$ is the same for all layers.",
        check=Identity(DEPTHS),
    )
    build.step(
        "weights_against_mean",
        sp.Sum(weight[l] ** 2 * var[l], (l, 1, L)),
        weighted,
        statement="(For any weights the loss of independent layers is this.)",
        reason="Only the diagonal is left.",
        check=Identity(DEPTHS),
    )
    build.formula("exchangeable", shared, (s, rho, L), summary="Loss of the mean of exchangeable layers.")
    build.formula("autoregressive", closed, (s, r, L), summary="Loss of the mean of AR(1) layers.")
    build.formula(
        "stationary", general, (s, corr, L), summary="Loss of the mean of stationary layers; rho_1 … rho_(L-1)."
    )
    build.formula("ensemble", loss, (C, L), summary="Loss of the mean of layers with error covariance C.")
    build.formula("best_weights", 1 / sp.Sum(1 / var[l], (l, 1, L)), (var, L), summary="Loss with weights 1/V_l.")


def readout(build: Builder) -> None:
    """Add the second-order term of a cross-entropy readout, and the next corrections."""
    shift = sp.symbols("delta_1 delta_2 delta_3", real=True)
    probability = (p1, p2, 1 - p1 - p2)
    mean = sum(p * d for p, d in zip(probability, shift, strict=True))
    square = sum(p * d**2 for p, d in zip(probability, shift, strict=True))
    entropy = sp.log(sum(p * sp.exp(e * d) for p, d in zip(probability, shift, strict=True))) - e * shift[0]
    build.step(
        "cross_entropy",
        entropy,
        e * (mean - shift[0]) + e**2 / 2 * (square - mean**2),
        statement="Softmax cross-entropy with target 1 after an error $e\\delta$ in the logits, relative to none "
        "(three "
        "classes): the second-order term is $\\frac12 \\delta^T (\\mathrm{diag}(p) - p p^T)\\, \\delta$.",
        reason="Cumulant expansion of the log-partition function.",
        remainder="O\\left(e^{3}\\right)",
        check=Expansion(e, 3),
    )
    noise = [s * z[i] / sp.sqrt(L) for i in (1, 2, 3)]
    put = dict(zip(shift, noise, strict=True))
    build.step(
        "cross_entropy_mean",
        Average(((mean - shift[0]) + (square - mean**2) / 2).xreplace(put), (z,)),
        s**2 / (2 * L) * sum(p * (1 - p) for p in probability),
        statement="Averaged over unbiased independent layer errors of variance $s^2$ in each logit: again $1/L$, "
        "with the "
        "coefficient $\\frac12\\mathrm{tr}(H\\,C)$, $H = \\mathrm{diag}(p) - pp^T$.",
        reason="The first-order term has mean zero.",
    )
    average = sp.Sum(err[l], (l, 1, L)) / L
    moments = (sp.S.Zero, s**2, k3, 3 * s**4 + k4)
    third = build.step(
        "third_moment",
        MomentAverage(average**3, err, moments),
        k3 / L**2,
        statement="The mean of $L$ independent errors with cumulants $\\kappa_3$, $\\kappa_4$ is closer to Gaussian: "
        "its third "
        "moment",
        reason="Cumulants of a sum add.",
        check=Identity(DEPTHS),
    )
    fourth = build.step(
        "fourth_moment",
        MomentAverage(average**4, err, moments),
        3 * s**4 / L**2 + k4 / L**3,
        statement="and its fourth.",
        reason="Cumulants of a sum add.",
        check=Identity(DEPTHS),
    )
    h3, h4, h6 = x**3 - 3 * x, x**4 - 6 * x**2 + 3, x**6 - 15 * x**4 + 45 * x**2 - 15
    edgeworth = 1 + k3 * h3 / (6 * sp.sqrt(L) * s**3) + k4 * h4 / (24 * L * s**4) + k3**2 * h6 / (72 * L * s**6)
    scaled = {3: third * (sp.sqrt(L) / s) ** 3, 4: fourth * (sp.sqrt(L) / s) ** 4}
    for power in (3, 4):
        build.step(
            f"edgeworth_{power}",
            Average(x**power * edgeworth, (x,)),
            scaled[power],
            statement=f"Edgeworth: the Gaussian density times this polynomial has the moment of order {power} of the "
            "standardised mean.",
            reason="Hermite polynomials are orthogonal; each term carries one combination of cumulants.",
        )
    build.step(
        "next_order",
        MomentAverage(curve * average**2 / 2 + cubic * average**3 / 6 + quartic * average**4 / 24, err, moments),
        curve * s**2 / (2 * L) + (cubic * k3 / 6 + quartic * s**4 / 8) / L**2 + quartic * k4 / (24 * L**3),
        statement="A smooth readout with derivatives $\\ell_2, \\ell_3, \\ell_4$: the correction to $1/L$ is of "
        "order $1/L^2$, "
        "from the readout's curvature and the errors' skewness.",
        reason="Taylor expansion, with the moments above.",
        check=Identity(DEPTHS),
    )


def other_laws(build: Builder) -> None:
    """Add where 1/L turns into 1/L^2 and into exp(-L)."""
    euler = sp.exp(sp.log(1 + a * e) / e)
    error = build.step(
        "identical_layers",
        euler,
        sp.exp(a) * (1 - a**2 * e / 2),
        statement="Identical layers in smooth dynamics, $h \\leftarrow h + (a/L) h$, are Euler's method with step $e "
        "= 1/L$: "
        "$(1 + a/L)^L$ misses $e^a$ by a term in $1/L$,",
        reason="Expand the logarithm.",
        remainder="O\\left(e^{2}\\right)",
        check=Expansion(e, 2),
    )
    build.step(
        "discretisation",
        (euler - sp.exp(a)) ** 2,
        sp.expand((error - sp.exp(a)) ** 2),
        statement="so the squared loss falls like $1/L^2$: no averaging, a discretisation error.",
        reason="Square it.",
        remainder="O\\left(e^{3}\\right)",
        check=Expansion(e, 3),
    )
    product = sp.Product(1 + (a + s * z[l]) / L, (l, 1, L))
    spread = build.step(
        "independent_layers",
        Average(product**2, (z,)) - Average(product, (z,)) ** 2,
        ((1 + a / L) ** 2 + s**2 / L**2) ** L - (1 + a / L) ** (2 * L),
        statement="Independent layers, $a_l = a + s z_l$: the variance of the product,",
        reason="Independent factors.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3))),
    )
    smooth = sp.exp(sp.log((1 + a * e) ** 2 + s**2 * e**2) / e) - sp.exp(2 * sp.log(1 + a * e) / e)
    build.step(
        "independent_smooth",
        spread,
        smooth.subs(e, 1 / L),
        statement="(written with exponentials, $e = 1/L$)",
        reason="$b^L = e^{L \\log b}$.",
        check=Identity(tuple({L: depth} for depth in (1, 2, 3)), exact=False),
    )
    build.step(
        "independent_deep",
        smooth,
        sp.exp(2 * a) * s**2 * e,
        statement="falls like $1/L$: layers that differ average, with the prefactor $e^{2a} s^2$.",
        reason="Expand in $e$.",
        remainder="O\\left(e^{2}\\right)",
        check=Expansion(e, 2),
    )
    build.step(
        "contraction",
        sp.Product((1 - g) ** 2, (n, 1, L)),
        sp.exp(2 * L * sp.log(1 - g)),
        statement="Layers that each shrink the error by a fixed factor (a gain that grows with $L$, one mode): "
        "exponential in depth.",
        reason="Equal factors.",
        check=Identity(DEPTHS, domain=DOMAIN, exact=False),
        assumptions=("$0 < g < 1$: one eigenvalue, or a gap below the spectrum",),
    )
    build.formula(
        "discretisation", sp.exp(2 * a) * a**4 / (4 * L**2), (a, L), summary="Squared Euler error, leading order."
    )
    build.formula(
        "independent_layers", spread, (a, s, L), summary="Variance of a product of independent residual layers."
    )
