"""Error along the covariance eigen-directions, and when each direction is half learned."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sim.models.base import Model
from sim.probes.queries import white_root
from sim.probes.trace import Trace
from sim.tasks import Moments, Tokens
from theory.checks import FloatArray


def mode_errors(model: Model, batch: Moments | Tokens, traced: Trace) -> Tensor:
    """Return the share of the loss that lies along each covariance eigen-direction, shape (R, D).

    With moments the error is linear in the query, v·x with the residual weight v, and mode k has
    lambda_k E[(O^T v)_k^2]: the sum over k is the loss. With tokens the error delta(x) of a context is projected on
    the coordinates z_k = (O^T x)_k / sqrt(lambda_k) of its query tokens: mode k has the mean over contexts of
    (E_x[delta(x) z_k])^2, what a linear error has there. The square of the mean over Q queries is estimated without
    bias, from products of different queries; the loss less the sum over k is the part of the error that is not linear
    in x. Modes with lambda_k = 0 have no error. Where queries share something with their context, C^(-1/2) z stands
    for z, with C the covariance of z given the context (:func:`sim.probes.queries.white_root`), so that all of this
    holds there too.

    Parameters
    ----------
    model : Model
        An attention model.
    batch : Moments or Tokens
        What was traced; tokens with at least two queries.
    traced : Trace
        Its trace.

    Raises
    ------
    ValueError
        If a context has a single query.
    """
    error = traced.prediction - traced.target
    if isinstance(batch, Moments):
        return error.square().mean(1)
    queries = batch.targets.shape[-1]
    if queries < 2:
        raise ValueError(f"task.queries={queries}: must be at least 2 to project an error on the eigen-directions")
    x = batch.covariates[:, :, -queries:]
    if batch.rotation is not None:
        x = x @ batch.rotation  # row x^T O holds the coordinates O^T x
    eigenvalues = model.sampler.eigenvalues  # type: ignore[attr-defined]
    z = torch.where(eigenvalues > 0, x / eigenvalues.clamp_min(torch.finfo(x.dtype).tiny).sqrt(), 0.0)
    root = white_root(eigenvalues, batch)
    if root is not None:
        z = torch.linalg.solve(root, z, left=False)
    products = (error * queries**0.5)[..., None] * z  # (R, B, Q, D)
    total = products.sum(2)
    return ((total.square() - products.square().sum(2)) / (queries * (queries - 1))).mean(1)


def half_learning_times(time: FloatArray, errors: FloatArray) -> FloatArray:
    """Return when each mode's error first falls to half of what it is at the first time, NaN if it does not.

    Between two times the error is taken as exponential in time, or as a straight line where the later one is not
    positive.

    Parameters
    ----------
    time : array (n,)
        Increasing, in units of learning rate times step.
    errors : array (n, D)
        Error of each mode at each time.

    Returns
    -------
    array (D,)
    """
    time, errors = np.asarray(time, dtype=float), np.asarray(errors, dtype=float)
    half = errors[0] / 2
    times = np.full(errors.shape[1], np.nan)
    for mode in range(errors.shape[1]):
        below = np.flatnonzero(errors[:, mode] <= half[mode])
        if below.size == 0 or half[mode] <= 0:
            continue
        after = int(below[0])
        early, late = errors[after - 1, mode], errors[after, mode]
        straight = (early - half[mode]) / (early - late)
        share = np.log(early / half[mode]) / np.log(early / late) if late > 0 else straight
        times[mode] = time[after - 1] + share * (time[after] - time[after - 1])
    return times
