"""Moments of large random matrices by a contour integral: Chebyshev moments from a deterministic equivalent.

Lambda^(1/2) A Lambda^(1/2), A a large random matrix in general position to Lambda, has the resolvent

    z (z - .)^-1 -> kappa (Lambda + kappa)^-1,    -z = kappa h(t),    t = sum_k lambda_k/(lambda_k + kappa),

with h = 1 - t/P for a Wishart A of P rows (a sample covariance) and h = (N - t)/(D - t) for a random projection of
rank N: the reciprocal S-transform of A at -t/D. Resolvents on an ellipse around the spectrum give E[T_j(.)] by a
Fourier transform.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray

ComplexArray = npt.NDArray[np.complex128]

# Points n on a contour of radius r: truncation r^-n = exp(-38), rounding amplified by r^(2 degree) <= exp(76/32).
POINTS_PER_DEGREE = 32
FEWEST_POINTS = 256
LOG_TRUNCATION = 38.0
# Convergence of Newton's method for kappa, relative.
NEWTON_TOLERANCE = 1e-15
MOST_NEWTON_STEPS = 60
# The equation is followed inwards from this multiple of the contour, where kappa is nearly -z/h(0).
FAR = 1e3
STAGES = 80


@dataclasses.dataclass(frozen=True)
class Contour:
    """kappa on a contour around the spectrum, and the weights that turn resolvents into Chebyshev moments.

    Attributes
    ----------
    kappa : complex array of shape (points,)
    weights : complex array of shape (points, moments)
        sum_p weights[p, j] z_p (z_p - x)^-1 = T_j(2 x/upper - 1).
    """

    kappa: ComplexArray
    weights: ComplexArray

    def one_point(self, lam: FloatArray, weight: FloatArray) -> FloatArray:
        """Return lim E tr(diag(weight) T_j(.)), shape (moments,)."""
        resolvent = self.kappa[:, None] / (lam + self.kappa[:, None])
        moments: FloatArray = (self.weights.T @ (resolvent @ weight)).real
        return moments


def wishart_factor(context: int) -> Callable[[ComplexArray], tuple[ComplexArray, ComplexArray]]:
    """Return h and dh/dt for a sample covariance of ``context`` rows."""
    return lambda t: (1 - t / context, np.full_like(t, -1 / context))


def projection_factor(width: int, dim: int) -> Callable[[ComplexArray], tuple[ComplexArray, ComplexArray]]:
    """Return h and dh/dt for a random projection of rank ``width`` < ``dim``."""
    return lambda t: ((width - t) / (dim - t), (width - dim) / (dim - t) ** 2)


def contour(
    lam: FloatArray, upper: float, moments: int, factor: Callable[[ComplexArray], tuple[ComplexArray, ComplexArray]]
) -> Contour:
    """Return kappa and weights for the first ``moments`` Chebyshev moments on [0, upper], which holds the spectrum.

    Raises
    ------
    RuntimeError
        If the equation for kappa is not solved on its physical branch, where Im kappa has the sign of -Im z.
    """
    points = max(FEWEST_POINTS, POINTS_PER_DEGREE * moments // 2)
    radius = math.exp(LOG_TRUNCATION / points)
    # Half a step off the real axis; the other half of the contour is the complex conjugate.
    rho = radius * np.exp(1j * np.pi * (2 * np.arange(points) + 1) / points)
    half = _follow(lam, upper, rho[rho.imag > 0], factor)
    kappa = np.concatenate([half, half[::-1].conj()])
    # upper (rho - 1/rho)/4 / (z - x) = T_0(x) + 2 sum_j rho^-j T_j(x): averaging over the circle reads T_j.
    jacobian = upper * (rho - 1 / rho) / 4 / _ellipse(rho, upper)
    weights = jacobian[:, None] * rho[:, None] ** np.arange(moments) / points
    weights[:, 1:] /= 2
    return Contour(kappa, weights)


def _ellipse(rho: ComplexArray, upper: float) -> ComplexArray:
    z: ComplexArray = upper * (2 + rho + 1 / rho) / 4
    return z


def _follow(
    lam: FloatArray,
    upper: float,
    rho: ComplexArray,
    factor: Callable[[ComplexArray], tuple[ComplexArray, ComplexArray]],
) -> ComplexArray:
    """Follow kappa from a far contour to ``rho`` by Newton's method."""
    kappa = -_ellipse(FAR * rho, upper) / factor(np.zeros(1, dtype=complex))[0]
    for scale in np.geomspace(FAR, 1.0, STAGES):
        z = _ellipse(scale * rho, upper)
        for _ in range(MOST_NEWTON_STEPS):
            share = lam / (lam + kappa[:, None])
            h, slope = factor(share.sum(axis=1))
            # d t/d kappa = -sum share (1 - share) / kappa.
            step = (kappa * h + z) / (h - slope * np.sum(share * (1 - share), axis=1))
            kappa = kappa - step
            if np.all(np.abs(step) <= NEWTON_TOLERANCE * np.abs(kappa)):
                break
    residual = np.abs(kappa * factor((lam / (lam + kappa[:, None])).sum(axis=1))[0] + z)
    if not (np.all(residual <= 1e-10 * np.abs(z)) and np.all(np.sign(kappa.imag) == -np.sign(z.imag))):
        raise RuntimeError("the deterministic equivalent left its physical branch on the contour")
    return kappa


def chebyshev_points(count: int, upper: float) -> FloatArray:
    """Return the zeros of T_count on [0, upper], largest first."""
    points: FloatArray = upper * (1 + np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2
    return points


def chebyshev_transform(count: int) -> FloatArray:
    """Return the matrix from values at `chebyshev_points` to Chebyshev coefficients, shape (count, count)."""
    angles = np.pi * (np.arange(count) + 0.5) / count
    matrix: FloatArray = 2 / count * np.cos(np.multiply.outer(np.arange(count), angles))
    matrix[0] /= 2
    return matrix
