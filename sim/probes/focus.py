"""Where attention looks: how narrow, whether at the relevant tokens, and whether layers look at the same ones."""

from __future__ import annotations

import torch
from torch import Tensor

from theory.checks import choice, integer

RELEVANCES = ("cosine", "product")


def focus(attention: Tensor) -> Tensor:
    """Return attention as shares of what a token looks at: p_nu = |A_nu| / sum |A|, NaN where all A are zero.

    For softmax attention p = A. Kernels that change sign look at a token by the size of its weight.

    Parameters
    ----------
    attention : Tensor (..., P)
        Attention of a token on the context's.
    """
    size = attention.abs()
    total = size.sum(-1, keepdim=True)
    return torch.where(total > 0, size / total, torch.nan)


def entropy(shares: Tensor) -> Tensor:
    """Return -sum p log p in nats, shape (...): log P for even attention, 0 for attention on one token.

    Parameters
    ----------
    shares : Tensor (..., P)
        From :func:`focus`.
    """
    return -torch.special.xlogy(shares, shares).sum(-1)


def participation(shares: Tensor) -> Tensor:
    """Return the participation number 1 / sum p^2, shape (...): how many tokens share the attention, 1 to P.

    Parameters
    ----------
    shares : Tensor (..., P)
        From :func:`focus`.
    """
    return 1 / shares.square().sum(-1)


def relevance(covariates: Tensor, context: int, kind: str = "cosine") -> Tensor:
    """Return how relevant each context token is to each query token, shape (..., Q, P).

    Parameters
    ----------
    covariates : Tensor (..., P + Q, D)
        Of all tokens, the context's first.
    context : int
        P.
    kind : {"cosine", "product"}
        ``cosine``: |cos| of the angle between x_q and x_nu, as both signs of an aligned token tell as much about w;
        ``product``: x_q·x_nu with its sign, what linear attention with Gamma = I weighs by.

    Raises
    ------
    ValueError
        If ``kind`` is another.
    """
    choice("relevance", kind, RELEVANCES)
    if kind == "cosine":
        covariates = torch.nn.functional.normalize(covariates, dim=-1)
    scores = covariates[..., context:, :] @ covariates[..., :context, :].mT
    return scores.abs() if kind == "cosine" else scores


def relevant_mass(shares: Tensor, relevant: Tensor, count: int) -> Tensor:
    """Return the share of attention on the ``count`` most relevant tokens, shape (...): count / P if it is even.

    Parameters
    ----------
    shares : Tensor (..., P)
        From :func:`focus`.
    relevant : Tensor (..., P)
        From :func:`relevance`; broadcast against ``shares``.
    count : int
        k, at most P.

    Raises
    ------
    ValueError
        If ``count`` is not between 1 and P.
    """
    count = integer("count", count, maximum=shares.shape[-1])
    top = relevant.topk(count, dim=-1).indices
    return shares.gather(-1, top.expand(*shares.shape[:-1], count)).sum(-1)


def by_relevance(shares: Tensor, relevant: Tensor) -> Tensor:
    """Return attention's shares in the order of relevance, the most relevant token first, shape (..., P).

    Parameters
    ----------
    shares : Tensor (..., P)
        From :func:`focus`.
    relevant : Tensor (..., P)
        From :func:`relevance`; broadcast against ``shares``.
    """
    return shares.gather(-1, relevant.argsort(-1, descending=True).expand(shares.shape))


def overlap(shares: Tensor) -> Tensor:
    """Return how far layers look at the same tokens: sum_nu sqrt(p_l p_m), shape (..., L, L).

    The Bhattacharyya coefficient: 1 for the same shares, 0 for no token in common.

    Parameters
    ----------
    shares : Tensor (..., L, P)
        Each layer's, averaged over its heads.
    """
    root = shares.sqrt()
    return root @ root.mT
