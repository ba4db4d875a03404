"""Width bottleneck: labels travel at full precision, covariates are seen through N < dim directions.

The residual stream of width N holds the label and a rank-N view A x of the covariates, A (N x dim) with orthonormal
rows that do not change with the context; attention acts on A x. The reduced model is then

    v^(l+1) = (I - A^T Gamma_l A Sigma_hat/L) v^l,   Gamma_l (N x N),

and the loss E[v^T Sigma v] as before. N = dim is the full model.

- RRS and ISO: covariances turn, so any A is as good as a random one, Gamma_l = gamma_l I, and the flow carries 1/N. The
  part of w outside the rows of A is never learned. Population: the loss is E tr(Lambda Omega q(K)^2) with
  K = Lambda^(1/2) A^T A Lambda^(1/2), whose large-size limit is known (``theory.contour``). Finite context: sampled.
- FS: A keeps the N modes with the largest signal. The labels' part in the other modes is independent of what is seen,
  hence label noise: the loss is the full-width one of N modes with noise sigma^2 + tail, plus the tail.

Source: derived from the reduced model of arXiv 2510.01098 with this A.
"""

from __future__ import annotations

import numpy as np

from theory.checks import FloatArray, integer
from theory.contour import chebyshev_points, chebyshev_transform, contour, projection_factor
from theory.finite_context import average_with_replicates, chebyshev_nodes, default_samples, draw_covariances
from theory.losses import QuadraticLoss
from theory.spectra import Spectrum
from theory.task import Task


def seen_task(task: Task, width: int) -> tuple[Task, float]:
    """Return the task of the ``width`` modes with most signal, and the loss of the modes left out (setting fs).

    Raises
    ------
    ValueError
        For a width outside 1..dim.
    """
    width = integer("width", width, maximum=task.dim)
    spectrum = task.spectrum
    order = np.sort(np.argsort(-spectrum.signal, kind="stable")[:width])
    unseen = np.setdiff1d(np.arange(task.dim), order)
    tail = float(spectrum.signal[unseen].sum())
    part = Spectrum(
        spectrum.eigenvalues[order], spectrum.task_power[order], name=f"{spectrum.name}, {width} modes", normalise=False
    )
    return Task(part, task.setting, task.context, task.label_noise + tail), tail


def bottleneck_limit(task: Task, width: int, depth: int) -> QuadraticLoss:
    """Return the large-size limit of the population loss at ``width`` < dim, settings rrs and iso.

    Raises
    ------
    ValueError
        For a width outside 1..dim, a finite context, or the setting ``fs``.
    """
    width, depth = integer("width", width, maximum=task.dim), integer("depth", depth)
    if task.context is not None:
        raise ValueError(
            f"context={task.context}: must be infinite for the limit; sampled contexts have bottleneck_loss"
        )
    _rotating(task)
    lam = task.spectrum.eigenvalues
    upper, count = float(lam[0]), depth + 1
    if width == task.dim:
        basis = np.polynomial.chebyshev.chebvander(2 * lam / upper - 1, 2 * depth)
        moments = task.spectrum.signal @ basis
    else:
        around = contour(lam, upper, 2 * depth + 1, projection_factor(width, task.dim))
        moments = around.one_point(lam, task.spectrum.signal)
    i, j = np.indices((count, count))
    # T_i T_j = (T_(i+j) + T_|i-j|)/2.
    transform = chebyshev_transform(count)
    gram = transform.T @ ((moments[i + j] + moments[np.abs(i - j)]) / 2) @ transform
    return QuadraticLoss(chebyshev_points(count, upper), gram[None], None, width, max_depth=depth)


def bottleneck_loss(
    task: Task, width: int, depth: int, *, samples: int | None = None, seed: int = 0, blocks: int = 25
) -> QuadraticLoss:
    """Return the loss at ``width`` averaged over random rows A (and sample covariances), settings rrs and iso.

    With B = A Sigma_hat A^T, C = A Lambda A^T and r = (1 - q)/x,

        loss = tr(Omega Lambda) - 2 tr(r(B) A Sigma_hat Omega Lambda A^T)
               + tr(r(B) A Sigma_hat Omega Sigma_hat A^T r(B) C) + (sigma^2/P) tr(r(B) B r(B) C).

    Raises
    ------
    ValueError
        For a width outside 1..dim, bad counts, or the setting ``fs``.
    """
    width, depth = integer("width", width, maximum=task.dim), integer("depth", depth)
    _rotating(task)
    count = default_samples(task.dim) if samples is None else integer("samples", samples, minimum=blocks)
    rng = np.random.default_rng(integer("seed", seed, minimum=0))
    lam, omega = task.spectrum.eigenvalues, task.spectrum.task_power
    rows = np.linalg.qr(rng.standard_normal((count, task.dim, width)))[0].transpose(0, 2, 1)
    if task.context is None:
        seen = rows * lam
        inverse = 0.0
    else:
        seen = rows @ draw_covariances(task, count, rng)
        inverse = task.label_noise / task.context
    values, basis = np.linalg.eigh(seen @ rows.transpose(0, 2, 1))
    values = np.clip(values, 0.0, None)
    turn = basis.transpose(0, 2, 1)
    population = turn @ ((rows * lam) @ rows.transpose(0, 2, 1)) @ basis
    linear = np.einsum("snd,snd->sn", turn @ (seen * omega * lam), turn @ rows)
    quadratic = (turn @ ((seen * omega) @ seen.transpose(0, 2, 1)) @ basis) * population
    diagonal = np.arange(width)
    quadratic[:, diagonal, diagonal] += inverse * values * population[:, diagonal, diagonal]

    nodes, _ = chebyshev_nodes(values, depth + 1)
    top = 2 * float(nodes.mean())
    response = _divided_difference(values, top, depth) @ chebyshev_transform(depth + 1)
    at_zero = (-1.0) ** np.arange(depth + 1) @ chebyshev_transform(depth + 1)
    forms = response.transpose(0, 2, 1) @ quadratic @ response
    cross = np.einsum("sn,sna->sa", linear, response)[:, :, None] * at_zero
    forms += task.spectrum.total * np.multiply.outer(at_zero, at_zero) - cross - cross.transpose(0, 2, 1)
    return QuadraticLoss(nodes, average_with_replicates(forms, blocks), None, width, max_depth=depth)


def _divided_difference(x: FloatArray, top: float, degree: int) -> FloatArray:
    """[T_j(at 0) - T_j(x)]/x on [0, top], shape (*x.shape, degree + 1), by the recurrence of T_j: no division by x."""
    u = 2 * x / top - 1
    result = np.zeros((*x.shape, degree + 1))
    if degree >= 1:
        result[..., 1] = -2 / top
    for j in range(1, degree):
        result[..., j + 1] = 2 * u * result[..., j] - 4 / top * (-1.0) ** j - result[..., j - 1]
    return result


def _rotating(task: Task) -> None:
    if task.setting == "fs":
        raise ValueError("setting='fs': must be rrs or iso; with a fixed basis the width keeps modes (seen_task)")
