"""Exact low moments of a Wishart sample covariance, diagonal population: what Monte Carlo is checked and steered by."""

from __future__ import annotations

import numpy as np

from theory.checks import FloatArray
from theory.task import Task


def second_moment(task: Task) -> FloatArray:
    """Return the diagonal of E[beta beta^T], beta = (1/P) sum_mu x_mu y_mu, in the covariance eigenbasis.

    With labels y = w.x + noise, beta = Sigma_hat w + (1/P) X^T noise, so that

        E[beta beta^T] = Lambda Omega Lambda (1 + 1/P) + (tr(Lambda Omega) + sigma^2) Lambda / P,

    which for Omega = I and no noise is E[Sigma_hat^2] = Lambda^2 + (Lambda^2 + tr(Lambda) Lambda)/P.

    Parameters
    ----------
    task : Task
        The context length may be infinite.

    Returns
    -------
    array of shape (dim,)

    Notes
    -----
    Source: Isserlis' theorem, E[S A S] = Lambda A Lambda + (Lambda A Lambda + tr(A Lambda) Lambda)/P for symmetric A.
    """
    spectrum = task.spectrum
    lam = spectrum.eigenvalues
    inverse = 0.0 if task.context is None else 1.0 / task.context
    return lam * (spectrum.signal * (1 + inverse) + (spectrum.total + task.label_noise) * inverse)


def polynomial_moments(task: Task) -> FloatArray:
    """Return the exact matrix of E tr(Omega S^i Lambda S^j), 0 <= i, j <= 2 with i + j <= 3; NaN where not computed.

    Returns
    -------
    array of shape (3, 3)
        S is Sigma_hat without label noise. S = Lambda when the context is infinite.

    Notes
    -----
    Source: Isserlis' theorem for real Gaussian rows. E[S A S B S] is the sum over which of the three rows coincide
    (all different, two equal, all equal), each term the sum over the pairings of the Gaussians in it.
    """
    spectrum = task.spectrum
    lam, omega = spectrum.eigenvalues, spectrum.task_power
    inverse = 0.0 if task.context is None else 1.0 / task.context
    result = np.full((3, 3), np.nan)
    one = np.ones_like(lam)
    result[0, 0] = spectrum.total
    result[0, 1] = result[1, 0] = np.sum(omega * lam**2)
    # tr(Omega S Lambda S) and tr(Omega Lambda S^2) are both sum_k of weight_k times the diagonal of E[S A S].
    result[1, 1] = np.sum(omega * _sandwich(lam, lam, inverse))
    result[0, 2] = result[2, 0] = np.sum(omega * lam * _sandwich(lam, one, inverse))
    result[1, 2] = result[2, 1] = np.sum(omega * _double_sandwich(lam, lam, one, inverse))
    return result


def _sandwich(lam: FloatArray, a: FloatArray, inverse: float) -> FloatArray:
    """Diagonal of E[S A S] for diagonal A."""
    return lam * (a * lam * (1 + inverse) + np.sum(a * lam) * inverse)


def _double_sandwich(lam: FloatArray, a: FloatArray, b: FloatArray, inverse: float) -> FloatArray:
    """Diagonal of E[S A S B S] for diagonal A, B.

    The rows of the three factors are all different, two equal, or all equal; with x a Gaussian row of covariance
    Lambda: L A L B L; the pairs E[x x^T A L B x x^T] and its two relatives; and E[x x^T A x x^T B x x^T].
    """
    trace_a, trace_b, trace_ab = np.sum(a * lam), np.sum(b * lam), np.sum(a * lam * b * lam)
    chain = lam * a * lam * b * lam
    left = (2 * lam * a * lam + trace_a * lam) * b * lam
    right = lam * a * (2 * lam * b * lam + trace_b * lam)
    outer = 2 * chain + trace_ab * lam
    triple = (
        8 * chain + 2 * trace_a * lam * b * lam + 2 * trace_b * lam * a * lam + (trace_a * trace_b + 2 * trace_ab) * lam
    )
    distinct = (1 - inverse) * (1 - 2 * inverse)
    paired = (1 - inverse) * inverse
    return distinct * chain + paired * (left + right + outer) + inverse**2 * triple
