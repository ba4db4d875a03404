"""Gauss rules for discrete measures: few nodes that integrate every polynomial of a given degree exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, integer
from theory.jit import kernel, streaming_kernel

# Inner products of unit vectors below this leave the recurrence accurate to rounding, near their square (Simon 1984).
SEMIORTHOGONAL = 1e-9
# A vector shorter than this share of the largest |x| is rounding: the measure has no more points.
NOTHING_LEFT = 1e-15
UNIT = float(np.finfo(np.float64).eps)


@streaming_kernel
def _advance(
    x: FloatArray, now: FloatArray, before: FloatArray, shift: float, back: float, out: FloatArray
) -> tuple[float, float]:
    """Write (x - shift) now - back before to ``out``; return sum out^2 and sum x out^2, all in one pass."""
    square = 0.0
    moment = 0.0
    for i in range(x.size):
        value = (x[i] - shift) * now[i] - back * before[i]
        out[i] = value
        square += value * value
        moment += x[i] * (value * value)
    return square, moment


@streaming_kernel
def _sizes(x: FloatArray, vector: FloatArray) -> tuple[float, float]:
    """Return sum vector^2 and sum x vector^2."""
    square = 0.0
    moment = 0.0
    for i in range(x.size):
        value = vector[i] * vector[i]
        square += value
        moment += x[i] * value
    return square, moment


@kernel
def lanczos(x: FloatArray, s: FloatArray, steps: int) -> tuple[FloatArray, FloatArray, int]:
    """Return the recurrence of the polynomials orthonormal under sum_k s_k delta(x_k): diagonal, off-diagonal, length.

    Lanczos with partial reorthogonalisation (Simon 1984): the overlaps of each new vector with the earlier ones obey
    the recurrence too, which tells without touching the vectors when rounding has grown enough to be taken off, from
    two vectors in a row. The length is below ``steps`` where the measure has fewer distinct points.
    """
    n = x.size
    basis = np.empty((steps, n))
    diagonal = np.zeros(steps)
    # off[j] ties vectors j - 1 and j; off[0] = 0.
    off = np.zeros(steps)
    total = 0.0
    scale = 0.0
    for i in range(n):
        total += s[i]
        scale = max(scale, abs(x[i]))
    for i in range(n):
        basis[0, i] = np.sqrt(s[i] / total)
    diagonal[0] = _sizes(x, basis[0])[1]
    rounding = UNIT * np.sqrt(n)
    # Bounds in sign and size on the overlaps of vectors j - 1, j and j + 1 with vector k.
    past, present, future = np.zeros(steps), np.zeros(steps), np.zeros(steps)
    again = False
    for j in range(steps - 1):
        vector = basis[j + 1]
        square, moment = _advance(x, basis[j], basis[max(j - 1, 0)], diagonal[j], off[j], vector)
        length = np.sqrt(square)
        if length <= NOTHING_LEFT * scale:
            return diagonal[: j + 1], off[1 : j + 1], j + 1
        worst = rounding * scale / length
        future[j] = worst
        for k in range(j):
            # The unit overlaps of vectors j and j - 1 with themselves cancel here: both are left at 0.
            overlap = (diagonal[k] - diagonal[j]) * present[k] - off[j] * past[k] + off[k + 1] * present[k + 1]
            if k > 0:
                overlap += off[k] * present[k - 1]
            future[k] = (overlap + np.copysign(2.0 * UNIT * scale, overlap)) / length
            worst = max(worst, abs(future[k]))
        if again or worst > SEMIORTHOGONAL:
            again = worst > SEMIORTHOGONAL and not again
            done = basis[: j + 1]
            for _ in range(2):
                before = length
                vector -= np.dot(np.dot(done, vector), done)
                square, moment = _sizes(x, vector)
                length = np.sqrt(square)
                # What is taken off a vector that hardly shrinks is taken off to rounding (Kahan's "twice is enough").
                if length > 0.5 * before:
                    break
            if length <= NOTHING_LEFT * scale:
                return diagonal[: j + 1], off[1 : j + 1], j + 1
            future[: j + 1] = rounding
        diagonal[j + 1] = moment / square
        off[j + 1] = length
        vector /= length
        past, present, future = present, future, past
    return diagonal, off[1:], steps


def rule_from_recurrence(
    diagonal: FloatArray, off: FloatArray, total: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Gauss nodes and weights of recurrences of shape (..., n) and (..., n-1) (Golub and Welsch 1969)."""
    n = diagonal.shape[-1]
    jacobi = np.zeros((*diagonal.shape[:-1], n, n))
    index = np.arange(n)
    jacobi[..., index, index] = diagonal
    jacobi[..., index[1:], index[:-1]] = off
    nodes, vectors = np.linalg.eigh(jacobi)
    return nodes, np.asarray(total)[..., None] * vectors[..., 0, :] ** 2


def gauss_rule(x: npt.ArrayLike, s: npt.ArrayLike, order: int) -> tuple[FloatArray, FloatArray]:
    """Return ``order`` nodes and weights that integrate polynomials of degree <= 2 order - 1 as the measure does.

    Parameters
    ----------
    x, s : arrays of shape (n,)
        Points and non-negative weights, sum s > 0.
    order : int
        Nodes wanted; fewer come back when the measure has fewer distinct points.

    Returns
    -------
    nodes, weights : arrays of shape (<= order,)
        Nodes ascending, within the range of x; weights non-negative, with the sum of s.

    Notes
    -----
    The tied or untied loss of depth L is a polynomial of degree 2L in the eigenvalue, so L + 1 nodes reproduce it for
    every choice of gains. The nodes are exact to rounding of the largest |x|.
    """
    points = np.ascontiguousarray(x, dtype=np.float64)
    weights = np.ascontiguousarray(s, dtype=np.float64)
    diagonal, off, _length = lanczos(points, weights, min(integer("order", order), points.size))
    nodes, shares = rule_from_recurrence(diagonal, off, float(weights.sum()))
    return np.clip(nodes, points.min(), points.max()), shares


def summation_rule(low: npt.ArrayLike, high: npt.ArrayLike, order: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights for sums over consecutive integers: sum_(low <= k < high) f(k) = sum_i w_i f(k_i).

    Exact for polynomials of degree <= 2 order - 1, at any length of the sum: the recurrence of the discrete Chebyshev
    (Gram) polynomials on N points is known, off-diagonal^2 = j^2 (N^2 - j^2) / (4 (4 j^2 - 1)) (DLMF 18.22).

    Parameters
    ----------
    low, high : arrays of shape (cells,)
        Whole numbers (as float64), high - low >= order.
    order : int
        Nodes a cell.

    Returns
    -------
    nodes, weights : arrays of shape (cells, order)
    """
    first = np.atleast_1d(np.asarray(low, dtype=np.float64))
    count = np.atleast_1d(np.asarray(high, dtype=np.float64)) - first
    j = np.arange(1, order, dtype=np.float64)
    off = j * np.sqrt((1 - (j / count[:, None]) ** 2) / (4 * (4 * j**2 - 1)))
    nodes, weights = rule_from_recurrence(np.zeros((count.size, order)), off, count)
    return first[:, None] + (count[:, None] - 1) / 2 + count[:, None] * nodes, weights
