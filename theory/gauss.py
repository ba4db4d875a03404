"""Gauss rules for discrete measures: few nodes that integrate every polynomial of a given degree exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, integer
from theory.jit import kernel

# Inner products of unit vectors below this leave the recurrence accurate to rounding.
SEMIORTHOGONAL = 1e-12


@kernel
def lanczos(x: FloatArray, s: FloatArray, steps: int) -> tuple[FloatArray, FloatArray, int]:
    """Return the recurrence of the polynomials orthonormal under sum_k s_k delta(x_k): diagonal, off-diagonal, length.

    Lanczos: the recurrence takes off the two vectors that a new one leans on; what rounding leaves along the others is
    taken off once it could matter (a recurrence is as accurate as the square of its orthogonality, Simon 1984). The
    length is below ``steps`` where the measure has fewer distinct points.
    """
    n = x.size
    basis = np.empty((steps, n))
    diagonal = np.zeros(steps)
    off = np.zeros(steps)
    total = 0.0
    for i in range(n):
        total += s[i]
    for i in range(n):
        basis[0, i] = np.sqrt(s[i] / total)
    scale = 0.0
    for i in range(n):
        scale = max(scale, abs(x[i]))
    vector = np.empty(n)
    for j in range(steps):
        for i in range(n):
            vector[i] = x[i] * basis[j, i]
        overlap = np.dot(basis[j], vector)
        before = off[j - 1] if j else 0.0
        for i in range(n):
            vector[i] -= overlap * basis[j, i] + before * basis[max(j - 1, 0), i]
        done = basis[: j + 1]
        correction = np.dot(done, vector)
        diagonal[j] = overlap + correction[j]
        norm = np.sqrt(np.dot(vector, vector))
        if np.abs(correction).max() > SEMIORTHOGONAL * norm:
            vector -= np.dot(correction, done)
            norm = np.sqrt(np.dot(vector, vector))
        off[j] = norm
        if j + 1 == steps or norm <= 1e-15 * scale:
            return diagonal[: j + 1], off[:j], j + 1
        basis[j + 1] = vector / norm
    return diagonal, off[: steps - 1], steps


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
