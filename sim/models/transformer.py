"""A transformer on (x, y) tokens: one stream for covariates and labels, pre-norm, depth-scaled residual branches."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.config import RunConfig
from sim.models.base import Model, Weights
from sim.models.block import attend, branch_scale, gaussian, layer_of, layer_rate_scale, rms_norm
from sim.models.products import project
from sim.randomness import Source
from sim.tasks import ContextSampler, Tokens

MLP_RATIO = 4


class Transformer(Model):
    """z^0 = W_in (x, y) with y = 0 for queries; each layer adds attention and maybe an MLP, over L^branch_exponent.

    All tokens attend to the context's. The prediction is W_out·norm(z^L) at the query; W_out starts at zero, so that
    the first prediction is zero.
    """

    ATTENTION = ("query", "key", "value", "output")
    MLP = ("up", "down")

    def __init__(self, config: RunConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, device, dtype)
        assert config.task is not None
        self.sampler = ContextSampler(config.task, device, dtype)
        self._norm = rms_norm if config.model.norm else _same
        self._scale = branch_scale(config)

    def start(self, source: Source) -> Weights:
        """Return Gaussian weights, and zero for the readout."""
        model, width = self.config.model, self.config.model.width
        weights = {name: gaussian(source, self.depth, width, width) for name in self.ATTENTION}
        if model.mlp:
            weights["up"] = gaussian(source, self.depth, width, MLP_RATIO * width)
            weights["down"] = gaussian(source, self.depth, MLP_RATIO * width, width)
        weights["embed"] = gaussian(source, self.sampler.dim + 1, width)
        weights["readout"] = torch.zeros_like(weights["embed"][:, :1].mT)
        return weights

    def draw(self, source: Source, batch: int) -> Tokens:
        """Return tokens."""
        return self.sampler.tokens(source, batch)

    def rate_scales(self) -> dict[str, float]:
        """Return the depth transfer of the layers."""
        scale = layer_rate_scale(self.config, self.config.model.branch_exponent)
        return dict.fromkeys(self.ATTENTION + self.MLP, scale)

    def losses(self, weights: Weights, batch: Tokens) -> Tensor:
        """Return the squared error of each context, averaged over its queries."""
        model, context = self.config.model, batch.labels.shape[-1]
        labels = torch.cat([batch.labels, torch.zeros_like(batch.targets)], dim=-1)
        stream = project(torch.cat([batch.covariates, labels[..., None]], dim=-1), weights["embed"])
        for layer in range(self.depth):
            seen = self._norm(stream)
            # What the last layer makes of the context is never read: only queries go on from there.
            kept = slice(context, None) if layer == self.depth - 1 else slice(None)
            query = project(seen[:, :, kept], layer_of(weights, "query", layer))
            key = project(seen[:, :, :context], layer_of(weights, "key", layer))
            value = project(seen[:, :, :context], layer_of(weights, "value", layer))
            mixed = attend(query, key, value, model.attention, model.heads)
            stream = stream[:, :, kept] + self._scale * project(mixed, layer_of(weights, "output", layer))
            if model.mlp:
                hidden = torch.nn.functional.gelu(project(self._norm(stream), layer_of(weights, "up", layer)))
                stream = stream + self._scale * project(hidden, layer_of(weights, "down", layer))
        prediction = project(self._norm(stream), weights["readout"]).squeeze(-1)
        return (batch.targets - prediction).square().mean(-1)


def _same(x: Tensor) -> Tensor:
    return x
