"""Coordinates in which the queries of a context are white, though they share something with its tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.tasks import Moments, Tokens


def white_root(eigenvalues: Tensor, batch: Moments | Tokens) -> Tensor | None:
    """Return C^(1/2), C = E[z z^T | context] of a query's z = Lambda^(-1/2) O^T x; None where it is I.

    C^(-1/2) z has covariance I given the context, and is the closest to z of all such coordinates (Löwdin, J. Chem.
    Phys. 18, 1950). Directions with lambda_k = 0, which no query has, are left as they are.

    Parameters
    ----------
    eigenvalues : Tensor (D,)
        lambda_k.
    batch : Moments or Tokens
        Of R runs, B contexts.

    Returns
    -------
    Tensor (R, B, D, D) or None
    """
    if batch.query is None:
        return None
    turned = batch.query if batch.rotation is None else batch.rotation.mT @ batch.query @ batch.rotation
    seen = eigenvalues > 0
    inverse = torch.where(seen, eigenvalues.where(seen, torch.ones_like(eigenvalues)).rsqrt(), 0.0)
    given = inverse[:, None] * turned * inverse + torch.diag_embed((~seen).to(turned.dtype))
    values, vectors = torch.linalg.eigh(given)
    return (vectors * values.clamp_min(0).sqrt()[..., None, :]) @ vectors.mT
