"""Large-size limits of Wishart averages: polynomials of a sample covariance without drawing one.

For P, dim -> inf together the resolvent of Sigma_hat has a deterministic equivalent, and so has the pair in
E tr(Omega (z_1 - S)^-1 Lambda (z_2 - S)^-1). Its Chebyshev coefficients turn the loss of a depth-L linear model into a
quadratic form in the coefficients of its residual polynomial q(x) = prod_l (1 - gamma_l x / L), for all gains at once.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from theory.checks import FloatArray, integer, vector
from theory.contour import Contour, chebyshev_points, chebyshev_transform, contour, wishart_factor
from theory.losses import QuadraticLoss, noise_response, residual
from theory.results import Result
from theory.spectra import Spectrum
from theory.task import Task


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
        tr(Omega Lambda^3)/P, an order of magnitude beyond. (q^2)'' is the larger of its values at lambda_k and there
        times (edge of the spectrum)/lambda_1. Where `rare_contexts` is true it says little.
        """
        lam, context = self.task.spectrum.eigenvalues, self.task.context
        if context is None:
            return 0.0
        gains = np.asarray(gains, dtype=np.float64)
        at = (lam, lam * (self.upper / lam[0]))
        curvature = np.maximum(*(np.abs(_second_derivative_of_square(gains, x)) for x in at))
        return float(np.sum(self.task.spectrum.signal * lam**2 * curvature) / 2 / context)

    def rare_contexts(self, gains: FloatArray) -> bool:
        """Return whether rare contexts may rule the average: a gain makes |1 - gamma x/L| > 1 within three standard
        deviations sqrt(2/P) above the edge, where q^2 grows like a power 2L. The limit does not see them.
        """
        if self.task.context is None:
            return False
        gains = np.asarray(gains, dtype=np.float64)
        far = self.upper * (1 + 3 * math.sqrt(2 / self.task.context))
        return bool(gains.max() * far > 2 * gains.size)

    def polynomial_loss(self, gains: FloatArray) -> float:
        """Return the limit of E tr(Omega q(S) Lambda q(S)) at per-layer ``gains``, without label noise."""
        coefficients = self._residual_coefficients(np.asarray(gains, dtype=np.float64))
        return float(coefficients @ self.signal[: coefficients.size, : coefficients.size] @ coefficients)

    def quadratic_loss(self) -> QuadraticLoss:
        """Return the limit as a quadratic form at depth + 1 nodes, which flows, recursions and floors take."""
        count = self.degree + 1
        nodes = chebyshev_points(count, self.upper)
        to_coefficients = chebyshev_transform(count)
        gram = to_coefficients.T @ self.signal @ to_coefficients
        noise = None
        if self.task.context is not None and self.task.label_noise > 0:
            # x l_a l_b has degree 2 L + 1: its Chebyshev coefficients against the one-point moments.
            fine = chebyshev_points(2 * count, self.upper)
            lagrange = np.polynomial.chebyshev.chebvander(2 * fine / self.upper - 1, self.degree) @ to_coefficients
            products = np.einsum("x,xa,xb->abx", fine, lagrange, lagrange)
            readout = chebyshev_transform(2 * count).T @ self.noise
            noise = (products @ readout * (self.task.label_noise / self.task.context))[None]
        return QuadraticLoss(nodes, ((gram + gram.T) / 2)[None], noise, self.task.dim, max_depth=self.degree)

    def untied_floor(self) -> float:
        """Return the least limiting loss over all q of the degree with q(0) = 1, without label noise."""
        at_zero = (-1.0) ** np.arange(self.degree + 1)
        return float(1 / (at_zero @ np.linalg.lstsq(self.signal, at_zero, rcond=1e-15)[0]))

    def _residual_coefficients(self, gains: FloatArray) -> FloatArray:
        degree = gains.size
        points = chebyshev_points(degree + 1, self.upper)
        coefficients: FloatArray = chebyshev_transform(degree + 1) @ residual(points, gains)
        return coefficients

    def _noise_loss(self, gains: FloatArray) -> float:
        context = self.task.context
        if context is None or self.task.label_noise == 0:
            return 0.0
        points = chebyshev_points(2 * gains.size, self.upper)
        coefficients = chebyshev_transform(points.size) @ (points * noise_response(points, gains) ** 2)
        return float(self.task.label_noise / context * (coefficients @ self.noise[: coefficients.size]))


def deterministic_limit(task: Task, depth: int) -> DeterministicLimit:
    """Return the large-size limit of the finite-context loss for residual polynomials up to degree ``depth``.

    With kappa(z) of ``theory.contour``,

        E tr(Omega z_1 (z_1 - S)^-1 Lambda z_2 (z_2 - S)^-1)
            -> sum_k lambda_k omega_k g_k(z_1) g_k(z_2) / (1 - c(z_1, z_2)),
        g_k(z) = kappa/(lambda_k + kappa),  c = (1/P) sum_k lambda_k^2/((lambda_k + kappa_1)(lambda_k + kappa_2)).

    Parameters
    ----------
    task : Task
        Finite or infinite context. ISO, RRS, or FS with Gamma_l proportional to the identity; with a gain a mode
        see `fixed_basis_limit`.
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
        If the equation for kappa is not solved on the contour.

    Notes
    -----
    Source: two-point deterministic equivalent of the sample-covariance resolvent.
    """
    degree = integer("depth", depth)
    lam, signal = task.spectrum.eigenvalues, task.spectrum.signal
    if task.context is None:
        upper = float(lam[0])
        basis = np.polynomial.chebyshev.chebvander(2 * lam / upper - 1, 2 * degree + 1)
        low = basis[:, : degree + 1]
        moments = (low * signal[:, None]).T @ low
        return DeterministicLimit(task, degree, upper, moments, lam @ basis, "exact: the population covariance")
    upper = right_edge(task)
    around = contour(lam, upper, 2 * degree + 2, wishart_factor(task.context))
    project = around.weights[:, : degree + 1]
    resolvent = around.kappa[:, None] / (lam + around.kappa[:, None])
    moments = (project.T @ ((resolvent * signal) @ resolvent.T * spread(around, task)) @ project).real
    validity = f"large-size limit: relative error of order 1/P = {1 / task.context:.2g}"
    return DeterministicLimit(task, degree, upper, moments, around.one_point(lam, lam), validity)


def fixed_basis_limit(task: Task, gains: FloatArray, depth: int) -> float:
    """Return the large-size limit of the FS loss at tied gains, one a mode, shape (dim,), all > 0.

    diag(g) Sigma_hat is similar to the sample covariance of the population g_k lambda_k, for which the task power is
    omega_k/g_k: the limit of that task with all gains one. Relative error of order 1/P.

    Raises
    ------
    ValueError
        If a gain is not positive, or there are not dim of them.
    RuntimeError
        If the equation for kappa is not solved on the contour.
    """
    g = vector("gains", np.asarray(gains, dtype=np.float64))
    if g.size != task.dim or g.min() <= 0:
        raise ValueError(f"gains has {g.size} entries, least {g.min():g}: must be {task.dim} positive numbers")
    lam, omega = task.spectrum.eigenvalues * g, task.spectrum.task_power / g
    # The response to label noise, g^(1/2) r(S') g^(1/2), turns in the same way.
    turned = Task(Spectrum(lam, omega, normalise=False), "rrs", task.context, task.label_noise)
    return deterministic_limit(turned, depth).loss(np.ones(integer("depth", depth)))


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
    lam, context = task.spectrum.eigenvalues, task.context

    def slope(k: float) -> float:
        return 1 - float(np.sum((lam / (k - lam)) ** 2)) / context

    top = float(lam[0])
    high = 2 * top + 2 * float(lam.sum()) * (1 + 1 / math.sqrt(context))
    low = top * (1 + min(0.5, 0.5 / math.sqrt(context)))
    k = brentq(slope, low, high, xtol=1e-14 * top)
    return float(k * (1 + np.sum(lam / (k - lam)) / context))


def spread(around: Contour, task: Task) -> np.ndarray:
    """Return 1/(1 - c), c of `deterministic_limit`, for every pair of contour points."""
    lam = task.spectrum.eigenvalues
    ratio = lam / (lam + around.kappa[:, None])
    assert task.context is not None
    pairs: np.ndarray = 1 / (1 - ratio @ ratio.T / task.context)
    return pairs


def _second_derivative_of_square(gains: FloatArray, x: FloatArray) -> FloatArray:
    """(q^2)'' for q = prod_l (1 - gamma_l x/L), by the product rule one factor at a time."""
    value, first, second = np.ones_like(x), np.zeros_like(x), np.zeros_like(x)
    for slope in np.repeat(gains / gains.size, 2):
        factor = 1 - slope * x
        second = second * factor - 2 * slope * first
        first = first * factor - slope * value
        value = value * factor
    return second
