"""The setting FS at finite context: one layer exactly, and how low deeper ones can go, from above and from below.

From above, descent over all gains finds a minimum of the sampled loss; nothing says that it is the lowest, so two
starts are held against each other and fresh draws against those it was fitted to. From below, the prediction of linear
attention is linear in the labels whatever its depth and gains, with residual map V = I - M Sigma_hat for some M, and
the best M of each context is the ridge regression with the task's own covariance:

    tr Lambda (I - M Sigma_hat) Omega (I - M Sigma_hat)^T + (sigma^2/P) tr Lambda M Sigma_hat M^T
        >= tr Lambda [Omega - Omega F (F^T Omega F + sigma^2/P)^+ F^T Omega],   Sigma_hat = F F^T.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from theory.checks import FloatArray, real, vector
from theory.fixed_basis import ModeGains, SampledModes, whole_steps
from theory.floors import Floor
from theory.losses import jackknife_error
from theory.small_init import one_layer_loss
from theory.task import Task
from theory.tie_breaking import break_pattern

DESCENT_STEPS = 200
# Differences between layers, relative, from which the descent of untied gains starts out of the tied minimum.
PART = 0.05
# Singular values below this, relatively, are directions that a context does not see.
UNSEEN = 1e-14


def one_layer_modes(task: Task, at: Iterable[float], *, learning_rate: float | None = None) -> ModeGains:
    """Return one layer's gains and losses from zero, exact at any context: its modes do not see each other.

    The loss is quadratic and E[Sigma_hat Omega Sigma_hat] diagonal, so each gain goes to its optimum g_k exponentially,
    with rate 2 c_k: as exp(-2 c_k t) along the flow, as (1 - 2 rate c_k)^n along the recursion.

    Parameters
    ----------
    task : Task
    at : increasing numbers >= 0
        Times of the flow; whole numbers of steps where a ``learning_rate`` is given.
    learning_rate : float, optional
        Of the recursion.

    Raises
    ------
    ValueError
        For bad arguments.
    """
    form, lam, omega = one_layer_loss(task), task.spectrum.eigenvalues, task.spectrum.task_power
    if learning_rate is None:
        left = np.exp(-2 * np.multiply.outer(vector("times", at, minimum=0, increasing=True), form.curvature))
    else:
        rate = real("learning_rate", learning_rate, above=0)
        with np.errstate(over="ignore", invalid="ignore"):
            left = (1 - 2 * rate * form.curvature) ** whole_steps(at)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        gains = form.gain * (1 - left)
        losses = form.loss(gains)
        # E Sigma_hat_jk^2 = lambda_j lambda_k / P off the diagonal, lambda_k^2 (1 + 2 / P) on it.
        inverse = 0.0 if task.context is None else 1 / task.context
        own = omega * (1 - 2 * gains * lam + (1 + inverse) * (gains * lam) ** 2)
        modes = lam * (own + inverse * (omega @ lam + task.label_noise) * gains**2 * lam)
    for values in (losses, modes):
        values[~np.isfinite(values)] = np.nan
    status = "Closed form." if np.isfinite(losses).all() else "Diverged: lower the learning rate."
    return ModeGains(gains[:, None], losses[None], modes, status)


def least_linear_loss(loss: SampledModes) -> tuple[float, float]:
    """Return a lower bound on the loss of every depth and all gains, on the draws of ``loss``, and its standard error.

    It is the loss of the best linear predictor of each context (module docstring): zero without label noise once the
    context spans all modes.
    """
    lam, omega = loss.task.spectrum.eigenvalues, loss.task.spectrum.task_power
    assert loss.task.context is not None
    values, basis = np.linalg.eigh(loss.covariances)
    factor = basis * np.sqrt(np.clip(values, 0.0, None))[:, None, :]
    weighted = omega[:, None] * factor
    seen = factor.transpose(0, 2, 1) @ weighted
    index = np.arange(lam.size)
    seen[:, index, index] += loss.task.label_noise / loss.task.context
    inverse = np.linalg.pinv(seen, rcond=UNSEEN, hermitian=True)
    gained = np.einsum("i,sij,sjk,sik->s", lam, weighted, inverse, weighted, optimize=True)
    least = np.maximum(loss.task.spectrum.total - gained, 0.0)
    return float(least.mean()), float(least.std(ddof=1) / np.sqrt(least.size))


def sampled_floors(loss: SampledModes, end: FloatArray, fresh: SampledModes) -> tuple[dict[str, Floor], dict[str, Any]]:
    """Return tied and untied floors of the sampled loss, and what is known of them.

    Parameters
    ----------
    loss : SampledModes
    end : array of shape (depth, dim)
        Gains from which to descend, such as the end of a path.
    fresh : SampledModes
        Other draws, on which the minima are rated: half of what they cost more there is the optimism.

    Returns
    -------
    floors : dict with ``tied`` and ``untied``
    notes : dict
        ``floor_starts``: the minima from each start; ``floor_slope``: the largest d loss / d log gain at the lowest,
        relative to the loss; ``floor_lower_bound``: below which nothing linear comes, less two standard errors; and
        ``floors``, a sentence.
    """
    depth = loss.depth
    one_layer = np.broadcast_to(one_layer_loss(loss.task).gain, end.shape)
    tied = [_descend(loss, start, tied=True) for start in (end, one_layer)]
    lowest = min(tied, key=lambda found: found[0])[1]
    apart = lowest * (1 + PART * break_pattern(depth)[:, None])
    untied = [_descend(loss, start, tied=False) for start in (end, apart)]
    floors, starts, slope = {}, {}, 0.0
    for name, found in (("tied", tied), ("untied", untied)):
        value, gains = min(found, key=lambda each: each[0])
        starts[name] = [each[0] for each in found]
        gradient = loss.value_and_gradient(gains)[1]
        if name == "tied":
            gradient = np.broadcast_to(gradient.mean(axis=0), gradient.shape)
        slope = max(slope, float(np.max(np.abs(gradient * gains))) / value if value > 0 else 0.0)
        optimism = max(float(fresh.replicates(gains)[0]) - value, 0.0) / 2
        error = float(np.hypot(jackknife_error(loss.replicates(gains)), optimism))
        floors[name] = Floor(value, error, (), optimism)
    least, error = least_linear_loss(loss)
    notes = {
        "floor_starts": starts,
        "floor_slope": slope,
        "floor_lower_bound": max(least - 2 * error, 0.0),
        "floors": "lowest found by descent from two starts: upper bounds; floor_lower_bound is below every floor",
    }
    return floors, notes


def _descend(loss: SampledModes, gains: FloatArray, *, tied: bool) -> tuple[float, FloatArray]:
    """Return the value and gains (depth, dim) of a local minimum of the sampled loss, by L-BFGS from ``gains``."""
    from scipy.optimize import minimize

    depth, dim = gains.shape
    layers = 1 if tied else depth
    begin = gains.mean(axis=0, keepdims=True) if tied else gains

    def both(flat: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = loss.value_and_gradient(np.broadcast_to(flat.reshape(layers, dim), (depth, dim)))
        return value, (gradient.sum(axis=0) if tied else gradient).ravel()

    found = minimize(both, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": DESCENT_STEPS})
    best: FloatArray = np.broadcast_to(found.x.reshape(layers, dim), (depth, dim)).copy()
    return float(found.fun), best
