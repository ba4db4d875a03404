"""The reduced model: labels travel through L layers, covariates stay; Gamma_l is D x D, or gamma_l I."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sim.config import RunConfig
from sim.models.base import Model, Weights
from sim.models.block import layer_rate_scale
from sim.models.kernels import attention_kernel
from sim.models.label_pass import LabelPass
from sim.models.products import per_run, project
from sim.randomness import Source
from sim.tasks import ContextSampler, Moments, Tokens


class _Reduced(Model):
    """Start and layer axis, shared by the linear and the nonlinear reduced model."""

    def __init__(self, config: RunConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, device, dtype)
        assert config.task is not None
        self.sampler = ContextSampler(config.task, device, dtype)
        self.layers = 1 if config.model.tied else config.model.depth

    def start(self, source: Source) -> Weights:
        """Return Gamma (R, layers, D, D), and gains (R, layers) where they are learned."""
        model, dim = self.config.model, self.sampler.dim
        gamma = torch.zeros((source.runs, self.layers, dim, dim), device=self.device, dtype=self.dtype)
        eye = torch.eye(dim, device=self.device, dtype=self.dtype)
        if model.gamma_start == "identity":
            gamma += model.gamma_scale * eye
        elif model.gamma_start == "random" and model.gamma_shape == "full":
            gamma = source.normal(self.layers, dim, dim) * (model.gamma_scale / math.sqrt(dim))
        elif model.gamma_start == "random":
            gamma = source.normal(self.layers)[..., None, None] * (model.gamma_scale * eye)
        return {"gamma": gamma}

    def constrain(self, gradient: Weights) -> Weights:
        """Return the gradient in the multiples of I only, where Gamma is one."""
        if self.config.model.gamma_shape == "full":
            return gradient
        gamma = gradient["gamma"]
        mean = gamma.diagonal(dim1=-2, dim2=-1).mean(-1)
        eye = torch.eye(gamma.shape[-1], device=gamma.device, dtype=gamma.dtype)
        return {**gradient, "gamma": mean[..., None, None] * eye}

    def rate_scales(self) -> dict[str, float]:
        """Return the depth transfer of the layers; tied layers move together and need none."""
        scale = 1.0 if self.config.model.tied else layer_rate_scale(self.config, 1.0)
        return {"gamma": scale, "gain": scale * self.config.model.gain_rate}

    def _layer(self, stacked: Tensor, layer: int) -> Tensor:
        return stacked[:, 0 if self.config.model.tied else layer]


class ReducedLinear(_Reduced):
    """Linear attention A_l = x^T Gamma_l x / P, by its residual weight e^l; the loss is exact over the query.

    e^0 = w and e^(l+1) = e^l - Gamma_l (Sigma_hat e^l + n) / L with n = X^T epsilon / P; loss = e^L·Sigma e^L, Sigma
    being the covariance of a query given its context where that is another.
    The gradient is written by hand: each layer costs one D x D product a context forward and one backward.
    """

    def draw(self, source: Source, batch: int) -> Moments:
        """Return moments; no tokens are drawn."""
        return self.sampler.moments(source, batch)

    def losses(self, weights: Weights, batch: Moments) -> Tensor:
        """Return e^L·Sigma e^L for each context."""
        residual = batch.task
        for layer in range(self.depth):
            seen = self._seen(batch, residual)
            residual = residual - project(seen, self._layer(weights["gamma"], layer).mT) / self.depth
        return (residual * self._population(batch, residual)).sum(-1)

    def loss_and_gradient(self, weights: Weights, batch: Moments) -> tuple[Tensor, Weights]:  # type: ignore[override]
        """Return losses and gradient by one pass forward and one back."""
        gamma = weights["gamma"]
        residual, seen = batch.task, []
        for layer in range(self.depth):
            seen.append(self._seen(batch, residual))
            residual = residual - per_run(seen[-1], self._layer(gamma, layer).mT) / self.depth
        weighted = self._population(batch, residual)
        losses = (residual * weighted).sum(-1)
        back = weighted * (2 / losses.shape[1])  # gradient of the mean loss in e^(l+1)
        gradient = torch.zeros_like(gamma)
        for layer in reversed(range(self.depth)):
            self._layer(gradient, layer).sub_(per_run(back.mT, seen[layer]) / self.depth)
            if layer:
                back = back - _matvec(batch.empirical, per_run(back, self._layer(gamma, layer))) / self.depth
        return losses, {"gamma": gradient}

    def _seen(self, batch: Moments, residual: Tensor) -> Tensor:
        seen = _matvec(batch.empirical, residual)
        return seen if batch.noise is None else seen + batch.noise

    def _population(self, batch: Moments, residual: Tensor) -> Tensor:
        """Return Sigma e, or with the query's covariance given the context."""
        if batch.query is not None:
            return _matvec(batch.query, residual)
        if batch.rotation is None:
            return residual * self.sampler.eigenvalues
        turned = _matvec(batch.rotation.mT, residual) * self.sampler.eigenvalues
        return _matvec(batch.rotation, turned)


class ReducedKernel(_Reduced):
    """Nonlinear attention A_l = b_l kernel(x_mu·Gamma_l x_nu) over the P context tokens, on tokens.

    Context and query tokens are updated alike. Covariates never change, so the attention of all layers is computed at
    once and only the labels go layer by layer. With Gamma = 0 every kernel is flat; a gain b_l other than zero makes
    the gradient in Gamma_l nonzero there, so the default start is Gamma = 0, b_l = 1.
    """

    # Attention entries of one run above which layers are computed one at a time, to bound memory.
    ENTRIES_AT_ONCE = 2**25

    def start(self, source: Source) -> Weights:
        """Return Gamma and the learned gains."""
        weights = super().start(source)
        if self.config.model.gain == "learned":
            shape = (source.runs, self.layers)
            weights["gain"] = torch.full(shape, self.config.model.gain_start, device=self.device, dtype=self.dtype)
        return weights

    def draw(self, source: Source, batch: int) -> Tokens:
        """Return tokens."""
        return self.sampler.tokens(source, batch)

    def attention(self, weights: Weights, batch: Tokens, layers: slice, tokens: slice = slice(None)) -> Tensor:
        """Return the kernels of ``layers`` for ``tokens``, without gains, shape (R, B, tokens, layers, P)."""
        x = batch.covariates[:, :, tokens]
        runs, contexts, count, dim = x.shape
        stacked = weights["gamma"][:, layers].transpose(1, 2).reshape(runs, dim, -1)  # x Gamma_l side by side
        projected = project(x, stacked).reshape(runs, contexts, -1, dim)
        context = batch.covariates[:, :, : batch.labels.shape[-1]]
        kernel = attention_kernel(projected, context, self.config.model.attention, self.config.model.degree)
        return kernel.unflatten(2, (count, -1))

    def losses(self, weights: Weights, batch: Tokens) -> Tensor:
        """Return the squared error of each context, averaged over its queries."""
        return self.errors(weights, batch).square().mean(-1)

    def errors(self, weights: Weights, batch: Tokens) -> Tensor:
        """Return w·x less the prediction for each query, shape (R, B, Q)."""
        context = batch.labels.shape[-1]
        hidden = torch.cat([batch.labels, torch.zeros_like(batch.targets)], dim=-1)
        gains = weights.get("gain")
        if gains is None:
            gains = hidden.new_full((hidden.shape[0], self.layers), self.config.model.gain_start)
        *earlier, last = [0] * self.depth if self.config.model.tied else range(self.depth)
        entries = batch.covariates.shape[1] * self.layers * hidden.shape[-1] * context
        if earlier and (entries <= self.ENTRIES_AT_ONCE or self.config.model.tied):
            own = slice(0, max(earlier) + 1)
            hidden = LabelPass.apply(self.attention(weights, batch, own), gains[:, own], hidden, earlier, self.depth)
        else:
            for layer in earlier:
                own = slice(layer, layer + 1)
                hidden = LabelPass.apply(self.attention(weights, batch, own), gains[:, own], hidden, [0], self.depth)
        # What the last layer makes of the context's labels is never read: only queries attend in it.
        kernel = self.attention(weights, batch, slice(last, last + 1), slice(context, None))[..., 0, :]
        update = (kernel * hidden[..., None, :context]).sum(-1) * (gains[:, last, None, None] / self.depth)
        return hidden[..., context:] - update + batch.targets


def _matvec(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Return matrices (..., m, n) times vectors (..., n)."""
    return (matrices @ vectors[..., None]).squeeze(-1)
