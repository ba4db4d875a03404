"""Pieces that the deep models share, on tensors with a leading run axis: RMSNorm, attention, branch scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sim.config import RunConfig
from sim.models.base import Weights
from sim.randomness import Source


def rms_norm(x: Tensor) -> Tensor:
    """Return x over the root mean square of its last axis; without a gain, which the next product takes over."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:])


def attend(query: Tensor, key: Tensor, value: Tensor, kind: str, heads: int = 1) -> Tensor:
    """Return multi-head attention of all tokens on the context's.

    Parameters
    ----------
    query : Tensor (R, B, T, N)
        Of every token.
    key, value : Tensor (R, B, P, N)
        Of the context tokens.
    kind : {"softmax", "linear"}
        Softmax of query·key / sqrt(N / heads), through torch's fused kernel; or query·key / (P sqrt(N / heads)).
    heads : int
        Divides N.
    """
    split = [part.unflatten(-1, (heads, -1)).transpose(-3, -2).flatten(0, 1) for part in (query, key, value)]
    if kind == "softmax":
        mixed = torch.nn.functional.scaled_dot_product_attention(*split)
    else:
        scale = key.shape[-2] * math.sqrt(split[0].shape[-1])
        mixed = split[0] @ (split[1].mT @ split[2]) / scale
    return mixed.transpose(-3, -2).flatten(-2).unflatten(0, query.shape[:2])


def branch_scale(config: RunConfig) -> float:
    """Return 1 / L^branch_exponent, the factor on every residual branch."""
    return config.model.depth**-config.model.branch_exponent


def layer_rate_scale(config: RunConfig, exponent: float) -> float:
    """Return the factor on the learning rate of layer weights with which a rate carries over from depth 1.

    With branches over L^a, a change of every layer's weights moves the output by L^(1-a) times that change. Adam's
    change is the rate itself, so the rate must go like L^(a-1); SGD's is the rate times a gradient of order L^-a, so
    it must go like L^(2a-1) (Bordelon et al., arXiv 2309.16620; Yang et al., arXiv 2310.02244; Dey et al., arXiv
    2505.01618).
    """
    if not config.model.depth_transfer:
        return 1.0
    power = 2 * exponent - 1 if config.training.optimizer == "sgd" else exponent - 1
    return float(config.model.depth**power)


def gaussian(source: Source, *shape: int) -> Tensor:
    """Return weights (R, *shape) with N(0, 1 / fan-in) entries; the fan-in is the last axis but one."""
    return source.normal(*shape) / math.sqrt(shape[-2])


def layer_of(weights: Weights, name: str, layer: int) -> Tensor:
    """Return layer ``layer`` of weights stacked as (R, layers, …); the only one where layers are tied."""
    stacked = weights[name]
    return stacked[:, layer if stacked.shape[1] > 1 else 0]
