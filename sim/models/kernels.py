"""Attention kernels: what a layer makes of the scores between its tokens and the context's."""

from __future__ import annotations

import torch
from torch import Tensor


def attention_kernel(queries: Tensor, keys: Tensor, kind: str, degree: int = 3) -> Tensor:
    """Return the attention of ``queries`` on ``keys``.

    Parameters
    ----------
    queries : Tensor (..., n, d)
        Projected tokens, x Gamma.
    keys : Tensor (..., P, d)
        Context tokens.
    kind : {"linear", "softmax", "relu", "exp", "polynomial", "cosine"}
        With s = query·key: softmax over the context; else, divided by P: s, max(s, 0), exp(s), (1 + s)^degree, or
        the cosine of the angle between query and key.
    degree : int
        Of the polynomial.

    Returns
    -------
    Tensor (..., n, P)
    """
    if kind == "cosine":
        queries = torch.nn.functional.normalize(queries, dim=-1)
        keys = torch.nn.functional.normalize(keys, dim=-1)
    scores = queries @ keys.mT
    if kind == "softmax":
        return scores.softmax(-1)
    if kind == "relu":
        scores = scores.relu()
    elif kind == "exp":
        scores = scores.exp()
    elif kind == "polynomial":
        scores = (1 + scores) ** degree
    return scores / keys.shape[-2]
