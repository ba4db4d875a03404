"""Large-size limits of Wishart averages: polynomials of a sample covariance without drawing one.

For P, dim -> inf together the resolvent of Sigma_hat has a deterministic equivalent, and so has the pair in
E tr(Omega (z_1 - S)^-1 Lambda (z_2 - S)^-1). Its Chebyshev coefficients turn the loss of a depth-L linear model into a
quadratic form in the coefficients of its residual polynomial q(x) = prod_l (1 - gamma_l x / L), for all gains at once.
In the isotropic setting the limit is an integral over the Marchenko-Pastur law, done exactly by its Gauss quadrature.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from theory.checks import FloatArray, integer, real
from theory.losses import QuadraticLoss
from theory.results import Result
from theory.task import Task

# Points n on a contour of radius r: truncation r^-n = exp(-38), rounding amplified by r^(2 degree) <= exp(76/32).
POINTS_PER_DEGREE = 32
FEWEST_POINTS = 256
LOG_TRUNCATION = 38.0
# Convergence of Newton's method for kappa, relative.
NEWTON_TOLERANCE = 1e-15


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
    residual = np.prod(1 - np.multiply.outer(gains, points) / depth, axis=0)
    return float(weights @ (residual**2 + label_noise / alpha * points * noise_weight(points, gains) ** 2))


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


def noise_weight(points: FloatArray, gains: FloatArray) -> FloatArray:
    """Return r(x) = (1 - q(x))/x for q(x) = prod_l (1 - gamma_l x/L), without cancellation near x = 0.

    Parameters
    ----------
    points : array of any shape
    gains : array of shape (L,)
    """
    depth = gains.size
    partial = np.ones_like(points)
    result = np.zeros_like(points)
    for gain in gains:
        result = result + gain / depth * partial
        partial = partial * (1 - gain * points / depth)
    return result


@dataclasses.dataclass(frozen=True)
class DeterministicLimit(Result):
    """The large-size limit of a finite-context loss, as a quadratic form in Chebyshev coefficients on [0, upper].

    Attributes
    ----------
    task : Task
    degree : int
        Largest degree of the residual polynomial q (the depth).
    upper : float
        Right end of the interval; the right edge of the limiting spectrum is below it.
    signal : array of shape (degree + 1, degree + 1)
        lim E tr(Omega T_i(S) Lambda T_j(S)) with the shifted Chebyshev polynomials T_i.
    noise : array of shape (2 degree + 2,)
        lim E tr(Lambda T_i(S)).
    validity : str
        What the limit leaves out, in words.
    """

    task: Task
    degree: int
    upper: float
    signal: FloatArray
    noise: FloatArray
    validity: str

    def loss(self, gains: FloatArray) -> float:
        """Return the limiting loss at per-layer ``gains``, shape (depth,), label noise included."""
        gains = np.asarray(gains, dtype=np.float64)
        return self.polynomial_loss(gains) + self._noise_loss(gains)

    def missing(self, gains: FloatArray) -> float:
        """Return the size of the leading term in 1/P that the limit leaves out of the loss, label noise aside.

        (1/P) sum_k lambda_k omega_k lambda_k^2 |(q^2)''|/2, the effect of the second half of the variance
        2 lambda^2/P of a real sample variance: exact at depth 1, where E tr(Omega S Lambda S) exceeds its limit by
        tr(Omega Lambda^3)/P, an order of magnitude beyond. (q^2)'' is the larger of its values at lambda_k and three
        standard deviations above the edge of the spectrum, where a large gain makes rare contexts dominate.
        """
        lam, context = self.task.spectrum.eigenvalues, self.task.context
        if context is None:
            return 0.0
        gains = np.asarray(gains, dtype=np.float64)
        stretch = self.upper / lam[0] * (1 + 3 * math.sqrt(2 / context)) if lam[0] > 0 else 1.0
        curvature = np.maximum(*(np.abs(_second_derivative_of_square(gains, lam * x)) for x in (1.0, stretch)))
        return float(np.sum(self.task.spectrum.signal * lam**2 * curvature) / 2 / context)

    def polynomial_loss(self, gains: FloatArray) -> float:
        """Return the limit of E tr(Omega q(S) Lambda q(S)) at per-layer ``gains``, without label noise."""
        coefficients = self._residual_coefficients(np.asarray(gains, dtype=np.float64))
        return float(coefficients @ self.signal[: coefficients.size, : coefficients.size] @ coefficients)

    def quadratic_loss(self) -> QuadraticLoss:
        """Return the limit as a quadratic form at depth + 1 nodes, which flows, recursions and floors take."""
        count = self.degree + 1
        nodes = _chebyshev_points(count, self.upper)
        to_coefficients = np.stack([_chebyshev_coefficients(unit) for unit in np.eye(count)], axis=1)
        gram = to_coefficients.T @ self.signal @ to_coefficients
        noise = None
        if self.task.context is not None and self.task.label_noise > 0:
            # x l_a l_b has degree 2 L + 1: its Chebyshev coefficients against the one-point moments.
            fine = _chebyshev_points(2 * count, self.upper)
            lagrange = np.polynomial.chebyshev.chebvander(2 * fine / self.upper - 1, self.degree) @ to_coefficients
            products = np.einsum("x,xa,xb->abx", fine, lagrange, lagrange)
            readout = np.stack([_chebyshev_coefficients(unit) for unit in np.eye(2 * count)], axis=1).T @ self.noise
            noise = (products @ readout * (self.task.label_noise / self.task.context))[None]
        return QuadraticLoss(nodes, ((gram + gram.T) / 2)[None], noise, self.task.dim, max_depth=self.degree)

    def untied_floor(self) -> float:
        """Return the least limiting loss over all q of the degree with q(0) = 1, without label noise."""
        at_zero = (-1.0) ** np.arange(self.degree + 1)
        return float(1 / (at_zero @ np.linalg.lstsq(self.signal, at_zero, rcond=1e-15)[0]))

    def _residual_coefficients(self, gains: FloatArray) -> FloatArray:
        degree = gains.size
        points = _chebyshev_points(degree + 1, self.upper)
        values = np.prod(1 - np.multiply.outer(gains, points) / degree, axis=0)
        return _chebyshev_coefficients(values)

    def _noise_loss(self, gains: FloatArray) -> float:
        context = self.task.context
        if context is None or self.task.label_noise == 0:
            return 0.0
        points = _chebyshev_points(2 * gains.size, self.upper)
        weight = noise_weight(points, gains)
        coefficients = _chebyshev_coefficients(points * weight**2)
        return float(self.task.label_noise / context * (coefficients @ self.noise[: coefficients.size]))


def deterministic_limit(task: Task, depth: int) -> DeterministicLimit:
    """Return the large-size limit of the finite-context loss for residual polynomials up to degree ``depth``.

    With -z = kappa [1 - (1/P) sum_k lambda_k/(lambda_k + kappa)], on a contour around the limiting spectrum,

        E tr(Omega z_1 (z_1 - S)^-1 Lambda z_2 (z_2 - S)^-1)
            -> sum_k lambda_k omega_k g_k(z_1) g_k(z_2) / (1 - c(z_1, z_2)),
        g_k(z) = kappa/(lambda_k + kappa),  c = (1/P) sum_k lambda_k^2/((lambda_k + kappa_1)(lambda_k + kappa_2)).

    Parameters
    ----------
    task : Task
        Finite or infinite context. ISO, RRS, or FS with Gamma_l proportional to the identity; for FS with a gain a
        mode g_k, give the spectrum lambda_k g_k with task power omega_k/g_k and use gain 1.
    depth : int

    Returns
    -------
    DeterministicLimit
        Relative error O(1/P) for real Gaussian covariates; ``missing`` estimates it.

    Raises
    ------
    ValueError
        For a bad depth.
    RuntimeError
        If the equation for kappa is not solved on the contour, which its own condition checks.

    Notes
    -----
    Source: two-point deterministic equivalent of the sample-covariance resolvent, derived from the self-consistent
    equation for kappa; the physical branch satisfies (1/P) sum_k lambda_k^2/|lambda_k + kappa|^2 < 1 and is checked to.
    """
    degree = integer("depth", depth)
    spectrum = task.spectrum
    lam, signal = spectrum.eigenvalues, spectrum.signal
    if task.context is None:
        upper = float(lam[0])
        basis = np.polynomial.chebyshev.chebvander(2 * lam / upper - 1, 2 * degree + 1)
        low = basis[:, : degree + 1]
        moments = (low * signal[:, None]).T @ low
        return DeterministicLimit(task, degree, upper, moments, lam @ basis, "exact: the population covariance")
    upper = right_edge(task)
    points = max(FEWEST_POINTS, POINTS_PER_DEGREE * degree)
    radius = math.exp(LOG_TRUNCATION / points)
    # Half a step off the real axis; the other half of the contour is the complex conjugate.
    rho = radius * np.exp(1j * np.pi * (2 * np.arange(points) + 1) / points)
    z = upper * (2 + rho + 1 / rho) / 4
    upper_half = rho.imag > 0
    half = _solve_kappa(lam, task.context, upper, rho[upper_half])
    kappa = np.concatenate([half, half[::-1].conj()])
    resolvent = kappa[:, None] / (lam + kappa[:, None])
    ratio = lam / (lam + kappa[:, None])
    two_point = (resolvent * signal) @ resolvent.T / (1 - ratio @ ratio.T / task.context)
    # upper (rho - 1/rho)/4 / (z - x) = T_0(x) + 2 sum_j rho^-j T_j(x): a Fourier transform over the contour reads T_j.
    jacobian = upper * (rho - 1 / rho) / 4 / z
    weights = jacobian[:, None] * rho[:, None] ** np.arange(2 * degree + 2) / points
    weights[:, 1:] /= 2
    project = weights[:, : degree + 1]
    moments = (project.T @ two_point @ project).real
    noise = (weights.T @ (resolvent @ lam)).real
    return DeterministicLimit(
        task, degree, upper, moments, noise, f"large-size limit: relative error of order 1/P = {1 / task.context:.2g}"
    )


def right_edge(task: Task) -> float:
    """Return the limiting spectrum's right edge, min over k > lambda_1 of k [1 + sum_j lambda_j/(k - lambda_j)/P].

    Raises
    ------
    ValueError
        If the context is infinite (the edge is lambda_1).
    """
    from scipy.optimize import brentq

    if task.context is None:
        raise ValueError("context=None: must be finite")
    lam = task.spectrum.eigenvalues

    def slope(k: float) -> float:
        return 1 - float(np.sum((lam / (k - lam)) ** 2)) / task.context  # type: ignore[operator]

    top = float(lam[0])
    high = 2 * top + 2 * float(lam.sum()) * (1 + 1 / math.sqrt(task.context))
    low = top * (1 + min(0.5, 0.5 / math.sqrt(task.context)))
    k = brentq(slope, low, high, xtol=1e-14 * top)
    return float(k * (1 + np.sum(lam / (k - lam)) / task.context))


def _solve_kappa(lam: FloatArray, context: int, upper: float, rho: np.ndarray) -> np.ndarray:
    """Follow kappa from a far contour, where it is -z + tr Lambda/P, to the contour ``rho``, by Newton's method."""
    scale = np.exp(np.linspace(math.log(1e3), 0.0, 80))
    kappa = None
    for factor in scale:
        far = rho * factor
        z = upper * (2 + far + 1 / far) / 4
        if kappa is None:
            kappa = -z + lam.sum() / context
        for _ in range(60):
            share = lam / (lam + kappa[:, None])
            value = kappa * (1 - share.sum(axis=1) / context) + z
            slope = 1 - (share**2).sum(axis=1) / context
            step = value / slope
            kappa = kappa - step
            if np.all(np.abs(step) <= NEWTON_TOLERANCE * np.abs(kappa)):
                break
    assert kappa is not None
    inside = np.sum(np.abs(lam / (lam + kappa[:, None])) ** 2, axis=1) / context
    if not np.all(inside < 1):
        raise RuntimeError("the deterministic equivalent left its physical branch on the contour")
    return kappa


def _second_derivative_of_square(gains: FloatArray, x: FloatArray) -> FloatArray:
    """(q^2)'' for q = prod_l (1 - gamma_l x/L), by the product rule one factor at a time."""
    value, first, second = np.ones_like(x), np.zeros_like(x), np.zeros_like(x)
    for slope in np.repeat(gains / gains.size, 2):
        factor = 1 - slope * x
        second = second * factor - 2 * slope * first
        first = first * factor - slope * value
        value = value * factor
    return second


def _chebyshev_points(count: int, upper: float) -> FloatArray:
    return upper * (1 + np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2


def _chebyshev_coefficients(values: FloatArray) -> FloatArray:
    """Coefficients of the interpolant of ``values`` at the Chebyshev points."""
    count = values.size
    angles = np.pi * (np.arange(count) + 0.5) / count
    coefficients = 2 / count * np.cos(np.multiply.outer(np.arange(count), angles)) @ values
    coefficients[0] /= 2
    return coefficients
