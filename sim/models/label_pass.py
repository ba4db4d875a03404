"""Labels through the layers of the reduced model, with a gradient that touches each attention matrix once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LabelPass(torch.autograd.Function):
    """h^(l+1) = h^l - b_l A_l h^l_context / L for given attention, in order.

    Autograd would build each layer's gradient in A_l apart and then copy all of them into one tensor; here they are
    written where they belong, as products of entries.
    """

    @staticmethod
    def forward(ctx: Any, kernels: Tensor, gains: Tensor, hidden: Tensor, order: list[int], depth: int) -> Tensor:
        """Return the hidden labels after the layers in ``order``.

        Parameters
        ----------
        kernels : Tensor (R, B, T, layers, P)
            Attention of all T tokens on the first P, without gain.
        gains : Tensor (R, layers)
            b_l.
        hidden : Tensor (R, B, T)
            h before the first of these layers.
        order : list of int
            Which kernel each layer uses.
        depth : int
            L of the residual's 1/L.
        """
        context = kernels.shape[-1]
        seen, updates = [], []
        for layer in order:
            seen.append(hidden[..., :context])
            updates.append((kernels[..., layer, :] @ seen[-1][..., None]).squeeze(-1))
            hidden = hidden - updates[-1] * (gains[:, layer, None, None] / depth)
        ctx.save_for_backward(kernels, gains, *seen, *updates)
        ctx.order, ctx.depth = order, depth
        return hidden

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Return the gradients in kernels, gains and hidden labels."""
        kernels, gains, *saved = ctx.saved_tensors
        order, count = ctx.order, len(ctx.order)
        seen, updates = saved[:count], saved[count:]
        of_gains = torch.zeros_like(gains)
        # Untied layers each fill their own part; tied ones add to a shared part.
        fresh = len(set(order)) == kernels.shape[-2] == count
        of_kernels = torch.empty_like(kernels) if fresh else torch.zeros_like(kernels)
        context = kernels.shape[-1]
        for i in reversed(range(count)):
            layer = order[i]
            scaled = gradient * (gains[:, layer, None, None] / -ctx.depth)
            if fresh:
                torch.mul(scaled[..., None], seen[i][..., None, :], out=of_kernels[..., layer, :])
            else:
                of_kernels[..., layer, :].addcmul_(scaled[..., None], seen[i][..., None, :])
            of_gains[:, layer] -= (gradient * updates[i]).sum((1, 2)) / ctx.depth
            through = (kernels[..., layer, :] * scaled[..., None]).sum(-2)
            gradient = torch.cat([gradient[..., :context] + through, gradient[..., context:]], dim=-1)
        return of_kernels, of_gains, gradient, None, None
