"""How the hidden state turns from layer to layer, and whether neighbouring layers push the same way."""

from __future__ import annotations

import torch
from torch import Tensor


def rotations(states: Tensor) -> Tensor:
    """Return the angle between the hidden state before and after each layer, in radians, shape (..., L, T).

    NaN where a state is zero and has no direction.

    Parameters
    ----------
    states : Tensor (..., L + 1, T, S)
        The stream before the first layer and after each, for T tokens.
    """
    before, after = states[..., :-1, :, :], states[..., 1:, :, :]
    # Half the angle by its tangent: exact for small angles, where the cosine is 1 to rounding (Kahan, 2006).
    before, after = (part / part.norm(dim=-1, keepdim=True) for part in (before, after))
    return 2 * torch.atan2((after - before).norm(dim=-1), (after + before).norm(dim=-1))


def update_correlations(states: Tensor) -> Tensor:
    """Return the cosine between the updates of layers l and l + 1, shape (..., L - 1, T); NaN where one is zero.

    1 if neighbouring layers go on in one direction, 0 if their steps are unrelated, -1 if one undoes the other.

    Parameters
    ----------
    states : Tensor (..., L + 1, T, S)
        As for :func:`rotations`.
    """
    steps = states.diff(dim=-3)
    first, second = steps[..., :-1, :, :], steps[..., 1:, :, :]
    return (first * second).sum(-1) / (first.norm(dim=-1) * second.norm(dim=-1))
