"""Batch noise: the first correction, of order learning rate/batch, to the mean curve of SGD (settings RRS and ISO).

SGD moves the full matrices Gamma_l = gamma_l I + Delta_l. Rotation symmetry splits Delta_l into its trace, traceless
symmetric and antisymmetric parts, dim 1, (D + 2)(D - 1)/2 and D(D - 1)/2; in each part rho the Hessian h and the
covariance n of one context's gradient are L x L matrices. To first order in 1/batch, with C the covariance of an
entry,

    C <- (1 - eta h) C (1 - eta h) + (eta^2/B) n,
    d <- d - eta [h_trace d + (1/2D) d/dgamma sum_rho dim_rho tr(h_rho C_rho)]   (d: mean shift of the gains)
    loss correction = (1/2) sum_rho dim_rho tr(h_rho C_rho) + (d loss/d gamma_l) sum_l d_l.

h and n are polynomials in the tied gain, sampled over contexts (w, Sigma_hat, label noise) and interpolated. The loss
is exact over the query, as in the reduced models that are trained here. The theory stops where the correction is no
longer small beside the loss: C of differences between layers grows without bound once the tied path is unstable, and
rare short contexts can make single runs diverge whose mean path is stable.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import FloatArray, integer, real, vector
from theory.finite_context import draw_covariances
from theory.flow import tied_sgd
from theory.losses import quadratic_loss
from theory.results import Result, axes_or_new
from theory.task import Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Gains at which Hessian and noise are sampled: a Chebyshev grid on the path, exact up to this degree.
GRID = 24
DEFAULT_SAMPLES = 1000
# Parts of a matrix under rotations.
PARTS = ("trace", "symmetric", "antisymmetric")


@dataclasses.dataclass(frozen=True, eq=False)
class BatchNoise(Result):
    """The mean curve of SGD with its first correction in 1/batch.

    Attributes
    ----------
    step : int array of shape (n,)
    mean_path : array of shape (n,)
        Loss of the recursion with averaged gradients.
    correction : array of shape (n,)
        What batch noise adds to the mean loss.
    batch : int
    """

    step: np.ndarray
    mean_path: FloatArray
    correction: FloatArray
    batch: int

    @property
    def loss(self) -> FloatArray:
        """Mean loss with the correction."""
        return self.mean_path + self.correction

    def to_frame(self) -> pd.DataFrame:
        """Return one row a step: step, mean_path, correction, loss."""
        import pandas as pd

        columns = {"step": self.step, "mean_path": self.mean_path, "correction": self.correction, "loss": self.loss}
        return pd.DataFrame(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw both curves against the step."""
        axes = axes_or_new(ax)
        axes.semilogy(self.step, self.mean_path, "--", label="averaged gradient")
        axes.semilogy(self.step, self.loss, label=f"batch {self.batch}")
        axes.set(xlabel="step", ylabel="loss")
        axes.legend(frameon=False)
        return axes


def batch_noise(
    task: Task,
    depth: int,
    learning_rate: float,
    batch: int,
    steps: Iterable[float],
    *,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
) -> BatchNoise:
    """Return the mean loss of SGD from zero on full matrices Gamma_l, ``batch`` fresh contexts a step.

    Parameters
    ----------
    task : Task
        Setting ``rrs`` or ``iso``; w is Gaussian.
    depth : int
    learning_rate : float
        On every entry of Gamma_l.
    batch : int
    steps : increasing whole numbers >= 0
    samples : int
        Contexts behind Hessian and noise.
    seed : int

    Raises
    ------
    ValueError
        For arguments out of range, or the setting ``fs``.
    RuntimeError
        If the recursion with averaged gradients diverges.
    """
    depth, batch = integer("depth", depth), integer("batch", batch)
    rate, wanted = real("learning_rate", learning_rate, above=0), vector("steps", steps, minimum=0, increasing=True)
    samples = integer("samples", samples, minimum=2)
    loss = quadratic_loss(task, depth, seed=seed)
    every = np.arange(int(wanted[-1]) + 1, dtype=np.float64)
    walk = tied_sgd(loss, depth, rate, every)
    gains = walk.gains[0]
    if not np.all(np.isfinite(gains)):
        raise RuntimeError(walk.status)
    moments = _Moments(task, depth, samples, seed)
    top = max(float(gains.max()), np.finfo(float).tiny)
    points = top * (1 + np.cos(np.pi * (np.arange(GRID) + 0.5) / GRID)) / 2
    found = [moments.at(point) for point in points]
    hessian = _interpolant(np.stack([h for h, _, _ in found]))
    noise = _interpolant(np.stack([n for _, n, _ in found]))
    force = _interpolant(np.array([g for _, _, g in found]))
    slope_of_hessian: FloatArray = np.asarray(np.polynomial.chebyshev.chebder(hessian, axis=0), dtype=np.float64)
    dims = np.array([1.0, (task.dim + 2) * (task.dim - 1) / 2, task.dim * (task.dim - 1) / 2])
    unit, spread = np.eye(depth), np.zeros((3, depth, depth))
    shift, corrections = 0.0, np.empty(every.size)
    for index, gain in enumerate(gains):
        u = 2 * gain / top - 1
        h, n, g, bend = (_evaluate(series, u) for series in (hessian, noise, force, slope_of_hessian))
        corrections[index] = 0.5 * np.einsum("r,rij,rji->", dims, h, spread) + g * shift
        pull = np.einsum("r,rij,rji->", dims, bend * (2 / top), spread) / (2 * task.dim)
        # Rows of the trace Hessian have equal sums: the gains' common shift obeys one equation.
        shift -= rate * (h[0].sum() / depth * shift + pull)
        keep = unit - rate * h
        spread = keep @ spread @ keep + rate**2 / batch * n
    at = wanted.astype(int)
    return BatchNoise(at, walk.losses[0][at], corrections[at], batch)


class _Moments:
    """Hessian and gradient covariance of one context at a tied gain, by sampling, in each part under rotations."""

    def __init__(self, task: Task, depth: int, samples: int, seed: int) -> None:
        if task.setting == "fs":
            raise ValueError("setting='fs': must be rrs or iso")
        rng = np.random.default_rng([integer("seed", seed, minimum=0), 1])
        lam, self.depth, self.dim = task.spectrum.eigenvalues, depth, task.dim
        w = rng.standard_normal((samples, task.dim)) * np.sqrt(task.spectrum.task_power)
        if task.context is None:
            self.s = np.broadcast_to(lam, w.shape)
            self.w, self.noise = w, np.zeros_like(w)
            self.population = np.broadcast_to(np.diag(lam), (samples, task.dim, task.dim))
            return
        covariances = draw_covariances(task, samples, rng)
        self.s, basis = np.linalg.eigh(covariances)
        self.s = np.clip(self.s, 0.0, None)
        turn = basis.transpose(0, 2, 1)
        self.w = np.einsum("sij,sj->si", turn, w)
        # X^T epsilon/P has covariance sigma^2 Sigma_hat/P given the tokens.
        scale = np.sqrt(self.s * (task.label_noise / task.context))
        self.noise = rng.standard_normal(w.shape) * scale
        self.population = turn @ (lam[:, None] * basis)

    def at(self, gain: float) -> tuple[FloatArray, FloatArray, float]:
        """Return h and n, shapes (3, L, L), and d loss/d gamma_l at a tied gain."""
        depth, dim, step = self.depth, self.dim, gain / self.depth
        a = 1 - step * self.s
        error, seen = self.w, []
        for _ in range(depth):
            seen.append(self.s * error + self.noise)
            error = error - step * seen[-1]
        y = np.stack(seen, axis=1)
        power = a[:, None, :] ** np.arange(depth)[:, None]
        later = power[:, ::-1]  # a^(L-1-l), the layers after l
        back = later * (2 * np.einsum("sij,sj->si", self.population, error))[:, None]

        same = np.einsum("sli,smi->slm", back, back) * np.einsum("sli,smi->slm", y, y)
        crossed = np.einsum("sli,smi->slm", back, y)
        trace = np.einsum("sl,sm->slm", *(np.einsum("sll->sl", crossed),) * 2) / dim
        swapped = crossed * crossed.transpose(0, 2, 1)
        mean = -np.einsum("sll->l", crossed) / (a.shape[0] * dim * depth)
        noise = self._parts(*(part.mean(axis=0) / depth**2 for part in (same, swapped, trace)))
        noise[0] -= dim * np.multiply.outer(mean, mean)

        diagonal = np.einsum("sii->si", self.population)
        paired = np.einsum("sli,smi,si->slm", later, later, diagonal) * np.einsum("sli,smi->slm", y, y)
        # u_lm = a^(L-1-l) y_m: y_m Q_lm y_l = u_lm Lambda u_ml.
        u = later[:, :, None] * y[:, None]
        pulled = np.einsum("sij,slmj->slmi", self.population, u)
        turned = np.einsum("slmi,smli->slm", u, pulled)
        straight = np.einsum("slli,smmi->slm", u, pulled) / dim
        same, swapped, trace = (2 / depth**2 * part.mean(axis=0) for part in (paired, turned, straight))
        for early in range(depth):
            for late in range(early + 1, depth):
                between = self.s * power[:, late - 1 - early]
                chained = np.einsum("si,si,si->s", back[:, late], between, y[:, early])
                parallel = between.sum(axis=1) * np.einsum("si,si->s", back[:, late], y[:, early])
                for target, value in ((same, chained), (swapped, parallel), (trace, chained / dim)):
                    target[early, late] += value.mean() / depth**2
                    target[late, early] += value.mean() / depth**2
        return self._parts(same, swapped, trace), noise, float(mean.mean()) * dim

    def _parts(self, same: FloatArray, swapped: FloatArray, trace: FloatArray) -> FloatArray:
        """Split sums over all entries (i, j)-(i, j) and (i, j)-(j, i) and the trace into a value for each part."""
        dim = self.dim
        symmetric, antisymmetric = (dim + 2) * (dim - 1) / 2, dim * (dim - 1) / 2
        if dim == 1:
            return np.stack([trace, np.zeros_like(trace), np.zeros_like(trace)])
        return np.stack([trace, ((same + swapped) / 2 - trace) / symmetric, (same - swapped) / 2 / antisymmetric])


def _interpolant(values: FloatArray) -> FloatArray:
    """Chebyshev coefficients of ``values`` at the grid, along the first axis."""
    order = np.arange(GRID)
    basis = np.cos(np.multiply.outer(order, np.pi * (order + 0.5) / GRID)) * (2 / GRID)
    basis[0] /= 2
    coefficients: FloatArray = np.tensordot(basis, values, axes=1)
    return coefficients


def _evaluate(series: FloatArray, u: float) -> FloatArray:
    angle = math.acos(min(1.0, max(-1.0, u)))
    value: FloatArray = np.tensordot(np.cos(np.arange(series.shape[0]) * angle), series, axes=1)
    return value
