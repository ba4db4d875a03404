"""One pass through a model that keeps what every layer did: the raw material of all probes.

Written apart from the models' own ``losses``, layer by layer and without their fused kernels; the two must agree.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sim.models.base import Model, Weights
from sim.models.block import layer_of, rms_norm
from sim.models.decoupled import Decoupled
from sim.models.kernels import attention_kernel
from sim.models.products import project
from sim.models.reduced import ReducedKernel, ReducedLinear
from sim.models.residual_mlp import ResidualMLP, TeacherBatch
from sim.models.transformer import Transformer
from sim.probes.queries import white_root
from sim.tasks import Moments, Tokens


@dataclasses.dataclass(frozen=True)
class Trace:
    """What a pass left behind; R runs, B contexts, K layers applied, O outputs, T tokens, P of them in the context.

    Outputs and targets are scaled so that a context's squared error is the sum over O of (output - target)^2. With
    tokens, the outputs are the predictions of the queries over sqrt(Q). For the reduced linear model on moments they
    are the prediction's coefficients in the covariance eigenbasis, times sqrt(lambda_k): O = D, and the sum is the
    exact average over the query; where queries share something with their context, times the root of their covariance
    given it (:func:`sim.probes.queries.white_root`). For ``residual_mlp`` they are the final stream over sqrt(n), or
    under cross-entropy the logits less their mean, over temperature and sqrt(n).

    Parameters
    ----------
    start : Tensor (R, B, O)
        The prediction read off the stream before the first layer; 0 where that is empty.
    contributions : Tensor (R, B, K, O)
        What each layer adds to it; start + sum = prediction. Where a norm stands before the readout, the final norm
        is used throughout.
    target : Tensor (R, B, O)
        What is right.
    states : Tensor (R, B, K + 1, T', S)
        The stream before and after each layer: the residual weight (T' = 1, S = D), the labels of all tokens as one
        vector (T' = 1, S = T), or each token's stream (T' = T).
    attention : Tensor (R, B, K, H, Q, P) or None
        Attention of the query tokens on the context's, as it enters the update, without gains.
    """

    start: Tensor
    contributions: Tensor
    target: Tensor
    states: Tensor
    attention: Tensor | None = None

    @property
    def prediction(self) -> Tensor:
        """The model's outputs, shape (R, B, O)."""
        return self.start + self.contributions.sum(2)

    @property
    def losses(self) -> Tensor:
        """Squared error of each context, shape (R, B)."""
        return (self.prediction - self.target).square().sum(-1)


@torch.no_grad()
def trace(model: Model, weights: Weights, batch: Any, layers: Sequence[int] | None = None) -> Trace:
    """Pass ``batch`` through ``model`` and keep what every layer did.

    Parameters
    ----------
    model : Model
        Any of ``sim.models``.
    weights : dict of Tensor
        Stacked over runs.
    batch : Moments, Tokens or TeacherBatch
        As ``model.draw`` gives it. The reduced linear model takes tokens as well.
    layers : sequence of int, optional
        Which layers to apply, in which order; all of them if omitted. The scale of the branches stays that of the whole
        model, so that to leave a layer out is to set its branch to zero.

    Raises
    ------
    ValueError
        If a layer is not one of the model's.
    """
    order = list(range(model.depth)) if layers is None else list(layers)
    for layer in order:
        if not 0 <= layer < model.depth:
            raise ValueError(f"layers={order}: must be among 0 … {model.depth - 1}")
    if isinstance(model, ReducedLinear) and isinstance(batch, Moments):
        return _moments(model, weights, batch, order)
    if isinstance(model, (ReducedLinear, ReducedKernel)):
        return _labels(model, weights, batch, order)
    if isinstance(model, Decoupled):
        return _decoupled(model, weights, batch, order)
    if isinstance(model, Transformer):
        return _transformer(model, weights, batch, order)
    assert isinstance(model, ResidualMLP)
    return _residual(model, weights, batch, order)


def _moments(model: ReducedLinear, weights: Weights, batch: Moments, order: list[int]) -> Trace:
    root = model.sampler.eigenvalues.sqrt()
    given = white_root(model.sampler.eigenvalues, batch)

    def outputs(weight: Tensor) -> Tensor:
        """Return sqrt(lambda_k) times the coefficients of ``weight`` in the context's eigenbasis."""
        turned = (weight if batch.rotation is None else _apply(batch.rotation.mT, weight)) * root
        return turned if given is None else _apply(given, turned)

    residual = batch.task
    states = [residual]
    for layer in order:
        seen = _apply(batch.empirical, residual)
        if batch.noise is not None:
            seen = seen + batch.noise
        residual = residual - project(seen, layer_of(weights, "gamma", layer).mT) / model.depth
        states.append(residual)
    steps = [outputs(before - after) for before, after in itertools.pairwise(states)]
    target = outputs(batch.task)
    return Trace(torch.zeros_like(target), _stacked(steps, target), target, torch.stack(states, 2)[:, :, :, None])


def _labels(model: ReducedLinear | ReducedKernel, weights: Weights, batch: Tokens, order: list[int]) -> Trace:
    context = batch.labels.shape[-1]
    x, known, own = batch.covariates, batch.covariates[:, :, :context], model.config.model
    hidden = _with_queries(batch)
    states, steps, maps = [hidden], [], []
    for layer in order:
        query = project(x, layer_of(weights, "gamma", layer))
        maps.append(attention_kernel(query, known, own.attention, own.degree))
        if own.attention == "linear":
            gain: Any = 1.0
        else:
            gain = layer_of(weights, "gain", layer)[:, None, None] if "gain" in weights else own.gain_start
        update = gain * _apply(maps[-1], hidden[..., :context]) / model.depth
        hidden = hidden - update
        steps.append(update[..., context:])
        states.append(hidden)
    scale = math.sqrt(batch.targets.shape[-1])
    target = batch.targets / scale
    attention = torch.stack(maps, 2)[:, :, :, None, context:] if maps else None
    contributions = _stacked(steps, batch.targets) / scale
    return Trace(torch.zeros_like(target), contributions, target, torch.stack(states, 2)[:, :, :, None], attention)


def _decoupled(model: Decoupled, weights: Weights, batch: Tokens, order: list[int]) -> Trace:
    context = batch.labels.shape[-1]
    x = project(batch.covariates, weights["embed_x"])
    hidden = project(_with_queries(batch)[..., None], weights["embed_y"])
    states, maps = [hidden], []
    for layer in order:
        query = project(x, layer_of(weights, "query", layer))
        key = project(x[:, :, :context], layer_of(weights, "key", layer))
        value = project(hidden[:, :, :context], layer_of(weights, "value", layer))
        maps.append(_attention(query, key, model.config.model.attention, 1))
        hidden = hidden - _mixed(maps[-1], value) / model.depth
        states.append(hidden)

    def read(stream: Tensor) -> Tensor:
        return -project(stream[:, :, context:], weights["readout"]).squeeze(-1)

    return _of_tokens(batch, states, maps, read)


def _transformer(model: Transformer, weights: Weights, batch: Tokens, order: list[int]) -> Trace:
    own, context = model.config.model, batch.labels.shape[-1]
    scale = model.depth**-own.branch_exponent
    norm = rms_norm if own.norm else (lambda z: z)
    labels = _with_queries(batch)
    stream = project(torch.cat([batch.covariates, labels[..., None]], dim=-1), weights["embed"])
    states, maps = [stream], []
    for layer in order:
        seen = norm(stream)
        query = project(seen, layer_of(weights, "query", layer))
        key, value = (project(seen[:, :, :context], layer_of(weights, name, layer)) for name in ("key", "value"))
        maps.append(_attention(query, key, own.attention, own.heads))
        stream = stream + scale * project(_mixed(maps[-1], value), layer_of(weights, "output", layer))
        if own.mlp:
            hidden = torch.nn.functional.gelu(project(norm(stream), layer_of(weights, "up", layer)))
            stream = stream + scale * project(hidden, layer_of(weights, "down", layer))
        states.append(stream)
    # RMSNorm divides by one number a token: the last stream's, for every part of the sum that the stream is.
    last = stream[:, :, context:]
    size = (last.square().mean(-1) + torch.finfo(last.dtype).eps).sqrt() if own.norm else 1.0

    def read(part: Tensor) -> Tensor:
        return project(part[:, :, context:], weights["readout"]).squeeze(-1) / size

    return _of_tokens(batch, states, maps, read)


def _residual(model: ResidualMLP, weights: Weights, batch: TeacherBatch, order: list[int]) -> Trace:
    scale = model.depth**-model.config.model.branch_exponent
    stream = batch.inputs
    states = [stream]
    for layer in order:
        inner = project(stream, layer_of(weights, "inner", layer)) + layer_of(weights, "bias", layer)[:, None]
        stream = stream + scale * project(inner.tanh(), layer_of(weights, "outer", layer))
        states.append(stream)
    root = math.sqrt(batch.targets.shape[-1])
    if model.teacher.loss == "mse":

        def read(part: Tensor) -> Tensor:
            return part / root

        target = batch.targets / root
    else:

        def read(part: Tensor) -> Tensor:
            return _centred(project(part, weights["readout"]) / model.teacher.temperature) / root

        target = _centred(batch.targets) / root
    steps = [read(after - before) for before, after in itertools.pairwise(states)]
    start = read(states[0])
    return Trace(start, _stacked(steps, start), target, torch.stack(states, 2)[:, :, :, None])


def _of_tokens(batch: Tokens, states: list[Tensor], maps: list[Tensor], read: Any) -> Trace:
    scale = math.sqrt(batch.targets.shape[-1])
    steps = [read(after - before) / scale for before, after in itertools.pairwise(states)]
    start = read(states[0]) / scale
    queries = batch.targets.shape[-1]
    attention = torch.stack([one[..., -queries:, :] for one in maps], 2) if maps else None
    return Trace(start, _stacked(steps, start), batch.targets / scale, torch.stack(states, 2), attention)


def _attention(query: Tensor, key: Tensor, kind: str, heads: int) -> Tensor:
    """Return (R, B, H, T, P): softmax of query·key / sqrt(N / H), or query·key / (P sqrt(N / H))."""
    query, key = (part.unflatten(-1, (heads, -1)).transpose(-3, -2) for part in (query, key))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return scores.softmax(-1) if kind == "softmax" else scores / key.shape[-2]


def _mixed(attention: Tensor, value: Tensor) -> Tensor:
    """Return the values mixed by each head's attention, heads side by side, shape (R, B, T, N)."""
    split = value.unflatten(-1, (attention.shape[2], -1)).transpose(-3, -2)
    return (attention @ split).transpose(-3, -2).flatten(-2)


def _with_queries(batch: Tokens) -> Tensor:
    """Return the labels of all tokens, 0 for the queries."""
    return torch.cat([batch.labels, torch.zeros_like(batch.targets)], dim=-1)


def _stacked(steps: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(steps, 2) if steps else like.new_zeros((*like.shape[:2], 0, like.shape[-1]))


def _centred(logits: Tensor) -> Tensor:
    return logits - logits.mean(-1, keepdim=True)


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Return matrices (..., m, n) times vectors (..., n)."""
    return (matrices @ vectors[..., None]).squeeze(-1)
