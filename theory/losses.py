"""Loss of the reduced linear model as a quadratic form in its residual polynomial.

With Gamma_l = gamma_l I the residual weight after depth L is q(Sigma_hat) w, where

    q(x) = prod_l (1 - gamma_l x / L),

so every average loss is E[w^T q(Sigma_hat) Lambda q(Sigma_hat) w] = q^T G q for the values of q at some nodes. In the
population the nodes are the eigenvalues and G = diag(lambda_k omega_k); at finite context they are the depth + 1
interpolation nodes of `theory.finite_context`. One class therefore serves both.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from theory.checks import LARGEST_GAIN, FloatArray, integer, real, vector

if TYPE_CHECKING:
    from theory.spectra import Spectrum
    from theory.task import Task


def residual(nodes: FloatArray, gains: FloatArray) -> FloatArray:
    """Return q(x) = prod_l (1 - gamma_l x / L) at ``nodes``, shape (n,), for ``gains`` of shape (depth,)."""
    q = np.ones_like(nodes)
    for gain in gains / gains.size:
        q = q * (1.0 - gain * nodes)
    return q


@dataclasses.dataclass(frozen=True, eq=False)
class QuadraticLoss:
    """The loss q^T G q (+ r^T N r with label noise), for residual polynomials of degree <= ``max_depth``.

    Parameters
    ----------
    nodes : array of shape (n,)
        Points x at which q is evaluated.
    gram : array of shape (n,) or (replicates, n, n)
        G: diagonal weights in the population; one symmetric matrix a replicate at finite context, where replicate 0
        is the average over all draws and replicate b > 0 leaves block b out (jackknife).
    noise : array like ``gram``, or None
        N, in which r(x) = (1 - q(x)) / x = sum_l (gamma_l / L) prod_(m<l) (1 - gamma_m x / L) is the response to label
        noise.
    dim : int
        Covariate dimension D; the gradient flow of Gamma_l carries the factor 1/D.
    max_depth : int or None
        Largest depth for which the nodes are exact; ``None`` is any.
    """

    nodes: FloatArray
    gram: FloatArray
    noise: FloatArray | None
    dim: int
    max_depth: int | None = None

    @property
    def replicates(self) -> int:
        """1 for the population, 1 + number of jackknife blocks at finite context."""
        return 1 if self.gram.ndim == 1 else int(self.gram.shape[0])

    def values(self, gains: npt.ArrayLike) -> FloatArray:
        """Return the loss of every replicate, shape (replicates,), for ``gains`` of shape (depth,).

        Raises
        ------
        ValueError
            If ``gains`` is empty, not finite, or longer than ``max_depth``.
        """
        gamma = self._gains(gains)
        q = residual(self.nodes, gamma)
        losses = self._form(self.gram, q, q)
        if self.noise is not None:
            r = noise_response(self.nodes, gamma)
            losses = losses + self._form(self.noise, r, r)
        return losses

    def value(self, gains: npt.ArrayLike) -> float:
        """Return the loss for ``gains`` of shape (depth,); see `values`."""
        return float(self.values(gains)[0])

    def standard_error(self, gains: npt.ArrayLike) -> float:
        """Return the standard error of `value` at fixed gains; 0 for the population."""
        return float(jackknife_error(self.values(gains)))

    def gradient(self, gains: npt.ArrayLike) -> FloatArray:
        """Return d loss / d gamma_l, shape (depth,), of the average over all draws."""
        gamma = self._gains(gains)
        depth = gamma.size
        factors = 1.0 - np.multiply.outer(gamma / depth, self.nodes)
        before = np.vstack([np.ones_like(self.nodes), np.cumprod(factors, axis=0)[:-1]])
        after = np.vstack([np.cumprod(factors[::-1], axis=0)[::-1][1:], np.ones_like(self.nodes)])
        others = before * after
        q = before[-1] * factors[-1]
        slope = -2.0 * (others * self.nodes / depth) @ apply_average(self.gram, q)
        if self.noise is not None:
            pull = apply_average(self.noise, noise_response(self.nodes, gamma))
            slope = slope + 2.0 * (others / depth) @ pull
        return slope

    def tied_slope(self, gain: float, depth: int) -> float:
        """Return d loss / d gamma for one gain shared by ``depth`` layers, of the average over all draws."""
        nodes, gram, noise = self.dense()
        return depth * float(tied_slopes(nodes, gram[:1], noise[:1], depth, np.array([gain]))[0])

    def dense(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return nodes (n,), gram and noise as `tied_slopes` reads them."""
        gram = self.gram[None] if self.gram.ndim == 1 else self.gram
        if self.noise is None:
            noise = np.zeros((0,) * gram.ndim)
        else:
            noise = self.noise[None] if self.noise.ndim == 1 else self.noise
        return self.nodes, np.ascontiguousarray(gram), np.ascontiguousarray(noise)

    def _gains(self, gains: npt.ArrayLike) -> FloatArray:
        gamma = vector("gains", np.atleast_1d(np.asarray(gains, dtype=np.float64)))
        if self.max_depth is not None and gamma.size > self.max_depth:
            raise ValueError(f"gains has {gamma.size} layers: must be at most {self.max_depth}")
        return gamma

    @staticmethod
    def _form(gram: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
        if gram.ndim == 1:
            return np.array([np.sum(left * gram * right)])
        return np.einsum("i,rij,j->r", left, gram, right)


def apply_average(gram: FloatArray, q: FloatArray) -> FloatArray:
    """Return G q, shape (n,), for the average over all draws; ``gram`` as in `QuadraticLoss`."""
    return gram * q if gram.ndim == 1 else gram[0] @ q


def _apply_each(gram: FloatArray, q: FloatArray) -> FloatArray:
    """Return G q for each replicate; ``q`` has shape (replicates, n)."""
    return gram * q if gram.ndim == 2 else np.einsum("rij,rj->ri", gram, q)


def tied_losses_of(nodes: FloatArray, gram: FloatArray, noise: FloatArray, depth: int, gain: FloatArray) -> FloatArray:
    """Return the loss at equal gains, shape (replicates,), one gain a replicate; ``gram`` as in `tied_slopes`."""
    factor = 1.0 - np.multiply.outer(gain / depth, nodes)
    q = factor**depth
    losses = np.sum(q * _apply_each(gram, q), axis=1)
    if noise.size:
        r = _tied_response(factor, gain, depth)
        losses = losses + np.sum(r * _apply_each(noise, r), axis=1)
    return losses


def tied_slopes(nodes: FloatArray, gram: FloatArray, noise: FloatArray, depth: int, gain: FloatArray) -> FloatArray:
    """Return d loss / d gamma_l at equal gains, shape (replicates,), one gain a replicate.

    ``gram`` and ``noise`` have shape (replicates, n, n), or (1, n) where diagonal; without noise it is empty.
    """
    factor = 1.0 - np.multiply.outer(gain / depth, nodes)
    others = factor ** (depth - 1)
    slope = -2.0 / depth * np.sum(nodes * others * _apply_each(gram, others * factor), axis=1)
    if noise.size:
        slope = slope + 2.0 / depth * np.sum(others * _apply_each(noise, _tied_response(factor, gain, depth)), axis=1)
    return slope


def _tied_response(factor: FloatArray, gain: FloatArray, depth: int) -> FloatArray:
    """Return r = (gamma / L) sum_(m<L) factor^m, shape (replicates, n)."""
    total = np.ones_like(factor)
    for _ in range(depth - 1):
        total = 1.0 + factor * total
    return (gain / depth)[:, None] * total


def noise_response(nodes: FloatArray, gains: FloatArray) -> FloatArray:
    """Return r(x) = (1 - q(x)) / x at ``nodes`` without dividing by small x: a telescoping sum over layers."""
    factors = 1.0 - np.multiply.outer(gains / gains.size, nodes)
    before = np.vstack([np.ones_like(nodes), np.cumprod(factors, axis=0)[:-1]])
    return (gains / gains.size) @ before


def jackknife_error(values: FloatArray, axis: int = 0) -> FloatArray:
    """Return the delete-one-block jackknife standard error; entry 0 along ``axis`` is the full average."""
    left_out = np.delete(values, 0, axis=axis)
    blocks = left_out.shape[axis]
    if blocks < 2:
        return np.zeros(np.delete(values.shape, axis))
    # A replicate of a recursion that has run away has no finite square.
    with np.errstate(over="ignore", invalid="ignore"):
        centred = left_out - left_out.mean(axis=axis, keepdims=True)
        return np.sqrt((blocks - 1) / blocks * np.sum(centred**2, axis=axis))


def population_loss(spectrum: Spectrum, gains: npt.ArrayLike) -> float:
    """Return sum_k lambda_k omega_k prod_l (1 - gamma_l lambda_k / L)^2.

    The RRS (and ISO) loss at infinite context; ``gains`` has shape (depth,).

    Raises
    ------
    ValueError
        If ``gains`` is empty or not finite.
    """
    return population(spectrum).value(gains)


def population(spectrum: Spectrum) -> QuadraticLoss:
    """Return the quadratic form of the population: nodes lambda_k, weights lambda_k omega_k.

    For a `SpectralMeasure` of infinite dim the clock is that of t / D.
    """
    dim = 1 if spectrum.dim == float("inf") else spectrum.dim
    return QuadraticLoss(spectrum.eigenvalues, spectrum.signal, None, dim)


def quadratic_loss(
    task: Task, depth: int, *, samples: int | None = None, seed: int = 0, confidence_blocks: int = 25
) -> QuadraticLoss:
    """Return the average loss of ``task`` as a quadratic form in residual polynomials of degree <= ``depth``.

    Parameters
    ----------
    task : Task
        Setting ``rrs`` or ``iso``. ``context=None`` is the population.
    depth : int
        Largest depth that will be asked for.
    samples : int, optional
        Wishart draws at finite context; chosen from ``dim`` if omitted.
    seed : int
        Seed of the draws.
    confidence_blocks : int
        Jackknife blocks for standard errors.

    Raises
    ------
    ValueError
        For ``depth`` < 1, a bad ``samples``, or the setting ``fs``, whose gains differ from mode to mode.
    """
    depth = integer("depth", depth)
    if task.setting == "fs":
        raise ValueError("setting='fs': must be rrs or iso, where one gain a layer is enough")
    if task.context is None:
        return population(task.spectrum)
    from theory.finite_context import wishart_loss

    return wishart_loss(task, depth, samples=samples, seed=seed, blocks=confidence_blocks)


def tied(gain: float, depth: int) -> FloatArray:
    """Return ``depth`` equal gains, shape (depth,).

    Raises
    ------
    ValueError
        If ``gain`` is not finite or ``depth`` < 1.
    """
    return np.full(integer("depth", depth), real("gain", gain, largest=LARGEST_GAIN))
