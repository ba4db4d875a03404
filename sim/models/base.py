"""What every model offers the training loop: a start, a batch, the loss of each context, its gradient."""

from __future__ import annotations

import abc
from typing import Any

import torch
from torch import Tensor

from sim.config import RunConfig
from sim.randomness import Source
from sim.tasks import Batch

# Parameters of R runs at once: name -> tensor of shape (R, *own shape).
Weights = dict[str, Tensor]


class Model(abc.ABC):
    """An architecture with the data it learns from. Holds no weights: they are passed, stacked over runs.

    Parameters
    ----------
    config : RunConfig
        Seeds and rates are not read here.
    device, dtype
        Of weights and data.
    """

    def __init__(self, config: RunConfig, device: torch.device, dtype: torch.dtype) -> None:
        self.config = config
        self.device = device
        self.dtype = dtype
        self.depth = config.model.depth

    @abc.abstractmethod
    def start(self, source: Source) -> Weights:
        """Return the weights of every run of ``source`` before training."""

    @abc.abstractmethod
    def draw(self, source: Source, batch: int) -> Any:
        """Return ``batch`` fresh contexts for every run."""

    @abc.abstractmethod
    def losses(self, weights: Weights, batch: Any) -> Tensor:
        """Return the loss of each context, shape (R, B), differentiable in the weights."""

    def loss_and_gradient(self, weights: Weights, batch: Batch) -> tuple[Tensor, Weights]:
        """Return each context's loss (R, B) and the gradient of each run's mean loss."""
        leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
        losses = self.losses(leaves, batch)
        gradients = torch.autograd.grad(losses.mean(1).sum(), list(leaves.values()))
        return losses.detach(), dict(zip(leaves, gradients, strict=True))

    def constrain(self, gradient: Weights) -> Weights:
        """Return the part of a gradient that leaves the weights in the form that the config asks for."""
        return gradient

    def rate_scales(self) -> dict[str, float]:
        """Return the factor on the learning rate for each parameter that has one other than 1."""
        return {}
