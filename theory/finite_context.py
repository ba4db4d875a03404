"""Finite context: averages over the sample covariance of P tokens, drawn by Bartlett's decomposition.

Sigma_hat = Lambda^(1/2) A A^T Lambda^(1/2) / P with A lower trapezoidal, A_kk ~ chi(P - k + 1), A_jk ~ N(0, 1) below
the diagonal: the P tokens are never drawn. With Sigma_hat = U diag(s) U^T and w of covariance Omega = diag(omega_k),

    E_w[w^T q(Sigma_hat) Lambda q(Sigma_hat) w] = sum_ij q(s_i) q(s_j) (U^T Omega U)_ij (U^T Lambda U)_ij.

A polynomial of degree <= L is fixed by its values at L + 1 nodes, so all draws are compressed, exactly, to one
(L + 1) x (L + 1) matrix in the Lagrange basis of Chebyshev nodes.

The averages tr(Omega S^i Lambda S^j) of low degree are known exactly (``theory.wishart``), so what the draws get wrong
in them is regressed out of everything else: one layer becomes exact, deeper ones gain a factor 1.3 to 40 in variance at
the tied optimum and thousands early in training. Antithetic draws (the other tail of each chi-square, the other sign of
each normal) gain tens in mid-training but little or nothing at the optimum, and are not used
(``benchmarks/variance.py`` measures both).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from theory.checks import FloatArray, integer
from theory.losses import QuadraticLoss
from theory.task import Task
from theory.wishart import polynomial_moments

# Enough draws for a relative standard error near 0.3 % at dim 45, context 512.
DEFAULT_SAMPLES = 2000
# Entries of eigenvector matrices held at once: 2.4e7 float64 are 200 MB.
MOST_ENTRIES = 24_000_000
FEWEST_SAMPLES = 50
# Fewer draws than this do not determine the regression on the known moments.
FEWEST_FOR_CONTROLS = 100
CONTROLS = ((0, 1), (1, 1), (0, 2), (1, 2))


def default_samples(dim: int) -> int:
    """Return the number of Wishart draws used when none is asked for: fewer at large ``dim``, which self-averages."""
    return int(np.clip(MOST_ENTRIES // dim**2, FEWEST_SAMPLES, DEFAULT_SAMPLES))


def bartlett_factor(dim: int, context: int, samples: int, rng: np.random.Generator) -> FloatArray:
    """Return A, shape (samples, dim, min(dim, context)), with A A^T ~ Wishart(I, context).

    The Bartlett decomposition: A_kk^2 ~ chi^2(context - k + 1), standard normals below the diagonal, zeros above.
    """
    rank = min(dim, context)
    factor = np.tril(rng.standard_normal((samples, dim, rank)), -1)
    k = np.arange(rank)
    factor[:, k, k] = np.sqrt(rng.chisquare(context - k, size=(samples, rank)))
    return factor


def draw_covariances(task: Task, samples: int, rng: np.random.Generator) -> FloatArray:
    """Return Sigma_hat in the population eigenbasis, shape (samples, dim, dim), for a task with finite context.

    Raises
    ------
    ValueError
        If the task's context is infinite.
    """
    if task.context is None:
        raise ValueError("context=None: must be finite to draw sample covariances")
    factor = bartlett_factor(task.dim, task.context, samples, rng)
    factor *= np.sqrt(task.spectrum.eigenvalues / task.context)[:, None]
    return factor @ factor.transpose(0, 2, 1)


def wishart_loss(
    task: Task, depth: int, *, samples: int | None = None, seed: int = 0, blocks: int = 25
) -> QuadraticLoss:
    """Return the Wishart-averaged loss as a quadratic form at depth + 1 nodes, with jackknife replicates.

    Parameters
    ----------
    task : Task
        Finite context; the rotation of the setting drops out of the average.
    depth : int
        Largest degree of the residual polynomial.
    samples : int, optional
        Draws of Sigma_hat, at least ``blocks``; `default_samples` if omitted.
    seed : int
        Seed of the draws.
    blocks : int
        Blocks of draws for the jackknife.

    Raises
    ------
    ValueError
        For bad counts or an infinite context.
    """
    depth = integer("depth", depth)
    blocks = integer("blocks", blocks, minimum=2)
    count = default_samples(task.dim) if samples is None else integer("samples", samples, minimum=blocks)
    rng = np.random.default_rng(integer("seed", seed, minimum=0))
    at_once = max(1, MOST_ENTRIES // task.dim**2)
    parts = [_compressed(task, depth, min(at_once, count - done), rng) for done in range(0, count, at_once)]
    top = max(part.top for part in parts)
    nodes, _ = chebyshev_nodes(np.array([top]), depth + 1)
    controls = np.concatenate([part.controls for part in parts])

    def average(forms: list[FloatArray]) -> FloatArray:
        shared = [_on_nodes(form, part.top, top) for form, part in zip(forms, parts, strict=True)]
        return positive_part(average_with_replicates(regress_out(np.concatenate(shared), controls), blocks))

    noise = average([part.noise for part in parts]) if task.label_noise > 0 else None
    return QuadraticLoss(nodes, average([part.signal for part in parts]), noise, task.dim, max_depth=depth)


@dataclasses.dataclass(frozen=True)
class _Compressed:
    """Draws as quadratic forms (samples, n, n) on the Chebyshev nodes of [0, top], with their known deviations."""

    top: float
    signal: FloatArray
    noise: FloatArray
    controls: FloatArray


def _compressed(task: Task, depth: int, count: int, rng: np.random.Generator) -> _Compressed:
    values, basis = np.linalg.eigh(draw_covariances(task, count, rng))
    values = np.clip(values, 0.0, None)
    spectrum = task.spectrum
    risk = basis.transpose(0, 2, 1) @ (spectrum.eigenvalues[:, None] * basis)
    weights = risk * (basis.transpose(0, 2, 1) @ (spectrum.task_power[:, None] * basis))
    _, lagrange = chebyshev_nodes(values, depth + 1)
    signal = lagrange.transpose(0, 2, 1) @ weights @ lagrange
    noise = np.zeros((count, 0, 0))
    if task.label_noise > 0:
        assert task.context is not None
        diagonal = values * np.einsum("sii->si", risk) * (task.label_noise / task.context)
        noise = lagrange.transpose(0, 2, 1) @ (diagonal[:, :, None] * lagrange)
    return _Compressed(float(values.max()), signal, noise, known_deviations(task, values, weights))


def _on_nodes(forms: FloatArray, top: float, wider: float) -> FloatArray:
    """Return forms on the nodes of [0, top] as forms on those of [0, wider]: exact, and stable from outside in."""
    if top == wider:
        return forms
    count = forms.shape[1]
    inner, _ = chebyshev_nodes(np.array([top]), count)
    _, lagrange = chebyshev_nodes(np.append(inner, wider), count)
    moved: FloatArray = lagrange[:-1].T @ forms @ lagrange[:-1]
    return moved


def known_deviations(task: Task, values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return tr(Omega S^i Lambda S^j) - its exact mean of every draw, shape (samples, 4), for (i, j) in `CONTROLS`.

    Parameters
    ----------
    task : Task
    values : array of shape (samples, dim)
        Eigenvalues of each draw.
    weights : array of shape (samples, dim, dim)
        (U^T Omega U)_ij (U^T Lambda U)_ij of each draw.
    """
    exact = polynomial_moments(task)
    pulled = {j: np.einsum("sij,sj->si", weights, values**j) for j in (1, 2)}
    return np.stack([np.sum(values**i * pulled[j], axis=1) - exact[i, j] for i, j in CONTROLS], axis=1)


def regress_out(forms: FloatArray, controls: FloatArray) -> FloatArray:
    """Return ``forms`` (samples, n, n) less their regression on ``controls``, whose mean is known to be zero."""
    if controls.shape[0] < FEWEST_FOR_CONTROLS or not np.isfinite(controls).all():  # powers of large eigenvalues
        return forms
    flat = forms.reshape(forms.shape[0], -1)
    scaled = controls / np.maximum(np.abs(controls).max(axis=0), np.finfo(float).tiny)
    design = np.column_stack([np.ones(scaled.shape[0]), scaled])
    slopes = np.linalg.lstsq(design, flat, rcond=None)[0][1:]
    result: FloatArray = (flat - scaled @ slopes).reshape(forms.shape)
    return result


def chebyshev_nodes(values: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return Chebyshev nodes on [0, max(values)] and the Lagrange basis on them at ``values``.

    Returns
    -------
    nodes : array of shape (count,)
    lagrange : array of shape (*values.shape, count)
        ell_a(values): a polynomial p of degree < count is p(values) = lagrange @ p(nodes), exactly.
    """
    top = float(values.max())
    angle = np.pi * (np.arange(count) + 0.5) / count
    nodes = top * (1.0 + np.cos(angle)) / 2.0
    order = np.arange(count)
    at_nodes = np.cos(np.multiply.outer(order, angle)) * np.where(order == 0, 1.0, 2.0)[:, None] / count
    position = np.arccos(np.clip(2.0 * values / top - 1.0, -1.0, 1.0))
    return nodes, np.cos(np.multiply.outer(position, order)) @ at_nodes


def average_with_replicates(forms: FloatArray, blocks: int) -> FloatArray:
    """Return the mean of ``forms`` (samples, n, n), then the means without each of ``blocks`` blocks."""
    parts = np.array_split(forms, blocks)
    sums = np.stack([part.sum(axis=0) for part in parts])
    sizes = np.array([part.shape[0] for part in parts])
    total, count = sums.sum(axis=0), sizes.sum()
    left_out = (total - sums) / (count - sizes)[:, None, None]
    means = np.concatenate([total[None] / count, left_out])
    return (means + means.transpose(0, 2, 1)) / 2.0


def positive_part(forms: FloatArray) -> FloatArray:
    """Return symmetric ``forms`` (replicates, n, n) without their negative eigenvalues, which regression can leave."""
    values, basis = np.linalg.eigh(forms)
    if values.min() >= 0:
        return forms
    result: FloatArray = (basis * np.maximum(values, 0.0)[:, None, :]) @ basis.transpose(0, 2, 1)
    return result
