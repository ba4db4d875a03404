"""The architectures, one small file each; ``build_model`` picks the one a config names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from sim.config import RunConfig
    from sim.models.base import Model

__all__ = ["build_model"]


def build_model(config: RunConfig, device: torch.device, dtype: torch.dtype) -> Model:
    """Return the model that ``config.model`` names, for weights and data on ``device``.

    Raises
    ------
    ValueError
        If there is no such model.
    """
    from sim.models.reduced import ReducedKernel, ReducedLinear

    if config.model.name == "reduced":
        return (ReducedLinear if config.is_reduced_linear else ReducedKernel)(config, device, dtype)
    raise ValueError(f"model.name={config.model.name!r}: not built yet")
