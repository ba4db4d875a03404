"""Finite context: averages over the sample covariance of P tokens, drawn by Bartlett's decomposition.

Sigma_hat = Lambda^(1/2) A A^T Lambda^(1/2) / P with A lower trapezoidal, A_kk ~ chi(P - k + 1), A_jk ~ N(0, 1) below
the diagonal: the P tokens are never drawn. With Sigma_hat = U diag(s) U^T and w of covariance Omega = diag(omega_k),

    E_w[w^T q(Sigma_hat) Lambda q(Sigma_hat) w] = sum_ij q(s_i) q(s_j) (U^T Omega U)_ij (U^T Lambda U)_ij.

A polynomial of degree <= L is fixed by its values at L + 1 nodes, so all draws are compressed, exactly, to one
(L + 1) x (L + 1) matrix in the Lagrange basis of Chebyshev nodes.

The averages tr(Omega S^i Lambda S^j) of low degree are known exactly (``theory.wishart``), so the draws are
weighted until they agree: one layer becomes exact, deeper ones gain a factor 1.3 to 40 in variance at the tied optimum
and thousands early in training. Antithetic draws (the other tail of each chi-square, the other sign of
each normal) gain tens in mid-training but little or nothing at the optimum, and are not used
(``benchmarks/variance.py`` measures both).
"""

from __future__ import annotations

import dataclasses
import math

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
# Fewer draws than this do not determine weights for the known moments.
FEWEST_FOR_CONTROLS = 100
# Controls that differ by less than this, relatively, are one.
COLLINEAR = 1e-10
# Weighted controls, in units of their size, are zero below this.
WEIGHTED_TO_ZERO = 1e-12
NEWTON_STEPS = 60
SAME_VALUE = 1e-12
# Draws are stretched along eigenvalues of half the largest or more, if there are no more than these.
MOST_LEADING = 4
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
    return _covariances(task, bartlett_factor(task.dim, _finite_context(task), samples, rng))


def _finite_context(task: Task) -> int:
    if task.context is None:
        raise ValueError("context=None: must be finite to draw sample covariances")
    return task.context


def _covariances(task: Task, factor: FloatArray) -> FloatArray:
    """Return Sigma_hat of Bartlett factors (samples, dim, rank), which are scaled in place."""
    factor *= np.sqrt(task.spectrum.eigenvalues / _finite_context(task))[:, None]
    return factor @ factor.transpose(0, 2, 1)


def draw_with_rare(task: Task, depth: int, samples: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return sample covariances of which half are stretched along a leading direction, and weights that undo it.

    A residual of degree L outside the usual range of Sigma_hat grows like x^L, so that contexts that chance has
    stretched along a large eigenvalue can rule the average though few draws meet one. Where x^(2L) times the density
    of a chi-square with P degrees of freedom is largest, its square is larger than its mean by 1 + 4 L/P. Half of the
    draws have a row of the Bartlett factor stretched that far or half as far; the weights, plain density over mixture,
    are at most 2 (importance sampling from a defensive mixture, Hesterberg 1995).

    Returns
    -------
    covariances : array of shape (samples, dim, dim)
        In the population eigenbasis.
    weights : array of shape (samples,)
        Of mean 1 over many draws; all 1 where more than a few eigenvalues share the lead, and the edge of the bulk
        self-averages.

    Raises
    ------
    ValueError
        If the task's context is infinite.
    """
    context, eigenvalues = _finite_context(task), task.spectrum.eigenvalues
    leading = int(np.count_nonzero(eigenvalues >= eigenvalues[0] / 2))
    factor = bartlett_factor(task.dim, context, samples, rng)
    weights = np.ones(samples)
    if leading <= MOST_LEADING:
        excess = 4 * depth / context
        kinds = [(row, 1 + part * excess) for row in range(leading) for part in (0.5, 1.0)]
        chosen = rng.integers(0, 2 * len(kinds), size=samples)
        for kind, (row, stretch) in enumerate(kinds):
            factor[chosen == kind, row] *= math.sqrt(stretch)
        # Stretching one covariate by c changes the density of the tokens by c^(-P/2) exp((1 - 1/c) |tokens|^2 / 2).
        squares = [np.sum(factor[:, row] ** 2, axis=1) for row in range(leading)]
        ratios = [
            np.exp(0.5 * ((1 - 1 / stretch) * squares[row] - context * math.log(stretch))) for row, stretch in kinds
        ]
        weights = 1 / (0.5 + 0.5 * np.mean(ratios, axis=0))
    return _covariances(task, factor), weights


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
    drawn = np.concatenate([part.weights for part in parts])

    def average(forms: list[FloatArray]) -> FloatArray:
        shared = [_on_nodes(form, part.top, top) for form, part in zip(forms, parts, strict=True)]
        return weighted_averages(np.concatenate(shared), drawn, controls, blocks)

    noise = average([part.noise for part in parts]) if task.label_noise > 0 else None
    return QuadraticLoss(nodes, average([part.signal for part in parts]), noise, task.dim, max_depth=depth)


@dataclasses.dataclass(frozen=True)
class _Compressed:
    """Draws as quadratic forms (samples, n, n) on the Chebyshev nodes of [0, top], weights and known deviations."""

    top: float
    weights: FloatArray
    signal: FloatArray
    noise: FloatArray
    controls: FloatArray


def _compressed(task: Task, depth: int, count: int, rng: np.random.Generator) -> _Compressed:
    covariances, drawn = draw_with_rare(task, depth, count, rng)
    values, basis = np.linalg.eigh(covariances)
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
    # The plain density is normalised, too: E[weight (1/weight - 1)] = 0.
    controls = np.column_stack([known_deviations(task, values, weights), 1 / drawn - 1])
    return _Compressed(float(values.max()), drawn, signal, noise, controls)


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


def weighted_averages(forms: FloatArray, drawn: FloatArray, controls: FloatArray, blocks: int) -> FloatArray:
    """Return the mean of ``forms`` (samples, n, n), then the means without each block, weighted by `moment_weights`.

    Every replicate has weights of its own, so that the jackknife sees what they owe to single draws. Where the draws
    are too few to be weighted further they keep the weights with which they were drawn.
    """
    count = forms.shape[0]
    weights = np.zeros((blocks + 1, count))
    steer = count >= FEWEST_FOR_CONTROLS and bool(np.isfinite(controls).all())  # powers of large eigenvalues
    for replicate, left_out in enumerate([np.arange(0), *np.array_split(np.arange(count), blocks)]):
        kept = np.delete(np.arange(count), left_out)
        found = moment_weights(controls[kept], drawn[kept]) if steer else None
        if found is None and steer:
            return weighted_averages(forms, drawn, np.full_like(controls, np.inf), blocks)
        weights[replicate, kept] = drawn[kept] / drawn[kept].sum() if found is None else found
    means = (weights @ forms.reshape(count, -1)).reshape(-1, *forms.shape[1:])
    return (means + means.transpose(0, 2, 1)) / 2.0


def moment_weights(controls: FloatArray, drawn: FloatArray) -> FloatArray | None:
    """Return the weights of sum 1 closest to ``drawn`` under which ``controls`` (samples, m) have mean zero.

    Closest in relative entropy: they are proportional to drawn exp(mu . c), with mu at the minimum of
    log sum drawn exp(mu . c), found by Newton's method. To first order this is regression on the controls; but weights
    stay positive, and no draw far from the rest can turn a mean of positive forms round. ``None`` if no weights do it:
    zero is outside what the draws span.
    """
    size = np.sqrt(np.average(controls**2, axis=0, weights=drawn))
    scaled = controls / np.maximum(size, np.finfo(float).tiny)
    tilt = np.zeros(scaled.shape[1])

    def weigh(point: FloatArray) -> tuple[float, FloatArray]:
        exponent = scaled @ point
        top = float(exponent.max())
        weights = drawn * np.exp(exponent - top)
        return top + math.log(float(weights.sum())), weights / weights.sum()

    value, weights = weigh(tilt)
    for _ in range(NEWTON_STEPS):
        mean = weights @ scaled
        if np.abs(mean).max() <= WEIGHTED_TO_ZERO:
            return weights
        spread = scaled - mean
        step = -np.linalg.pinv((spread * weights[:, None]).T @ spread, rcond=COLLINEAR, hermitian=True) @ mean
        length = 1.0
        # Near the minimum its value changes by less than rounding, and the full step is right.
        while (trial := weigh(tilt + length * step))[0] > value + SAME_VALUE and length > 1e-6:
            length /= 2.0
        tilt, (value, weights) = tilt + length * step, trial
    return None


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
