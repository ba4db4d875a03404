"""Residual networks that learn a deeper residual teacher: the toy in which layers are independent, or all alike."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from sim.config import RunConfig
from sim.models.base import Model, Weights
from sim.models.block import branch_scale, gaussian, layer_of, layer_rate_scale
from sim.models.products import project
from sim.randomness import Source
from sim.tasks import Batch


@dataclasses.dataclass(frozen=True)
class TeacherBatch(Batch):
    """Inputs and what the teacher makes of them.

    Parameters
    ----------
    inputs : Tensor (R, B, n)
        N(0, 1) entries.
    targets : Tensor (R, B, n) or (R, B, classes)
        The teacher's final stream, or its log-probabilities.
    """

    inputs: Tensor
    targets: Tensor


class ResidualMLP(Model):
    """x^(l+1) = x^l + W_out tanh(W_in x^l + b) / L^branch_exponent, for student and teacher alike.

    The teacher's layers are sqrt(rho) times one common draw plus sqrt(1 - rho) times one of their own; its branches are
    divided by sqrt(T^2 rho + T (1 - rho)), so that T layers move the stream by order one at every rho. The toy
    follows arXiv 2602.05970, with tanh in place of a normalised squared ReLU, so that the limit of many identical
    layers is a smooth flow. Under ``mse`` the loss is the squared distance of the final streams, over n; under
    ``cross_entropy`` it is the divergence KL(teacher || student) of the softmax of n learned (student) or
    random (teacher) readouts, logits over ``temperature``: the cross-entropy less the teacher's entropy.
    """

    LAYERS = ("inner", "bias", "outer")

    def __init__(self, config: RunConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, device, dtype)
        assert config.teacher is not None
        self.teacher = config.teacher
        self._scale = branch_scale(config)
        source = Source([self.teacher.seed], "teacher", device, dtype, on_cpu=config.training.draws == "cpu")
        depth, rho = self.teacher.depth, self.teacher.correlation
        common, own = self._layers(source, 1), self._layers(source, depth)
        self._teacher = {name: rho**0.5 * common[name] + (1 - rho) ** 0.5 * own[name] for name in self.LAYERS}
        self._teacher_scale = self.teacher.strength / math.sqrt(depth**2 * rho + depth * (1 - rho))
        self._teacher_readout = source.normal(self.teacher.dim, self.teacher.dim)

    def start(self, source: Source) -> Weights:
        """Return random inner weights, and zero for outer ones and readout: the student starts as the identity."""
        weights = self._layers(source, self.depth)
        weights["outer"] = torch.zeros_like(weights["outer"])
        if self.teacher.loss == "cross_entropy":
            weights["readout"] = torch.zeros_like(source.normal(self.teacher.dim, self.teacher.dim))
        return weights

    def draw(self, source: Source, batch: int) -> TeacherBatch:
        """Return inputs with the teacher's answers."""
        inputs = source.normal(batch, self.teacher.dim)
        stream = self._through(self._teacher, inputs.reshape(1, -1, self.teacher.dim), self._teacher_scale)
        if self.teacher.loss == "cross_entropy":
            stream = (project(stream, self._teacher_readout) / self.teacher.temperature).log_softmax(-1)
        return TeacherBatch(inputs, stream.reshape(inputs.shape))

    def rate_scales(self) -> dict[str, float]:
        """Return the depth transfer of the layers."""
        return dict.fromkeys(self.LAYERS, layer_rate_scale(self.config, self.config.model.branch_exponent))

    def losses(self, weights: Weights, batch: TeacherBatch) -> Tensor:
        """Return the loss of each input."""
        stream = self._through(weights, batch.inputs, self._scale)
        if self.teacher.loss == "mse":
            return (stream - batch.targets).square().mean(-1)
        student = (project(stream, weights["readout"]) / self.teacher.temperature).log_softmax(-1)
        return (batch.targets.exp() * (batch.targets - student)).sum(-1)

    def _layers(self, source: Source, depth: int) -> Weights:
        dim, hidden = self.teacher.dim, self.teacher.hidden
        return {
            "inner": gaussian(source, depth, dim, hidden),
            "bias": source.normal(depth, hidden),
            "outer": gaussian(source, depth, hidden, dim),
        }

    def _through(self, weights: Weights, stream: Tensor, scale: float) -> Tensor:
        for layer in range(weights["inner"].shape[1]):
            inner = project(stream, layer_of(weights, "inner", layer)) + layer_of(weights, "bias", layer)[:, None]
            stream = stream + scale * project(inner.tanh(), layer_of(weights, "outer", layer))
        return stream
