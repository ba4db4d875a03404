"""Error along the covariance eigen-directions of a one-gain model: the large-size limit, and drawn contexts."""

from __future__ import annotations

import dataclasses

import numpy as np

from theory.checks import FloatArray, integer
from theory.contour import chebyshev_points, chebyshev_transform, contour, wishart_factor
from theory.equivalents import right_edge, spread
from theory.finite_context import default_samples, draw_covariances
from theory.results import Result
from theory.task import Task

# Entries of all drawn covariances together: a mean over them is known to about a percent.
MOST_ENTRIES = 2**22
# Entries of those that are held at once, with their polynomials.
ENTRIES_AT_ONCE = 2**20


@dataclasses.dataclass(frozen=True)
class ModeMoments(Result):
    """The error along each covariance eigen-direction as forms in Chebyshev coefficients on [0, upper].

    Attributes
    ----------
    upper : float
        Right end of the interval.
    signal : array of shape (dim, degree + 1, degree + 1)
        lambda_k E[T_i(S) Omega T_j(S)]_kk: what is left of the task in direction k, what leaks there from the
        others included.
    noise : array of shape (dim, 2 degree + 2)
        lambda_k E T_i(S)_kk.
    """

    upper: float
    signal: FloatArray
    noise: FloatArray

    def errors(self, gains: FloatArray, depth: int, noise: float = 0.0) -> FloatArray:
        """Return the error along each direction at tied ``gains`` (n,), shape (dim, n).

        Parameters
        ----------
        gains : array of shape (n,)
        depth : int
            L, at most the degree.
        noise : float
            sigma^2/P.
        """
        points = chebyshev_points(depth + 1, self.upper)
        left = chebyshev_transform(depth + 1) @ (1 - np.multiply.outer(points, gains) / depth) ** depth
        low = self.signal[:, : depth + 1, : depth + 1]
        error: FloatArray = np.einsum("ig,kij,jg->kg", left, low, left, optimize=True)
        if noise > 0:
            # x r(x)^2 = (1 - q)^2/x, of degree 2 L - 1, is what the covariates make of label noise.
            points = chebyshev_points(2 * depth, self.upper)
            response = (1 - (1 - np.multiply.outer(points, gains) / depth) ** depth) ** 2 / points[:, None]
            error = error + noise * (self.noise[:, : 2 * depth] @ (chebyshev_transform(2 * depth) @ response))
        return error


def mode_moments(task: Task, depth: int) -> ModeMoments:
    """Return the large-size limit of the error along each direction, lambda_k E[(O^T e)_k^2]; the sum is the loss.

    With g and c of `deterministic_limit`,

        lambda_k E[z_1 (z_1 - S)^-1 Omega z_2 (z_2 - S)^-1]_kk
            -> lambda_k g_k(z_1) g_k(z_2) [omega_k + lambda_k b/(1 - c)],
        b(z_1, z_2) = (1/P) sum_j lambda_j omega_j/((lambda_j + kappa_1)(lambda_j + kappa_2)).

    The second term is the error that a context's sampling leaks from the other directions into this one; at a context
    near the dimension it decides when weak directions are half learned.

    Raises
    ------
    ValueError
        For a bad depth.
    RuntimeError
        If the equation for kappa is not solved on the contour.
    """
    degree = integer("depth", depth)
    lam, omega = task.spectrum.eigenvalues, task.spectrum.task_power
    if task.context is None:
        basis = np.polynomial.chebyshev.chebvander(2 * lam / lam[0] - 1, 2 * degree + 1)
        low = basis[:, : degree + 1]
        signal = (lam * omega)[:, None, None] * low[:, :, None] * low[:, None, :]
        return ModeMoments(float(lam[0]), signal, lam[:, None] * basis)
    upper = right_edge(task)
    around = contour(lam, upper, 2 * degree + 2, wishart_factor(task.context))
    inverse = 1 / (lam + around.kappa[:, None])
    leak = (inverse * (lam * omega)) @ inverse.T / task.context * spread(around, task)
    signal, noise = np.empty((lam.size, degree + 1, degree + 1)), np.empty((lam.size, 2 * degree + 2))
    for k, value in enumerate(lam):
        seen = around.weights * (around.kappa * inverse[:, k])[:, None]
        low, total = seen[:, : degree + 1], seen.sum(axis=0)
        own = omega[k] * np.multiply.outer(total[: degree + 1], total[: degree + 1])
        signal[k] = value * (own + value * (low.T @ leak @ low)).real
        noise[k] = value * total.real
    return ModeMoments(upper, signal, noise)


def sampled_mode_moments(task: Task, depth: int, *, samples: int | None = None, seed: int = 0) -> ModeMoments:
    """Return the errors of `mode_moments` averaged over drawn sample covariances: right at any size.

    Parameters
    ----------
    task : Task
        Finite context.
    depth : int
    samples : int, optional
        Draws; fewer at large ``dim`` if omitted.
    seed : int

    Raises
    ------
    ValueError
        For bad counts or an infinite context.
    """
    degree, lam, omega = integer("depth", depth), task.spectrum.eigenvalues, task.spectrum.task_power
    automatic = max(1, min(default_samples(task.dim), MOST_ENTRIES // task.dim**2))
    count = automatic if samples is None else integer("samples", samples)
    drawn = draw_covariances(task, count, np.random.default_rng(integer("seed", seed, minimum=0)))
    upper = float(np.linalg.eigvalsh(drawn)[:, -1].max())
    signal, noise = np.zeros((task.dim, degree + 1, degree + 1)), np.zeros((task.dim, 2 * degree + 2))
    eye = np.eye(task.dim)
    for part in np.array_split(drawn, -(-drawn.size * (degree + 1) // ENTRIES_AT_ONCE)):
        low: list[FloatArray] = []
        before, now = np.broadcast_to(eye, part.shape), 2 * part / upper - eye
        for i in range(2 * degree + 2):
            noise[:, i] += np.einsum("skk->k", before)
            if i <= degree:
                low.append(before)
            before, now = now, 2 * (2 * part / upper - eye) @ now - before
        stacked = np.stack(low)
        signal += np.einsum("iskl,l,jskl->kij", stacked, omega, stacked, optimize=True)
    return ModeMoments(upper, lam[:, None, None] * signal / count, lam[:, None] * noise / count)
