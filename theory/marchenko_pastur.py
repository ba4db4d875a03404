"""The isotropic setting at large size: integrals over the Marchenko-Pastur law, exact by its Gauss quadrature.

P, D -> inf at P/D = alpha; the loss is an integral of q(x)^2, q(x) = prod_l (1 - gamma_l x/L), of degree 2 L.
"""

from __future__ import annotations

import math

import numpy as np

from theory.checks import FloatArray, integer, real
from theory.losses import noise_response, residual


def marchenko_pastur_rule(alpha: float, nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return Gauss nodes and weights of the Marchenko-Pastur law of mean 1 with P/D = ``alpha``, atom at zero included.

    The law's monic orthogonal polynomials obey p_1 = x - 1, p_(n+1) = (x - 1 - 1/alpha) p_n - (1/alpha) p_(n-1):
    a constant Jacobi matrix but for its corner. Exact for polynomials up to degree 2 nodes - 1.

    Parameters
    ----------
    alpha : float
        > 0; ``inf`` gives the point mass at 1.
    nodes : int
        >= 1.

    Returns
    -------
    nodes, weights : arrays of shape (nodes,)

    Raises
    ------
    ValueError
        For values out of range.
    """
    count = integer("nodes", nodes)
    if alpha == math.inf:
        return np.ones(1), np.ones(1)
    ratio = 1 / real("alpha", alpha, above=0)
    diagonal = np.full(count, 1 + ratio)
    diagonal[0] = 1.0
    off = np.full(count - 1, math.sqrt(ratio))
    from scipy.linalg import eigh_tridiagonal

    points, vectors = eigh_tridiagonal(diagonal, off)
    return np.maximum(points, 0.0), vectors[0] ** 2


def isotropic_loss(alpha: float, gains: FloatArray, *, label_noise: float = 0.0) -> float:
    """Return the limiting loss of the isotropic task, int q^2 dMP + (sigma^2/alpha) int x r^2 dMP, P/D = alpha.

    q(x) = prod_l (1 - gamma_l x/L), r(x) = (1 - q(x))/x.

    Parameters
    ----------
    alpha : float
        > 0, or inf.
    gains : array of shape (L,)
    label_noise : float
        sigma^2, relative to the loss of predicting zero, which is 1.

    Raises
    ------
    ValueError
        For values out of range.
    """
    gains = np.asarray(gains, dtype=np.float64)
    depth = gains.size
    points, weights = marchenko_pastur_rule(alpha, depth + 1)
    response = noise_response(points, gains)
    return float(weights @ (residual(points, gains) ** 2 + label_noise / alpha * points * response**2))


def isotropic_tied_optimum(alpha: float, depth: int, *, label_noise: float = 0.0) -> tuple[float, float]:
    """Return (gain, loss) of the best tied gain in the isotropic large-size limit.

    Raises
    ------
    ValueError
        For values out of range.
    """
    from scipy.optimize import minimize_scalar

    depth = integer("depth", depth)
    points, _ = marchenko_pastur_rule(alpha, depth + 1)
    # Beyond 2L/x_max the largest node's residual exceeds one; the loss is quasi-convex before it.
    found = minimize_scalar(
        lambda gain: isotropic_loss(alpha, np.full(depth, gain), label_noise=label_noise),
        bounds=(0.0, 2 * depth / float(points[-1])),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return float(found.x), float(found.fun)


def isotropic_untied_floor(alpha: float, depth: int) -> float:
    """Return the untied floor of the isotropic limit, no label noise: 1/(1 + alpha + ... + alpha^L).

    The orthonormal polynomials of the Marchenko-Pastur law have p_n(0)^2 = alpha^n (its monic ones are +-1 at 0, of
    squared norm alpha^-n), and the floor is the Christoffel function 1/sum_n p_n(0)^2.

    Raises
    ------
    ValueError
        For values out of range.
    """
    alpha, depth = real("alpha", alpha, above=0), integer("depth", depth)
    return float(1 / np.sum(alpha ** np.arange(depth + 1.0)))
