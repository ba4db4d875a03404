"""Matrix products run by run: the same call for one run as for each of many, so that results are bit-equal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def per_run(left: Tensor, right: Tensor) -> Tensor:
    """Return left (R, m, k) times right (R, k, n), one product a run.

    A batched product picks its blocking, and with it the order of its sums, by the number of matrices; a run must not
    feel how many train beside it.
    """
    if not _apart(left):
        return left @ right
    out = left.new_empty((left.shape[0], left.shape[1], right.shape[2]))
    for own, a, b in zip(out, left, right, strict=True):
        torch.mm(a, b, out=own)
    return out


def _apart(factor: Tensor) -> bool:
    """Return whether runs are multiplied one by one: on the CPU, unless autocast picks the precision."""
    return factor.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


class PerRun(torch.autograd.Function):
    """``per_run`` with its gradient."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        """Return the products."""
        ctx.save_for_backward(left, right)
        return per_run(left, right)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients in both factors, where they are needed."""
        left, right = ctx.saved_tensors
        of_left = per_run(gradient, right.mT) if ctx.needs_input_grad[0] else None
        of_right = per_run(left.mT, gradient) if ctx.needs_input_grad[1] else None
        return of_left, of_right


def project(x: Tensor, weight: Tensor) -> Tensor:
    """Return each run's x (R, …, n) times its own weight (R, n, m), shape (R, …, m)."""
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    flat: Tensor = PerRun.apply(rows, weight) if _apart(rows) else rows @ weight
    return flat.reshape(*x.shape[:-1], weight.shape[-1])
