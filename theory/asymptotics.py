"""Power laws of the reduced linear model with their prefactors, ranges and errors (setting RRS, infinite context).

For lambda_k = k^-nu and s_k = lambda_k omega_k = A k^-(nu beta + 1), sums over modes become Mellin integrals:

    sum_k s_k (1 - gamma lambda_k / L)^(2L)  →  (A/nu) L^beta B(beta, 2L+1) gamma^-beta =: c_L gamma^-beta,

exact up to terms smaller than any power as long as 1 << gamma < L and all modes are there; for L → inf
c = (A/nu) Gamma(beta) 2^-beta. Everything else follows: training time from the flow,
d gamma / dt = beta c_L gamma^(-beta-1) / (D L), the tied optimum from the largest eigenvalue, which stops the gain just
below 2 L, and the untied optimum from the electrostatics of its zeros (`untied_floor_law`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray
from theory.measure import SpectralMeasure, depth_code
from theory.power_law import PowerLaw, power_law_of
from theory.results import Result
from theory.spectra import Spectrum

# What the closed forms lose to rounding, in the error that a law claims.
ROUNDING = 1e-11
# Largest share of the loss that a cutoff may take before a law no longer claims to hold.
CUTOFF_SHARE = 0.01


@dataclasses.dataclass(frozen=True)
class Exponents(Result):
    """Exponents alpha of loss ~ x^-alpha in the RRS setting at infinite context; ``None`` off the power laws.

    Parameters
    ----------
    depth_tied : float or None
        beta: the tied optimum against depth.
    depth_untied : float or None
        2 beta: the untied floor against depth on a dense power law, no eigenvalue apart from its neighbours.
    depth_untied_separate : float or None
        (2 + nu) beta: the same for lambda_k = k^-nu one by one, whose largest eigenvalues take a zero each.
    time : float or None
        beta / (2 + beta): loss against time at large depth.
    compute : float or None
        beta / (3 + beta): loss against compute C = L t at the best split, t the time of the infinitely deep model.
    """

    depth_tied: float | None
    depth_untied: float | None
    time: float | None
    compute: float | None
    depth_untied_separate: float | None = None


def exponents(spectrum: Spectrum | SpectralMeasure) -> Exponents:
    """Return the exponents that capacity nu and source beta fix; all ``None`` without them."""
    beta = spectrum.source
    if beta is None:
        return Exponents(None, None, None, None)
    apart = None if spectrum.capacity is None else (2 + spectrum.capacity) * beta
    return Exponents(beta, 2 * beta, beta / (2 + beta), beta / (3 + beta), apart)


@dataclasses.dataclass(frozen=True)
class Law(Result):
    """A power law: loss = prefactor * (x + shift)^-exponent, with what it claims.

    Attributes
    ----------
    quantity, variable : str
        What is given against what.
    prefactor, exponent, shift : float
    regime : str
        Where it holds, in words.
    error : callable
        ``error(x)`` is the relative error it claims at x (not in the JSON).
    """

    quantity: str
    variable: str
    prefactor: float
    exponent: float
    shift: float
    regime: str
    error: Callable[[float], float] = dataclasses.field(repr=False)

    def __call__(self, x: npt.ArrayLike) -> FloatArray:
        """Return the law at ``x``, of the shape of ``x``; NaN where x + shift is not positive."""
        base = np.asarray(x, dtype=np.float64) + self.shift
        with np.errstate(invalid="ignore", divide="ignore"):
            result: FloatArray = np.where(base > 0, self.prefactor * base**-self.exponent, np.nan)
        return result

    def __str__(self) -> str:
        shifted = self.variable if self.shift == 0 else f"({self.variable} + {self.shift:.4g})"
        return f"{self.quantity} ≈ {self.prefactor:.6g} {shifted}^-{self.exponent:.4g} ({self.regime})"

    def to_dict(self) -> dict[str, object]:
        """Return quantity, variable, prefactor, exponent, shift and regime."""
        return {key: getattr(self, key) for key in ("quantity", "variable", "prefactor", "exponent", "shift", "regime")}


def gain_law(spectrum: Spectrum | SpectralMeasure, depth: float = math.inf) -> Law:
    """Return the tied loss against the gain: c_L gamma^-beta, c_inf = (A/nu) Gamma(beta) 2^-beta.

    Raises
    ------
    ValueError
        If the spectrum is no power law, or ``depth`` neither a whole number >= 1 nor inf.
    """
    law, code = power_law_of(spectrum), depth_code(depth)

    def error(gamma: float) -> float:
        # Twice the first harmonic: the next ones, and the saddle's own correction, are smaller while gamma > 1.
        return 2 * law.ripple(gamma) + law.missing(gamma) + law.top_modes(gamma, code) + ROUNDING

    regime = "1 << gamma" + ("" if code == 0 else f" < L = {code}") + _below_cutoff("gamma", law)
    return Law("tied loss", "gamma", law.gain_prefactor(code), law.source, 0.0, regime, error)


def time_law(spectrum: Spectrum | SpectralMeasure, depth: float = math.inf) -> Law:
    """Return the tied loss against time, prefactor c_L [beta (beta+2) c_L / (D L)]^(-beta/(2+beta)).

    Time is that of the flow; for ``depth`` inf it is t / L, and for an infinite spectrum t / D. The shift is what the
    start has cost, where the law for the gain does not hold yet: with it the law errs no more than that for the gain.

    Raises
    ------
    ValueError
        As `gain_law`.
    """
    law, code = power_law_of(spectrum), depth_code(depth)
    beta, prefactor = law.source, law.gain_prefactor(code)
    speed = _speed(law, code)
    exponent = beta / (2 + beta)
    at_gain = gain_law(spectrum, depth).error
    shift = _time_shift(law, code)

    def error(time: float) -> float:
        if time + shift <= 0:
            return math.inf
        gamma = (speed * (time + shift)) ** (1 / (2 + beta))
        # The force, one power steeper, errs more than the loss, and its error adds up along the way.
        return (1 + exponent * (1 + beta)) * at_gain(gamma)

    regime = "t >> shift" + ("" if code == 0 else f", gamma(t) < L = {code}") + _below_cutoff("gamma(t)", law)
    return Law("tied loss", "t", prefactor * speed**-exponent, exponent, shift, regime, error)


def tied_floor_law(spectrum: Spectrum | SpectralMeasure) -> Law:
    """Return the tied optimum against depth: (A/nu) Gamma(beta) 4^-beta L^-beta.

    The optimal gain tends to 2 L, where the residual of the largest eigenvalue stops shrinking; it stays below by
    about log(L) (1 + beta) / 2, which is the error claimed. `tied_floor_refined` carries that correction.

    Raises
    ------
    ValueError
        If the spectrum is no power law.
    """
    law = power_law_of(spectrum)

    def error(depth: float) -> float:
        leading = law.gain_prefactor(0) * (2 * depth) ** -law.source
        return abs(tied_floor_refined(spectrum, int(depth)) / leading - 1) + law.missing(2 * depth)

    prefactor = law.gain_prefactor(0) * 2**-law.source
    return Law("tied optimum", "L", prefactor, law.source, 0.0, "1 << L" + _below_cutoff("2 L", law), error)


def tied_floor_refined(spectrum: Spectrum | SpectralMeasure, depth: int) -> float:
    """Return the tied optimum with the largest modes kept one by one: min over y of c_L (L y)^-beta + sum_k s_k |...|.

    Exact up to the ripple at gamma = L y and the cutoff.

    Raises
    ------
    ValueError
        If the spectrum is no power law or ``depth`` < 1.
    """
    from scipy.optimize import minimize_scalar

    law, code = power_law_of(spectrum), depth_code(depth)
    k = np.arange(1.0, max(2, math.ceil(2 ** (1 / law.capacity))) + 1)[:100_000]
    x, s = k**-law.capacity, law.amplitude * k**-law.power

    def loss(y: float) -> float:
        flipped = y * x > 1
        top = float(np.sum(s[flipped] * (y * x[flipped] - 1) ** (2 * code)))
        return law.gain_prefactor(code) * (code * y) ** -law.source + top

    found = minimize_scalar(loss, bounds=(1.0, 3.0), method="bounded", options={"xatol": 1e-9})
    return float(found.fun)


def untied_floor_law(spectrum: Spectrum | SpectralMeasure) -> Law:
    """Return the untied floor against depth for separate eigenvalues k^-nu: exponent (2 + nu) beta.

    The minimiser q puts a zero on each of the largest eigenvalues and spreads the rest over [0, b], where log |q| = 0.
    With the zeros' density bounded by that of the eigenvalues, (1/nu) x^(-1/nu - 1), this equilibrium gives
    L = (1/nu) B(1/nu, 1/2) b^(-1/nu), and density h / (pi sqrt x) at 0 with h = 2 L / ((2 + nu) sqrt b). At such a hard
    edge, with weight (A/nu) x^(beta-1), the Christoffel function is (A/nu) Gamma(beta) Gamma(beta+1) h^(-2 beta), so

        floor = p (L + 1 + beta/2)^-((2+nu) beta),
        p = (A/nu) Gamma(beta) Gamma(beta+1) [(2+nu)/2]^(2 beta) [B(1/nu, 1/2)/nu]^(nu beta).

    The shift has (1 + beta)/2 from the Jacobi polynomials and 1/2 from the sum over whole k; what is left falls like
    L^-min(2, 1 + nu), bounded by beta (1 + beta) / 2 times that in every case tried. For nu → 0 the exponent is 2 beta,
    that of a dense spectrum.

    Raises
    ------
    ValueError
        If the spectrum is no power law.
    """
    law = power_law_of(spectrum)
    nu, beta = law.capacity, law.source
    log_b = math.lgamma(1 / nu) + math.lgamma(0.5) - math.lgamma(1 / nu + 0.5)
    base = law.amplitude / nu * math.gamma(beta) * math.gamma(beta + 1)
    prefactor = base * ((2 + nu) / 2) ** (2 * beta) * math.exp(nu * beta * (log_b - math.log(nu)))
    exponent, shift = (2 + nu) * beta, 1 + beta / 2

    def error(depth: float) -> float:
        value = prefactor * (depth + shift) ** -exponent
        tail = 0.0 if math.isinf(law.dim) else law.amplitude * (law.dim + 0.5) ** (-nu * beta) / (nu * beta)
        return beta * (1 + beta) / 2 * depth ** -min(2.0, 1 + nu) + tail / value

    regime = "any L" if math.isinf(law.dim) else f"tail sum beyond D = {law.dim:g} << floor"
    return Law("untied floor", "L", prefactor, exponent, shift, regime, error)


def width_law(spectrum: Spectrum | SpectralMeasure) -> Law:
    """Return the loss of the modes beyond the ``width`` strongest: A/(nu beta) (N + 1/2)^-(nu beta).

    Raises
    ------
    ValueError
        If the spectrum is no power law.
    """
    law = power_law_of(spectrum)
    rate = law.power - 1

    def error(width: float) -> float:
        cut = 0.0 if math.isinf(law.dim) else ((width + 0.5) / (law.dim + 0.5)) ** rate
        # Next term of the midpoint sum.
        return rate * law.power / (24 * width**2) + cut

    regime = "1 << N" + ("" if math.isinf(law.dim) else f" << D = {law.dim:g}")
    return Law("loss beyond the width", "N", law.amplitude / rate, rate, 0.5, regime, error)


@dataclasses.dataclass(frozen=True)
class Crossovers(Result):
    """Where one regime of training gives way to the next; times in the units of `time_law`.

    Attributes
    ----------
    start_time : float
        Shift of the time law: before it the gain grows linearly.
    cutoff_gain, cutoff_time : float
        Where the modes missing beyond D = dim are 1 % of the loss, so that a truncated spectrum shows; 0 if they always
        are, inf for an infinite spectrum.
    depth_gain, depth_time : float
        Where the gain reaches 2 L, the end of the L → inf law at this depth; inf for infinite depth.
    first : str
        A sentence: which of them ends the power law.
    """

    start_time: float
    cutoff_gain: float
    cutoff_time: float
    depth_gain: float
    depth_time: float
    first: str

    def __str__(self) -> str:
        return self.first


def crossovers(spectrum: Spectrum | SpectralMeasure, depth: float) -> Crossovers:
    """Return the crossover scales of the tied flow at ``depth`` (a whole number, or inf).

    Raises
    ------
    ValueError
        As `gain_law`.
    """
    law, code = power_law_of(spectrum), depth_code(depth)
    beta, speed, shift = law.source, _speed(law, code), _time_shift(law, code)

    def time(gamma: float) -> float:
        if gamma == 0 or math.isinf(gamma):
            return gamma
        # Up to there the start has cost what it has so far.
        return gamma ** (2 + beta) / speed - _time_shift(law, code, gamma)

    cutoff = _cutoff_gain(law)
    end = 2.0 * code if code else math.inf
    if cutoff == 0:
        first = f"Truncation at dim {law.dim:g} takes more than 1 % of the loss from the start."
    elif math.isinf(cutoff) and math.isinf(end):
        first = "The power law goes on for ever."
    elif cutoff < end:
        first = f"Truncation at dim {law.dim:g} shows from t={time(cutoff):.4g} (1 % of the loss), before depth does."
    else:
        first = f"Depth {code} ends the power law at t={time(end):.4g}" + (
            "." if math.isinf(cutoff) else f"; truncation at dim {law.dim:g} shows less than 1 % until then."
        )
    return Crossovers(shift, cutoff, time(cutoff), end, time(end), first)


def _cutoff_gain(law: PowerLaw) -> float:
    """Return the gain at which the modes beyond D hold 1 % of the whole loss; 0 if they always do, inf without D."""
    if math.isinf(law.dim):
        return math.inf
    whole = SpectralMeasure.power_law(math.inf, law.capacity, law.source, normalise=False)
    tail = law.cutoff(1.0) * law.gain_prefactor(0) / law.amplitude
    if tail > CUTOFF_SHARE * whole.total:
        return 0.0
    # Where the law holds the share grows like gamma^beta; near the start it is larger than that.
    high = 2 * (CUTOFF_SHARE / law.cutoff(1.0)) ** (1 / law.source) + 1
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if float(whole.losses([middle], math.inf)[0]) * CUTOFF_SHARE > tail:
            low = middle
        else:
            high = middle
    return high


def _speed(law: PowerLaw, depth: int) -> float:
    """Return d gamma^(2+beta) / dt = (2 + beta) beta c_L / (D L)."""
    beta = law.source
    clock = law.dim if math.isfinite(law.dim) else 1.0
    return (2 + beta) * beta * law.gain_prefactor(depth) / (clock * (depth or 1))


def _time_shift(law: PowerLaw, depth: int, gamma: float = math.inf) -> float:
    """Return int_0^gamma (1/force_law - 1/force) d gamma in time units, on the infinite spectrum.

    Beyond the ripple the two forces agree to rounding, which the growing integrand would only magnify; at finite depth
    they part again near gamma = L. The integral ends before either.
    """
    from theory.kernels import tied_sums

    measure = SpectralMeasure.power_law(math.inf, law.capacity, law.source, normalise=False)
    steepness = law.source * law.gain_prefactor(depth) / (2 * law.amplitude)
    end = 0.0
    while law.ripple(math.exp(end)) > 1e-15 and end < math.log(1e4):
        end += 0.25
    end = min(end, math.log(gamma), math.log(depth / 2) if depth else math.inf)
    start = min(end, 0.0) - 20.0
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(start, end, 24)
    total = math.exp(start) ** (2 + law.source) / (2 + law.source) / steepness
    for low, high in itertools.pairwise(edges):
        for u, weight in zip((high + low + (high - low) * nodes) / 2, weights * (high - low) / 2, strict=True):
            gamma = math.exp(u)
            force = tied_sums(measure.eigenvalues, measure.signal, gamma, depth)[1]
            total += weight * gamma * (gamma ** (1 + law.source) / steepness - 1 / force)
    clock = law.dim if math.isfinite(law.dim) else 1.0
    return total * clock * (depth or 1) / 2 / law.amplitude


def _below_cutoff(variable: str, law: PowerLaw) -> str:
    if math.isinf(law.dim):
        return ""
    return f", {variable} < {_cutoff_gain(law):.3g} (cutoff at D = {law.dim:g})"
