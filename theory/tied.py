"""The tied population flow, exactly: one autonomous scalar equation, so that time is an integral over the gain.

With force(gamma) = sum_k s_k x_k (1 - gamma x_k / L)^(2L-1), which falls strictly from gamma = 0 to its only zero
gamma*, the flow is d gamma / d tau = force(gamma) in the time tau = 2 t / (D L), and tau(gamma) = int dgamma / force.
The integral is taken in z = log((gamma + g0) / (gamma* - gamma)), which makes both ends regular: near the fixed point
tau is linear in z. On panels in z the integrand is a Chebyshev series, refined until it has converged, and the series
is inverted by Newton's method. Near gamma* the force is summed as a difference to the fixed point, term by term of
one sign, so that no digits cancel. For L → inf the power is exp(-2 gamma x), gamma* is infinite, and
z = log(1 + gamma / g0).
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, real, vector
from theory.gauss import gauss_rule
from theory.jit import kernel
from theory.kernels import DEEP, tied_losses, tied_sums
from theory.measure import SpectralMeasure, as_measure, depth_code
from theory.results import Result, axes_or_new
from theory.spectra import Spectrum

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Chebyshev coefficients a panel, and how small the last ones must be against the largest.
PANEL = 24
CONVERGED = 1e-13
# A panel is sized to leave this many coefficients below that; it stands if it could keep ENOUGH of its width.
SPARE = 3
ENOUGH = 0.9
WIDEST_STEP = 4.0
# Below this share of the initial time scale the gain is its own Taylor series, to rounding.
EARLY = 1e-5
# The gain has arrived when its distance to the fixed point is below this share of it.
ARRIVED = 1e-18
# A Gauss rule replaces the spectrum when it reproduces loss and force, within this, where the flow goes.
RULE_TOLERANCE = 1e-12
# Narrower panels than this in z are never needed: there the force is rounding, not a function.
NARROWEST_PANEL = 1e-3
LAST_NEWTON_STEP = 1e-9
# Entries of the largest Lanczos basis worth building; larger spectra are compressed cell by cell.
LARGEST_BASIS = 200_000


@dataclasses.dataclass(frozen=True)
class TiedCurve(Result):
    """Gain and loss of the tied model along the exact population flow.

    Attributes
    ----------
    times : array of shape (times,)
        As asked. For finite depth the flow time t; for infinite depth t / L, for infinite dim t / D.
    gammas, losses : arrays of shape (times,)
        The common gain of all layers and the population loss.
    depth : float
        L; may be inf.
    fixed_point, floor : float
        gamma* where the flow ends, and the loss there; inf and 0 (or the zero modes' part) for infinite depth.
    """

    times: FloatArray
    gammas: FloatArray
    losses: FloatArray
    depth: float
    fixed_point: float
    floor: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row a time: time, gamma, loss."""
        import pandas as pd

        return pd.DataFrame({"time": self.times, "gamma": self.gammas, "loss": self.losses})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss against time, on log axes."""
        axes = axes_or_new(ax)
        axes.loglog(self.times, self.losses, label=f"L = {self.depth:g}")
        axes.set(xlabel="time t", ylabel="loss")
        axes.legend(frameon=False)
        return axes


def tied_curve(
    spectrum: Spectrum | SpectralMeasure, depth: float, times: npt.ArrayLike, *, clock_dim: float | None = None
) -> TiedCurve:
    """Return gain and loss of the tied model at ``times``, from zero gain, to near rounding.

    Gradient flow of the population loss on rotation-averaged data (RRS): d gamma / dt = (2 / (D L)) sum_k lambda_k^2
    omega_k (1 - gamma lambda_k / L)^(2L-1) (design of the reduced model; each layer's own gain follows it when tied).

    Parameters
    ----------
    spectrum : Spectrum or SpectralMeasure
        Eigenvalues and task power; a measure stands for any number of modes.
    depth : int or inf
        L >= 1. For ``math.inf`` the times are t / L, with rate (2 / D) sum_k s_k lambda_k exp(-2 gamma lambda_k).
    times : array of shape (times,)
        Increasing, >= 0, any range.
    clock_dim : float, optional
        The D in the rate; the spectrum's own by default. For an infinite spectrum it is 1 by default: times are t / D.

    Raises
    ------
    ValueError
        If an argument is outside these ranges.
    """
    code = depth_code(depth)
    moments = vector("times", times, minimum=0.0, increasing=True)
    size = float(spectrum.dim)
    dim = real("clock_dim", clock_dim, above=0) if clock_dim is not None else (size if math.isfinite(size) else 1.0)
    rate = 2.0 / (dim * (code or 1))
    x, s, idle = _active(spectrum)
    if x.size == 0:
        still = np.zeros_like(moments)
        return TiedCurve(moments, still, still + idle, depth, math.nan, idle)
    # The flow in units of the largest eigenvalue: spectra of any scale are alike.
    scale = float(x[0])
    y, s, fixed = _reduced(x / scale, s, code)
    if y is None:
        x, s, _ = _active(as_measure(spectrum))
        y = x / scale
        fixed = fixed_point(y, s, code) if code else math.inf
    gains = _flow(y, s, code, fixed, moments * (rate * scale * scale), *_SERIES)
    losses = tied_losses(y, s, gains, code) + idle
    floor = tied_losses(y, s, np.array([fixed]), code)[0] + idle if code else idle
    return TiedCurve(moments, gains / scale, losses, depth, fixed / scale, float(floor))


def _active(spectrum: Spectrum | SpectralMeasure) -> tuple[FloatArray, FloatArray, float]:
    """Return eigenvalues and signal of the modes that move the gain, and the loss of those that never do."""
    x, s = spectrum.eigenvalues, spectrum.signal
    alive = (x > 0) & (s > 0)
    if alive.all():
        return x, s, 0.0
    return x[alive], s[alive], float(s[x == 0].sum())


def _reduced(x: FloatArray, s: FloatArray, depth: int) -> tuple[FloatArray | None, FloatArray, float]:
    """Return the Gauss rule with L + 1 nodes, exact for this depth, and its fixed point; ``None`` if it does not serve.

    It serves when it is much shorter than the spectrum and accurate at the fixed point and half way to it.
    """
    order = depth + 1
    if depth == 0 or 4 * order > x.size or order * x.size > LARGEST_BASIS:
        return None, s, math.nan
    nodes, weights = gauss_rule(x, s, order)
    nodes, weights = nodes[::-1].copy(), weights[::-1].copy()
    if not (nodes > 0).all():
        return None, s, math.nan
    fixed = fixed_point(nodes, weights, depth)
    for gain in (fixed, 0.5 * fixed):
        loss, force, _ = tied_sums(x, s, gain, depth)
        loss_of_rule, force_of_rule, _ = tied_sums(nodes, weights, gain, depth)
        if not (
            abs(loss_of_rule - loss) <= RULE_TOLERANCE * loss
            and abs(force_of_rule - force) <= RULE_TOLERANCE * max(loss * depth / gain, abs(force))
        ):
            return None, s, math.nan
    return nodes, weights, fixed


@kernel
def fixed_point(x: FloatArray, s: FloatArray, depth: int) -> float:
    """Return gamma*, the only zero of the force at finite depth, for positive ``x`` (descending) and ``s``."""
    low = depth / x[0]
    high = low
    while tied_sums(x, s, high, depth)[1] > 0:
        low = high
        high *= 2.0
    gain = low
    for _ in range(200):
        _, force, stiffness = tied_sums(x, s, gain, depth)
        if force > 0:
            low = gain
        elif force < 0:
            high = gain
        else:
            return gain
        newton = gain + force / stiffness * depth / (2 * depth - 1)
        step = newton if low < newton < high else 0.5 * (low + high)
        # Newton alone crawls at a zero of high multiplicity; bisection halves the bracket at least.
        if abs(step - gain) <= 2e-16 * gain or high - low <= 2e-16 * high:
            return step
        gain = step
    return gain


@kernel
def _difference(a: float, b: float, n: int) -> float:
    """Return (a + b)^n - a^n for odd n and b > 0, to relative rounding."""
    c = a + b
    growth = n * math.log1p(b / a) if b < abs(a) else math.inf
    # Powers that differ by a factor e do not cancel, and their ratio could overflow.
    if abs(growth) > 1.0:
        return math.copysign(abs(c) ** n, c) - math.copysign(abs(a) ** n, a)
    return math.copysign(abs(a) ** n, a) * math.expm1(growth)


@kernel
def _very_deep_force(x: FloatArray, s: FloatArray, depth: int, gain: float, fixed: float, distance: float) -> float:
    """Return the force at ``gain`` = ``fixed`` - ``distance`` where the power is too high to multiply out."""
    if depth == 0 or distance > 0.25 * fixed:
        return tied_sums(x, s, gain, depth)[1]
    total = 0.0
    n = 2 * depth - 1
    for k in range(x.size):
        total += s[k] * x[k] * _difference(1.0 - fixed * x[k] / depth, distance * x[k] / depth, n)
    return total


@kernel
def _forces(
    x: FloatArray, s: FloatArray, depth: int, gains: FloatArray, fixed: float, distances: FloatArray, out: FloatArray
) -> None:
    """Write the force at each gain = ``fixed`` - distance to ``out``, without cancellation near the fixed point.

    The force at gamma* is zero, so force = sum_k s_k x_k (a_k^n - c_k^n), n = 2L - 1, with c_k at gamma* and
    a_k = c_k + distance x_k / L. The quotient (a^n - c^n) / (a - c) follows from those of n/2 by doubling,
    (a^2m - c^2m) / (a - c) = (a^m + c^m) (a^m - c^m) / (a - c), and by one more factor,
    (a^(m+1) - c^(m+1)) / (a - c) = a (a^m - c^m) / (a - c) + c^m; for odd n it is positive and keeps its digits.
    """
    count = gains.size
    if depth == 0 or depth > DEEP:
        for j in range(count):
            out[j] = _very_deep_force(x, s, depth, gains[j], fixed, distances[j])
        return
    power, quotient = np.empty(count), np.empty(count)
    out[:] = 0.0
    lowest = 0
    while (depth - 1) >> lowest:
        lowest += 1
    for k in range(x.size):
        slope = x[k] / depth
        c = 1.0 - fixed * slope
        weight = s[k] * x[k] * slope
        if depth == 1:
            for j in range(count):
                out[j] += weight
            continue
        q = c
        for j in range(count):
            power[j] = c + distances[j] * slope
            quotient[j] = 1.0
        for bit in range(lowest - 2, -1, -1):
            if (depth - 1) >> bit & 1:
                q2 = q * q
                for j in range(count):
                    a = c + distances[j] * slope
                    quotient[j] = quotient[j] * (power[j] + q) * a + q2
                    power[j] *= power[j] * a
                q = q2 * c
            else:
                for j in range(count):
                    quotient[j] *= power[j] + q
                    power[j] *= power[j]
                q *= q
        for j in range(count):
            a = c + distances[j] * slope
            out[j] += weight * (quotient[j] * (power[j] + q) * a + q * q)
    for j in range(count):
        out[j] *= distances[j]


@kernel
def _position(z: float, origin: float, fixed: float) -> tuple[float, float, float]:
    """Return gain, distance to the fixed point and d gain / dz at z >= 0; ``origin`` is g0."""
    if math.isinf(fixed):
        return origin * math.expm1(z), math.inf, origin * math.exp(z)
    odds = origin / fixed * math.exp(z)
    distance = (fixed + origin) / (1.0 + odds)
    gain = origin * math.expm1(z) / (1.0 + odds)
    return gain, distance, odds * distance / (1.0 + odds)


@kernel
def _evaluate(first: FloatArray, second: FloatArray, u: float) -> tuple[float, float]:
    """Return two Chebyshev series of one length at u (Clenshaw)."""
    b1, b2 = 0.0, 0.0
    c1, c2 = 0.0, 0.0
    for j in range(first.size - 1, 0, -1):
        b1, b2 = 2.0 * u * b1 - b2 + first[j], b1
        c1, c2 = 2.0 * u * c1 - c2 + second[j], c1
    return u * b1 - b2 + first[0], u * c1 - c2 + second[0]


@kernel
def _solve(integral: FloatArray, series: FloatArray, wanted: float, low: float, guess: float) -> tuple[float, float]:
    """Return u in [low, 1] where ``integral``, with derivative ``series`` > 0, is ``wanted``; and the slope there."""
    high = 1.0
    u = guess if low <= guess <= high else 0.5 * (low + high)
    slope = 0.0
    for _ in range(60):
        value, slope = _evaluate(integral, series, u)
        if value > wanted:
            high = u
        else:
            low = u
        step = u + (wanted - value) / slope
        newton = low <= step <= high
        if not newton:
            step = 0.5 * (low + high)
        moved = abs(step - u)
        u = step
        # Newton's error is the square of its last step.
        if moved <= (LAST_NEWTON_STEP if newton else 4e-16):
            break
    return u, slope


@kernel
def _stretch(series: FloatArray, size: float, tolerance: float) -> float:
    """Return the factor by which a panel may grow, or must shrink, for its series to just converge.

    The coefficients fall like rho^-n, and the nearest singularity lies (rho - 1/rho)/2 half-widths away.
    """
    n = series.size - 2
    kept = n
    while kept > 1 and abs(series[kept]) <= tolerance * size:
        kept -= 1
    smallest = tolerance
    if kept == n:
        smallest = min(max(max(abs(series[n]), abs(series[n - 1])) / size, tolerance), 0.9)
    rho = smallest ** (-1.0 / (kept + 1))
    needed = tolerance ** (-1.0 / (n - SPARE))
    return (rho - 1.0 / rho) / (needed - 1.0 / needed)


@kernel
def _flow(
    x: FloatArray,
    s: FloatArray,
    depth: int,
    fixed: float,
    taus: FloatArray,
    nodes: FloatArray,
    to_series: FloatArray,
    to_integral: FloatArray,
) -> FloatArray:
    """Return the gain at each tau: march panels in z, invert tau(z) where asked."""
    gains = np.zeros(taus.size)
    _, force0, curvature0 = tied_sums(x, s, 0.0, depth)
    steepness = 2.0 if depth == 0 else (2.0 * depth - 1.0) / depth
    # Initial decay length of the force: force0 / |force'(0)|.
    origin = force0 / (steepness * curvature0)
    unit = origin / force0
    # force force'' / force'^2 at zero, for the third term of the Taylor series.
    bend = 0.0
    for k in range(x.size):
        bend += s[k] * x[k] ** 3
    bend *= force0 / curvature0**2 * (1.0 if depth == 0 else (2.0 * depth - 2.0) / (2.0 * depth - 1.0))
    done = 0
    while done < taus.size and taus[done] <= EARLY * unit:
        part = taus[done] / unit
        gains[done] = force0 * taus[done] * (1.0 - part / 2.0 + (1.0 + bend) * part * part / 6.0)
        done += 1
    z = 0.0
    tau = 0.0
    width = 1.0
    at, distances, samples = np.empty(nodes.size), np.empty(nodes.size), np.empty(nodes.size)
    # A power of 2L - 1 carries that many roundings; asking for less noise than that would never end.
    tolerance = max(CONVERGED, 32.0 * depth * np.finfo(np.float64).eps)
    while done < taus.size:
        if depth != 0 and _position(z, origin, fixed)[1] <= ARRIVED * fixed:
            gains[done:] = fixed
            break
        half = 0.5 * width
        for j in range(nodes.size):
            at[j], distances[j], samples[j] = _position(z + half * (nodes[j] + 1.0), origin, fixed)
        forces = np.empty(nodes.size)
        _forces(x, s, depth, at, fixed, distances, forces)
        fine = True
        for j in range(nodes.size):
            samples[j] *= half / forces[j]
            fine = fine and math.isfinite(samples[j]) and samples[j] > 0
        series = np.dot(to_series, samples)
        size = np.max(np.abs(series))
        growth = _stretch(series, size, tolerance) if fine else 0.0
        if growth < ENOUGH and width > NARROWEST_PANEL:
            width *= max(growth, 0.25)
            continue
        if not fine:
            # Where the force has underflowed, the gain moves no more within any time that a float can hold.
            gains[done:] = _position(z, origin, fixed)[0] if np.isinf(np.max(samples)) else math.nan
            break
        integral = np.dot(to_integral, series)
        passed = _evaluate(integral, series, 1.0)[0]
        u = -1.0
        reached = 0.0
        slope = 0.5 * passed
        while done < taus.size and taus[done] - tau <= passed:
            wanted = taus[done] - tau
            u, slope = _solve(integral, series, wanted, u, u + (wanted - reached) / slope)
            reached = wanted
            gains[done] = _position(z + half * (u + 1.0), origin, fixed)[0]
            done += 1
        tau += passed
        z += width
        width *= min(growth, WIDEST_STEP)
    return gains


def _chebyshev() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return nodes, the matrix from samples to series, and that from series to its integral from -1, of one length."""
    n = PANEL
    angle = np.pi * (np.arange(n) + 0.5) / n
    to_series = np.zeros((n + 1, n))
    to_series[:n] = 2.0 / n * np.cos(np.outer(np.arange(n), angle))
    to_series[0] /= 2
    to_integral = np.zeros((n + 1, n + 1))
    to_integral[:, :n] = np.array([np.polynomial.chebyshev.chebint(row, lbnd=-1) for row in np.eye(n)]).T
    return np.cos(angle), to_series, to_integral


_SERIES = _chebyshev()
