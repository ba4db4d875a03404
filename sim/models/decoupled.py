"""The decoupled model: covariates and labels in streams of width N that never mix; only labels travel."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.config import RunConfig
from sim.models.base import Model, Weights
from sim.models.block import attend, gaussian, layer_of, layer_rate_scale
from sim.models.products import project
from sim.randomness import Source
from sim.tasks import ContextSampler, Tokens


class Decoupled(Model):
    """W_x embeds covariates, W_y labels; W_q, W_k score covariates, W_v acts on the label stream, W_o reads it out.

    h_mu^0 = W_y y_mu (0 for queries), h^(l+1) = h^l - (1/L) attention(W_q W_x x, W_k W_x x) W_v h^l, prediction
    -W_o·h_query^L. W_o starts at zero, so that the first prediction is zero.
    """

    LAYERS = ("query", "key", "value")

    def __init__(self, config: RunConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, device, dtype)
        assert config.task is not None
        self.sampler = ContextSampler(config.task, device, dtype)

    def start(self, source: Source) -> Weights:
        """Return Gaussian weights, and zero for the readout."""
        width, dim = self.config.model.width, self.sampler.dim
        layers = 1 if self.config.model.tied else self.depth
        weights = {name: gaussian(source, layers, width, width) for name in self.LAYERS}
        weights["embed_x"] = gaussian(source, dim, width)
        weights["embed_y"] = gaussian(source, 1, width)
        weights["readout"] = torch.zeros_like(weights["embed_y"].mT)
        return weights

    def draw(self, source: Source, batch: int) -> Tokens:
        """Return tokens."""
        return self.sampler.tokens(source, batch)

    def rate_scales(self) -> dict[str, float]:
        """Return the depth transfer of the layers; tied layers move together and need none."""
        scale = 1.0 if self.config.model.tied else layer_rate_scale(self.config, 1.0)
        return dict.fromkeys(self.LAYERS, scale)

    def losses(self, weights: Weights, batch: Tokens) -> Tensor:
        """Return the squared error of each context, averaged over its queries."""
        context = batch.labels.shape[-1]
        x = project(batch.covariates, weights["embed_x"])
        labels = torch.cat([batch.labels, torch.zeros_like(batch.targets)], dim=-1)
        hidden = project(labels[..., None], weights["embed_y"])
        for layer in range(self.depth):
            # What the last layer makes of the context is never read: only queries go on from there.
            kept = slice(context, None) if layer == self.depth - 1 else slice(None)
            query = project(x[:, :, kept], layer_of(weights, "query", layer))
            key = project(x[:, :, :context], layer_of(weights, "key", layer))
            value = project(hidden[:, :, :context], layer_of(weights, "value", layer))
            hidden = hidden[:, :, kept] - attend(query, key, value, self.config.model.attention) / self.depth
        prediction = -project(hidden, weights["readout"]).squeeze(-1)
        return (batch.targets - prediction).square().mean(-1)
