"""SGD and Adam on weights stacked over runs, with one learning rate a run; schedules; clipping."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sim.config import TrainingConfig
from sim.models.base import Weights

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
# Added to a gradient's norm before dividing by it, as torch.nn.utils.clip_grad_norm_ does.
NORM_OFFSET = 1e-6
# Share of the steps over which the schedule "tail" lowers the rate: the excess loss of a noisy gradient falls like one
# over the steps spent on it, and half of a run is where more would cost the constant phase.
TAIL_SHARE = 0.5


def schedule_factor(config: TrainingConfig, step: int) -> float:
    """Return the factor on the learning rate at ``step`` (from 0), warm-up included."""
    rise = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    done = step / config.steps
    if config.schedule == "linear":
        return rise * (1 - done)
    if config.schedule == "cosine":
        return rise * 0.5 * (1 + math.cos(math.pi * done))
    if config.schedule == "tail":
        return rise * min(1.0, (config.steps - step) / (TAIL_SHARE * config.steps))
    return rise


class Optimizer:
    """Plain SGD, or Adam (Kingma & Ba, arXiv 1412.6980, with bias correction), elementwise on stacked weights.

    Parameters
    ----------
    config : TrainingConfig
        Of any one run of the group.
    rates : Tensor (R,)
        Learning rate of each run.
    scales : dict
        Factor on the rate for some parameters.
    """

    def __init__(self, config: TrainingConfig, rates: Tensor, scales: dict[str, float]) -> None:
        self._config = config
        self._rates = rates
        self._scales = scales
        self.moments: dict[str, Tensor] = {}

    def step(self, weights: Weights, gradient: Weights, step: int) -> None:
        """Update ``weights`` in place for the update number ``step`` (from 0)."""
        if self._config.clip is not None:
            _clip(gradient, self._config.clip)
        factor = schedule_factor(self._config, step)
        for name, weight in weights.items():
            rate = _shaped(self._rates * (factor * self._scales.get(name, 1.0)), weight)
            change = gradient[name] if self._config.optimizer == "sgd" else self._adam(name, gradient[name], step)
            weight.sub_(rate * change)

    def _adam(self, name: str, gradient: Tensor, step: int) -> Tensor:
        first = self.moments.setdefault(f"first.{name}", torch.zeros_like(gradient))
        second = self.moments.setdefault(f"second.{name}", torch.zeros_like(gradient))
        first.mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = 1 / (1 - BETA1 ** (step + 1))
        root = (second / (1 - BETA2 ** (step + 1))).sqrt_().add_(EPSILON)
        return first * scale / root


def _clip(gradient: Weights, largest: float) -> None:
    """Shrink each run's gradient to norm ``largest`` where it is longer."""
    square = sum(part.square().flatten(1).sum(1) for part in gradient.values())
    assert isinstance(square, Tensor)
    factor = (largest / (square.sqrt() + NORM_OFFSET)).clamp_max(1.0)
    for part in gradient.values():
        part.mul_(_shaped(factor, part))


def _shaped(per_run: Tensor, like: Tensor) -> Tensor:
    return per_run.reshape(-1, *[1] * (like.ndim - 1))
