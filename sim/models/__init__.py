"""The architectures, one small file each; ``build_model`` picks the one a config names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from sim.config import RunConfig
    from sim.models.base import Model

__all__ = ["build_model"]


def build_model(config: RunConfig, device: torch.device, dtype: torch.dtype) -> Model:
    """Return the model that ``config.model`` names, for weights and data on ``device``."""
    from sim.models.decoupled import Decoupled
    from sim.models.reduced import ReducedKernel, ReducedLinear
    from sim.models.residual_mlp import ResidualMLP
    from sim.models.transformer import Transformer

    reduced = ReducedLinear if config.is_reduced_linear else ReducedKernel
    models = {"reduced": reduced, "decoupled": Decoupled, "transformer": Transformer, "residual_mlp": ResidualMLP}
    return models[config.model.name](config, device, dtype)
