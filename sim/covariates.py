"""Laws of the covariates: tokens x = O Lambda^(1/2) z whose z has mean 0 and covariance I, Gaussian or not."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.config import TaskConfig
from sim.randomness import Source


def white_tokens(config: TaskConfig, dim: int, source: Source, batch: int, tokens: int) -> tuple[Tensor, Tensor | None]:
    """Return ``tokens`` draws of z for each of ``batch`` contexts a run, and the covariance of z given the context.

    Each law has E z = 0 and E z z^T = I.

    - ``gaussian``: z ~ N(0, I).
    - ``signs``: independent entries +1 or -1, so that E z_k^4 = 1.
    - ``sphere``: z = sqrt(D) u with u uniform on the unit sphere, a Gaussian vector over its norm (Muller, Commun. ACM
      2, 1959); E z_k^4 = 3 D / (D + 2).
    - ``clusters``: a context draws K centres c_k ~ N(0, I); a token picks one of them uniformly and is
      z = sqrt(1 - s) c_k + sqrt(s) g with g ~ N(0, I). Tokens of one context share its centres: given these, a token
      has covariance (1 - s) mean_k c_k c_k^T + s I about zero.

    Parameters
    ----------
    config : TaskConfig
        Says which law.
    dim : int
        D.
    source : Source
        Of every draw.
    batch, tokens : int
        B and T.

    Returns
    -------
    z : Tensor (R, B, T, D)
    given : Tensor (R, B, D, D) or None
        E[z z^T | the context's centres]; None where tokens are independent, and it is I.
    """
    if config.covariates == "signs":
        return source.signs(batch, tokens, dim), None
    gaussian = source.normal(batch, tokens, dim)
    if config.covariates == "sphere":
        norm = gaussian.square().sum(-1, keepdim=True).sqrt()
        # A vector of norm zero, which one Gaussian number in float32 can be, has no direction: it gets the diagonal.
        return torch.where(norm > 0, gaussian / norm * dim**0.5, 1.0), None
    if config.covariates == "clusters":
        assert config.clusters is not None
        assert config.spread is not None
        return _clustered(source, gaussian, config.clusters, config.spread)
    return gaussian, None


def _clustered(source: Source, gaussian: Tensor, clusters: int, spread: float) -> tuple[Tensor, Tensor]:
    batch, tokens, dim = gaussian.shape[1:]
    centres = source.normal(batch, clusters, dim) * (1 - spread) ** 0.5
    own = source.index(clusters, batch, tokens)[..., None].expand_as(gaussian)
    within = spread * torch.eye(dim, device=gaussian.device, dtype=gaussian.dtype)
    return centres.gather(2, own) + spread**0.5 * gaussian, centres.mT @ centres / clusters + within
