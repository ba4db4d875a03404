"""What each layer gives: its contribution, the error it would make alone, how errors of layers go together."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from sim.models.base import Model, Weights
from sim.probes.trace import Trace, trace


@dataclasses.dataclass(frozen=True)
class LayerErrors:
    """The layer-error matrix and its split; R runs.

    Parameters
    ----------
    matrix : Tensor (R, L, L)
        C = E[e e^T] (see :func:`layer_errors`).
    shared : Tensor (R,)
        Mean off-diagonal entry: the error that all layers make together, which no depth averages out.
    specific : Tensor (R,)
        Mean diagonal entry less ``shared``: the error of a layer's own, which L layers average down to
        ``specific`` / L.
    """

    matrix: Tensor
    shared: Tensor
    specific: Tensor

    @property
    def ensemble(self) -> Tensor:
        """shared + specific / L = 1^T C 1 / L^2, the model's squared error, shape (R,)."""
        return self.shared + self.specific / self.matrix.shape[-1]


def layer_errors(traced: Trace) -> LayerErrors:
    """Return the layer-error matrix C of a traced pass.

    The prediction is f = f_0 + sum_l c_l, with c_l what layer l adds. Layer l alone, in place of every layer, would
    predict f_0 + L c_l; its error is e_l = f_0 + L c_l - y. The model is the ensemble of its layers, f - y = mean of
    e_l, so that its squared error is 1^T C 1 / L^2 with C_lm = E[e_l e_m], and exactly shared + specific / L.
    With one layer there are no off-diagonal entries: ``shared`` is NaN and ``specific`` too.

    Parameters
    ----------
    traced : Trace
        Of all layers.
    """
    depth = traced.contributions.shape[2]
    errors = (traced.start - traced.target)[:, :, None] + depth * traced.contributions  # (R, B, L, O)
    return split_errors(torch.einsum("rblo,rbmo->rlm", errors, errors) / errors.shape[1])


def split_errors(matrix: Tensor) -> LayerErrors:
    """Return a layer-error matrix with its split into shared and layer-specific error.

    Parameters
    ----------
    matrix : Tensor (R, L, L)
        C = E[e e^T].
    """
    depth = matrix.shape[-1]
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    pairs = depth * (depth - 1)
    shared = (matrix.sum((-2, -1)) - diagonal) / pairs if pairs else torch.full_like(diagonal, torch.nan)
    return LayerErrors(matrix, shared, diagonal / depth - shared)


def contributions(traced: Trace) -> Tensor:
    """Return each layer's contribution E[c_l·y] / E[y·y], shape (R, L).

    The share of the target that the layer puts in; over all layers, and with that of f_0, they sum to
    E[f·y] / E[y·y], 1 for a perfect model.

    Parameters
    ----------
    traced : Trace
        Of all layers.
    """
    aligned = (traced.contributions * traced.target[:, :, None]).sum(-1).mean(1)
    return aligned / traced.target.square().sum(-1).mean(1)[:, None]


def ablations(model: Model, weights: Weights, batch: Any) -> Tensor:
    """Return how much the squared error rises when one layer is left out, for each layer, shape (R, L).

    Leaving out sets the layer's branch to zero and nothing else: the scale 1/L of the others stays. Negative where the
    model is better without.

    Parameters
    ----------
    model, weights, batch
        As for :func:`sim.probes.trace`; all variants see the same batch.
    """
    whole = trace(model, weights, batch).losses.mean(1)
    order = list(range(model.depth))
    without = [trace(model, weights, batch, [other for other in order if other != layer]) for layer in order]
    return torch.stack([one.losses.mean(1) - whole for one in without], dim=1)


def swaps(model: Model, weights: Weights, batch: Any) -> Tensor:
    """Return how much the squared error rises when layers l and l + 1 change places, shape (R, L - 1).

    Zero for layers that commute or are alike: an ensemble does not feel the order, an iterative algorithm does.

    Parameters
    ----------
    model, weights, batch
        As for :func:`sim.probes.trace`; all variants see the same batch.
    """
    whole = trace(model, weights, batch).losses.mean(1)
    changes = []
    for layer in range(model.depth - 1):
        order = list(range(model.depth))
        order[layer : layer + 2] = [layer + 1, layer]
        changes.append(trace(model, weights, batch, order).losses.mean(1) - whole)
    return torch.stack(changes, dim=1) if changes else whole.new_zeros((len(whole), 0))
