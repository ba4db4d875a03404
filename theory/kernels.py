"""Sums over modes, compiled: the loss and its derivatives in the gains, for tied, untied and infinitely deep models.

Everywhere x is the array of eigenvalues lambda_k and s the signal lambda_k omega_k. With r_k = 1 - gamma x_k / L:

    loss = sum_k s_k r_k^(2L),   force = sum_k s_k x_k r_k^(2L-1),   stiffness = sum_k s_k x_k^2 r_k^(2L-2),

so that d loss / d gamma = -2 force, d force / d gamma = -((2L-1)/L) stiffness. For L → inf, r^(2L) becomes
exp(-2 gamma x), and d force / d gamma = -2 stiffness. Tied gradient flow is d gamma / dt = (2 / (D L)) force.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from theory.checks import FloatArray
from theory.jit import kernel, streaming_kernel, threads

# Modes handled at a time: the working arrays then stay in the first-level cache.
BLOCK = 512
# Modes in one thread's piece of work; sums are added piece by piece, so the thread count changes no digit.
PIECE = 1 << 18
# From this depth on a power is taken as exp(n log1p(-gamma x / L)): repeated squaring would lose n rounding errors.
DEEP = 4096


@streaming_kernel
def even_power_block(x: FloatArray, slope: float, half: int, square: FloatArray, out: FloatArray) -> None:
    """Write (1 - slope x)^(2 half) to ``out`` by repeated squaring; ``square`` is working space.

    Each pass squares and, where the binary digit of ``half`` is one, multiplies: one load and store of the block.
    """
    n = x.size
    if half & 1:
        for i in range(n):
            r = 1.0 - slope * x[i]
            square[i] = r * r
            out[i] = r * r
    else:
        for i in range(n):
            r = 1.0 - slope * x[i]
            square[i] = r * r
            out[i] = 1.0
    half >>= 1
    while half > 0:
        if half & 1:
            for i in range(n):
                p = square[i] * square[i]
                square[i] = p
                out[i] *= p
            half >>= 1
        elif half & 2:
            for i in range(n):
                p = square[i] * square[i]
                p *= p
                square[i] = p
                out[i] *= p
            half >>= 2
        else:
            for i in range(n):
                p = square[i] * square[i]
                square[i] = p * p
            half >>= 2


@streaming_kernel
def tied_sums(x: FloatArray, s: FloatArray, gamma: float, depth: int) -> tuple[float, float, float]:
    """Return (loss, force, stiffness) of the tied model; ``depth`` 0 means L → inf. Memory: two reads a mode."""
    loss = 0.0
    force = 0.0
    stiffness = 0.0
    square = np.empty(BLOCK)
    power = np.empty(BLOCK)
    for start in range(0, x.size, BLOCK):
        n = min(BLOCK, x.size - start)
        xs = x[start : start + n]
        ss = s[start : start + n]
        if depth == 0:
            for i in range(n):
                value = ss[i] * math.exp(-2.0 * gamma * xs[i])
                loss += value
                force += value * xs[i]
                stiffness += value * xs[i] * xs[i]
            continue
        slope = gamma / depth
        if depth < DEEP:
            even_power_block(xs, slope, depth - 1, square, power)
        else:
            for i in range(n):
                u = slope * xs[i]
                power[i] = math.exp((2 * depth - 2) * (math.log1p(-u) if u < 1.0 else math.log(u - 1.0)))
        for i in range(n):
            r = 1.0 - slope * xs[i]
            value = ss[i] * power[i]
            loss += value * r * r
            force += value * r * xs[i]
            stiffness += value * xs[i] * xs[i]
    return loss, force, stiffness


@streaming_kernel
def tied_force(x: FloatArray, weight: FloatArray, gamma: float, depth: int) -> float:
    """Return sum_k weight_k r_k^(2L-1), finite ``depth``: the right-hand side when weight = s x. Two reads a mode."""
    total = 0.0
    square = np.empty(BLOCK)
    power = np.empty(BLOCK)
    slope = gamma / depth
    for start in range(0, x.size, BLOCK):
        n = min(BLOCK, x.size - start)
        xs = x[start : start + n]
        ws = weight[start : start + n]
        half = depth - 1
        if half == 0:
            for i in range(n):
                total += ws[i] * (1.0 - slope * xs[i])
            continue
        if half & 1:
            for i in range(n):
                r = 1.0 - slope * xs[i]
                p = r * r
                square[i] = p
                power[i] = ws[i] * r * p
        else:
            for i in range(n):
                r = 1.0 - slope * xs[i]
                square[i] = r * r
                power[i] = ws[i] * r
        half >>= 1
        while half > 1:
            if half & 1:
                for i in range(n):
                    p = square[i] * square[i]
                    square[i] = p
                    power[i] *= p
            else:
                for i in range(n):
                    square[i] *= square[i]
            half >>= 1
        if half == 1:
            for i in range(n):
                total += power[i] * square[i] * square[i]
        else:
            for i in range(n):
                total += power[i]
    return total


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
def tied_losses(x: FloatArray, s: FloatArray, gammas: FloatArray, depth: int) -> FloatArray:
    """Return the tied loss at every gain of ``gammas``; ``depth`` 0 means L → inf."""
    out = np.empty(gammas.size)
    for j in range(gammas.size):
        out[j] = tied_sums(x, s, gammas[j], depth)[0]
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
