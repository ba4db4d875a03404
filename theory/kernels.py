"""Sums over modes, compiled: the loss and its derivatives in the gains, for tied, untied and infinitely deep models.

Everywhere x is the array of eigenvalues lambda_k and s the signal lambda_k omega_k. With r_k = 1 - gamma x_k / L:

    loss = sum_k s_k r_k^(2L),   force = sum_k s_k x_k r_k^(2L-1),   stiffness = sum_k s_k x_k^2 r_k^(2L-2),

so that d loss / d gamma = -2 force, d force / d gamma = -((2L-1)/L) stiffness. For L → inf, r^(2L) becomes
exp(-2 gamma x), and d force / d gamma = -2 stiffness. Tied gradient flow is d gamma / dt = (2 / (D L)) force.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from theory.checks import FloatArray
from theory.jit import kernel, streaming_kernel, threads

# Gains handled at a time: the working array then stays in the first-level cache.
BLOCK = 512
# Modes in one thread's piece of work; sums are added piece by piece, so the thread count changes no digit.
PIECE = 1 << 18
# Beyond this depth a power is taken as exp(n log1p(-gamma x / L)): repeated squaring would lose n rounding errors.
DEEP = 1024


@streaming_kernel
def _digit(p: float, r: float, square: float, n: int) -> float:
    """Return p^4 r^(n mod 4): the next digit, to base 4, of an exponent read from the highest on; ``square`` is r^2."""
    p *= p
    return p * p * ((r if n & 1 else 1.0) * (square if n & 2 else 1.0))


# The powers (1 - u)^n for n below 16, 256 and 1024. Each takes a fixed number of steps, and all modes share the digits
# of n, so that loops that call them vectorise and keep the power in registers.
@streaming_kernel
def _power_16(u: float, n: int) -> float:
    r = 1.0 - u
    return _digit(_digit(1.0, r, r * r, n >> 2), r, r * r, n)


@streaming_kernel
def _power_256(u: float, n: int) -> float:
    r = 1.0 - u
    return _digit(_digit(_power_16(u, n >> 4), r, r * r, n >> 2), r, r * r, n)


@streaming_kernel
def _power_1024(u: float, n: int) -> float:
    r = 1.0 - u
    return _digit(_power_256(u, n >> 2), r, r * r, n)


@streaming_kernel
def _power_deep(u: float, n: int) -> float:
    """Return |1 - u|^n with one rounding of the exponent in place of n of the power."""
    return math.exp(n * (math.log1p(-u) if u < 1.0 else math.log(u - 1.0)))


@streaming_kernel
def _power_infinite(u: float, n: int) -> float:
    """Return exp(-u), the root of the power at infinite depth."""
    return math.exp(-u)


def _sums_loop(power: Callable[[float, int], float], infinite: bool) -> Callable[..., tuple[float, float, float]]:
    """Return the loop of :func:`tied_sums` for one way to raise to a power."""

    @streaming_kernel
    def sums(x: FloatArray, s: FloatArray, slope: float, half: int) -> tuple[float, float, float]:
        loss = 0.0
        force = 0.0
        stiffness = 0.0
        for i in range(x.size):
            u = slope * x[i]
            root = power(u, half)
            r = 1.0 if infinite else 1.0 - u
            value = s[i] * (root * root)
            loss += value * (r * r)
            force += value * (r * x[i])
            stiffness += value * (x[i] * x[i])
        return loss, force, stiffness

    return sums


def _force_loop(power: Callable[[float, int], float]) -> Callable[..., float]:
    """Return the loop of :func:`tied_force` for one way to raise to a power."""

    @streaming_kernel
    def force(x: FloatArray, weight: FloatArray, slope: float, half: int) -> float:
        total = 0.0
        for i in range(x.size):
            u = slope * x[i]
            root = power(u, half)
            total += weight[i] * ((1.0 - u) * (root * root))
        return total

    return force


def _losses_loop(power: Callable[[float, int], float]) -> Callable[..., None]:
    """Return the loop that adds one mode's loss at many gains, for one way to raise to a power."""

    @streaming_kernel
    def losses(gammas: FloatArray, s: float, slope: float, n: int, out: FloatArray) -> None:
        for j in range(gammas.size):
            root = power(slope * gammas[j], n)
            out[j] += s * (root * root)

    return losses


_FINITE = (_power_16, _power_256, _power_1024, _power_deep)
_SUMS_16, _SUMS_256, _SUMS_1024, _SUMS_DEEP = (_sums_loop(power, False) for power in _FINITE)
_SUMS_INFINITE = _sums_loop(_power_infinite, True)
_FORCE_16, _FORCE_256, _FORCE_1024, _FORCE_DEEP = map(_force_loop, _FINITE)
_LOSSES_16, _LOSSES_256, _LOSSES_1024, _LOSSES_DEEP = map(_losses_loop, _FINITE)
_LOSSES_INFINITE = _losses_loop(_power_infinite)


@kernel
def tied_sums(x: FloatArray, s: FloatArray, gamma: float, depth: int) -> tuple[float, float, float]:
    """Return (loss, force, stiffness) of the tied model; ``depth`` 0 means L → inf. Memory: two reads a mode."""
    if depth == 0:
        return _SUMS_INFINITE(x, s, gamma, 0)
    half, slope = depth - 1, gamma / depth
    if half < 16:
        return _SUMS_16(x, s, slope, half)
    if half < 256:
        return _SUMS_256(x, s, slope, half)
    if half < DEEP:
        return _SUMS_1024(x, s, slope, half)
    return _SUMS_DEEP(x, s, slope, half)


@kernel
def tied_force(x: FloatArray, weight: FloatArray, gamma: float, depth: int) -> float:
    """Return sum_k weight_k r_k^(2L-1), finite ``depth``: the right-hand side when weight = s x. Two reads a mode."""
    half, slope = depth - 1, gamma / depth
    if half < 16:
        return _FORCE_16(x, weight, slope, half)
    if half < 256:
        return _FORCE_256(x, weight, slope, half)
    if half < DEEP:
        return _FORCE_1024(x, weight, slope, half)
    return _FORCE_DEEP(x, weight, slope, half)


def tied_sums_threaded(x: FloatArray, s: FloatArray, gamma: float, depth: int) -> tuple[float, float, float]:
    """Return what :func:`tied_sums` returns, with large spectra shared among the allowed threads.

    The result does not depend on the number of threads.
    """
    if x.size <= PIECE:
        return tied_sums(x, s, gamma, depth)
    starts = range(0, x.size, PIECE)

    def piece(start: int) -> tuple[float, float, float]:
        return tied_sums(x[start : start + PIECE], s[start : start + PIECE], gamma, depth)

    workers = min(threads(), len(starts))
    if workers == 1:
        parts = [piece(start) for start in starts]
    else:
        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(piece, starts))
    loss, force, stiffness = (math.fsum(column) for column in zip(*parts, strict=True))
    return loss, force, stiffness


@kernel
def _add_losses(gammas: FloatArray, s: float, x: float, depth: int, out: FloatArray) -> None:
    """Add one mode's loss at every gain to ``out``."""
    if depth == 0:
        _LOSSES_INFINITE(gammas, s, x, 0, out)
    elif depth < 16:
        _LOSSES_16(gammas, s, x / depth, depth, out)
    elif depth < 256:
        _LOSSES_256(gammas, s, x / depth, depth, out)
    elif depth < DEEP:
        _LOSSES_1024(gammas, s, x / depth, depth, out)
    else:
        _LOSSES_DEEP(gammas, s, x / depth, depth, out)


@kernel
def tied_losses(x: FloatArray, s: FloatArray, gammas: FloatArray, depth: int) -> FloatArray:
    """Return the tied loss at every gain of ``gammas``; ``depth`` 0 means L → inf. The longer of the two vectorises."""
    out = np.zeros(gammas.size)
    if gammas.size < x.size:
        for j in range(gammas.size):
            out[j] = tied_sums(x, s, gammas[j], depth)[0]
        return out
    for start in range(0, gammas.size, BLOCK):
        part = slice(start, start + BLOCK)
        for k in range(x.size):
            _add_losses(gammas[part], s[k], x[k], depth, out[part])
    return out


@kernel
def leave_one_out(x: float, gains: FloatArray, out: FloatArray) -> float:
    """Write prod_(m != l) (1 - gains_m x / L) to ``out[l]`` and return the whole product; zeros are harmless."""
    depth = gains.size
    product = 1.0
    for layer in range(depth):
        out[layer] = product
        product *= 1.0 - gains[layer] * x / depth
    after = 1.0
    for layer in range(depth - 1, -1, -1):
        out[layer] *= after
        after *= 1.0 - gains[layer] * x / depth
    return product


@kernel
def untied_sums(x: FloatArray, s: FloatArray, gains: FloatArray, force: FloatArray) -> float:
    """Write force_l = -(1/2) L d loss / d gamma_l = sum_k s_k x_k prod^2 / r_l to ``force``; return the loss."""
    depth = gains.size
    others = np.empty(depth)
    force[:] = 0.0
    loss = 0.0
    for k in range(x.size):
        product = leave_one_out(x[k], gains, others)
        value = s[k] * product
        loss += value * product
        value *= x[k]
        for layer in range(depth):
            force[layer] += value * others[layer]
    return loss


@kernel
def untied_stiffness(x: FloatArray, s: FloatArray, gains: FloatArray, out: FloatArray) -> None:
    """Write -L d force_l / d gamma_m to ``out``, shape (L, L): (L^2 / 2) times the Hessian of the loss.

    Entries are sum_k s_k x_k^2 P_l^2 on the diagonal and 2 sum_k s_k x_k^2 P_l P_m off it, P_l the product without
    layer l.
    """
    depth = gains.size
    others = np.empty(depth)
    out[:] = 0.0
    for k in range(x.size):
        leave_one_out(x[k], gains, others)
        weight = 2.0 * s[k] * x[k] * x[k]
        for layer in range(depth):
            value = weight * others[layer]
            for other in range(layer):
                out[layer, other] += value * others[other]
            out[layer, layer] += 0.5 * value * others[layer]
    for layer in range(depth):
        for other in range(layer):
            out[other, layer] = out[layer, other]
