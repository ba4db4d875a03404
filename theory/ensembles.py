"""Central-limit forms: the loss of an average of layers from the covariance of their errors.

Layer l alone has error e_l; C = E[e e^T] is the second moment, (L, L); the average of the layers has loss
``1^T C 1 / L^2``. Error shared by all layers stays as the plateau, the rest averages out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, integer, real, vector
from theory.depth_laws import ar1, inverse_depth


def ensemble_loss(covariance: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Return ``w^T C w``, the loss of the weighted sum of layers.

    Parameters
    ----------
    covariance
        Second moments of the layers' errors, (L, L), symmetric.
    weights
        (L,); equal weights ``1/L`` if ``None``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or the matrix is not symmetric.
    """
    matrix = _symmetric("covariance", covariance)
    size = len(matrix)
    chosen = np.full(size, 1.0 / size) if weights is None else vector("weights", np.asarray(weights, dtype=float))
    if chosen.size != size:
        raise ValueError(f"weights has shape {chosen.shape}: must be one a layer, ({size},)")
    return float(chosen @ matrix @ chosen)


def effective_layers(covariance: npt.ArrayLike) -> float:
    """Return the number of independent layers of the same mean variance whose average is as good.

    ``(tr C / L) / (1^T C 1 / L^2)``: L for uncorrelated layers, 1 for identical ones, more than L for layers whose
    errors cancel.

    Raises
    ------
    ValueError
        If the matrix is not square and symmetric, or the average has no error.
    """
    matrix = _symmetric("covariance", covariance)
    loss = ensemble_loss(matrix)
    if loss <= 0:
        raise ValueError(f"covariance: the average of the layers has loss {loss:g}; it must be positive")
    return float(np.trace(matrix) / len(matrix) / loss)


def exchangeable_loss(depth: npt.ArrayLike, variance: float, correlation: float) -> FloatArray:
    """Return ``rho s^2 + (1 - rho) s^2 / L``: layers of variance s^2, any two with correlation rho.

    Parameters
    ----------
    depth
        Depths L, any shape.
    variance, correlation
        s^2 > 0 and rho in [0, 1].

    Raises
    ------
    ValueError
        If a number is out of range.
    """
    real("variance", variance, above=0)
    real("correlation", correlation, minimum=0, maximum=1)
    shared = correlation * variance
    return np.asarray(inverse_depth(np.asarray(depth, dtype=float), shared, variance - shared))


def ar1_loss(depth: npt.ArrayLike, variance: float, correlation: float, shared: float = 0.0) -> FloatArray:
    """Return the loss of L layers whose errors correlate as ``correlation^|l-m|``, on top of a shared error.

    Parameters
    ----------
    depth
        Depths L, any shape.
    variance, correlation
        s^2 > 0 and r in [0, 1).
    shared
        Second moment of the error that all layers share.

    Raises
    ------
    ValueError
        If a number is out of range.
    """
    real("variance", variance, above=0)
    real("shared", shared, minimum=0)
    if real("correlation", correlation, minimum=0, maximum=1) == 1:
        return np.full(np.shape(depth), shared + variance)
    return np.asarray(ar1(np.asarray(depth, dtype=float), shared, variance, correlation))


def stationary_loss(depth: int, variance: float, correlations: npt.ArrayLike) -> float:
    """Return ``s^2/L [1 + 2 sum over k < L of (1 - k/L) rho_k]`` for layers correlated by their distance.

    Parameters
    ----------
    depth
        L >= 1.
    variance
        s^2 > 0.
    correlations
        rho_1, rho_2, ..., at least L - 1 of them.

    Raises
    ------
    ValueError
        If a number is out of range or there are too few correlations.
    """
    layers = integer("depth", depth)
    real("variance", variance, above=0)
    rho = vector("correlations", np.asarray(correlations, dtype=float), empty=True)
    if rho.size < layers - 1:
        raise ValueError(f"correlations has {rho.size} entries: must be at least depth - 1 = {layers - 1}")
    lag = np.arange(1, layers)
    return float(variance / layers * (1.0 + 2.0 * np.sum((1.0 - lag / layers) * rho[: layers - 1])))


def best_weights(covariance: npt.ArrayLike) -> FloatArray:
    """Return the weights of sum 1 with the least loss, ``C^-1 1 / (1^T C^-1 1)``, (L,).

    That least loss is ``1 / (1^T C^-1 1)``.

    Raises
    ------
    ValueError
        If the matrix is not symmetric and positive definite.
    """
    matrix = _symmetric("covariance", covariance)
    if np.linalg.eigvalsh(matrix).min() <= 0:
        raise ValueError("covariance: must be positive definite")
    solved = np.linalg.solve(matrix, np.ones(len(matrix)))
    return solved / solved.sum()


def softmax_curvature(probabilities: npt.ArrayLike) -> FloatArray:
    """Return the Hessian of the cross-entropy with respect to the logits, ``diag(p) - p p^T``.

    Raises
    ------
    ValueError
        If the probabilities are negative or do not sum to 1.
    """
    p = vector("probabilities", np.asarray(probabilities, dtype=float), minimum=0.0)
    if abs(p.sum() - 1.0) > 1e-9:
        raise ValueError(f"probabilities sum to {p.sum():g}: must be 1")
    return np.diag(p) - np.outer(p, p)


def readout_law(
    curvature: npt.ArrayLike, shared: npt.ArrayLike, specific: npt.ArrayLike, floor: float = 0.0
) -> tuple[float, float]:
    """Return plateau and coefficient of the loss read out from averaged layers, to second order in their errors.

    At the readout's optimum the first-order term vanishes, and
    ``loss = floor + tr(H S)/2 + tr(H V)/2 / L`` with H the curvature, S the second moment of the shared error and V
    that of one layer's own error, each (m, m) over the m outputs.

    Raises
    ------
    ValueError
        If a matrix is not symmetric or the shapes differ.
    """
    h, s, v = (
        _symmetric(name, m) for name, m in (("curvature", curvature), ("shared", shared), ("specific", specific))
    )
    if not len(h) == len(s) == len(v):
        raise ValueError(f"curvature, shared and specific have sizes {len(h)}, {len(s)}, {len(v)}: must be equal")
    return floor + 0.5 * float(np.sum(h * s)), 0.5 * float(np.sum(h * v))


def readout_expansion(
    second: float, third: float, fourth: float, variance: float, third_cumulant: float = 0.0
) -> tuple[float, float]:
    """Return the coefficients of 1/L and 1/L^2 for a scalar readout of independent layers.

    The mean of L independent errors has second moment ``v/L``, third ``k3/L^2`` and fourth ``3 v^2/L^2`` plus
    higher orders, so ``E l(mean) = l(0) + l'' v/2 / L + (l''' k3/6 + l'''' v^2/8) / L^2``.

    Parameters
    ----------
    second, third, fourth
        Derivatives of the loss at zero error.
    variance, third_cumulant
        Of one layer's error, whose mean is zero.

    Raises
    ------
    ValueError
        If the variance is not positive.
    """
    real("variance", variance, above=0)
    return 0.5 * second * variance, third * third_cumulant / 6.0 + fourth * variance**2 / 8.0


def _symmetric(name: str, values: npt.ArrayLike) -> FloatArray:
    matrix = np.array(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} has shape {matrix.shape}: must be square")
    if not np.all(np.isfinite(matrix)) or np.abs(matrix - matrix.T).max() > 1e-9 * np.abs(matrix).max():
        raise ValueError(f"{name}: must be finite and symmetric")
    return matrix
