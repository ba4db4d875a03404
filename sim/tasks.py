"""Contexts drawn from a :class:`theory.Task`: token batches, or the moments that are all a linear model sees."""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
from torch import Tensor

from sim.config import TaskConfig
from sim.covariates import white_tokens
from sim.randomness import Source


class Batch:
    """Tensors with axes (run, context, …), or None; splits along the context axis."""

    def split(self, parts: int) -> list[Self]:
        """Return the batch in at most ``parts`` pieces of nearly equal size, none empty."""
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        pieces: dict[str, list[Tensor | None]] = {}
        for name in names:
            value = getattr(self, name)
            parts = parts if value is None else min(parts, value.shape[1])
            pieces[name] = [None] * parts if value is None else list(value.tensor_split(parts, dim=1))
        return [type(self)(**{name: pieces[name][i] for name in names}) for i in range(parts)]


@dataclasses.dataclass(frozen=True)
class Moments(Batch):
    """What a linear model sees of a context; R runs, B contexts.

    Parameters
    ----------
    task : Tensor (R, B, D)
        w = O (sqrt(omega) * coefficients).
    rotation : Tensor (R, B, D, D) or None
        O, None for the identity.
    empirical : Tensor (R, B, D, D)
        Sigma_hat = X^T X / P; the population Sigma for an infinite context.
    noise : Tensor (R, B, D) or None
        X^T epsilon / P.
    query : Tensor (R, B, D, D) or None
        E[x x^T] of a query of this context, where it shares something with the context; None for Sigma.
    """

    task: Tensor
    rotation: Tensor | None
    empirical: Tensor
    noise: Tensor | None
    query: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Tokens(Batch):
    """Contexts as tokens; R runs, B contexts, P context tokens, Q query tokens.

    Parameters
    ----------
    covariates : Tensor (R, B, P + Q, D)
        x, the context's first.
    labels : Tensor (R, B, P)
        y = w·x + noise of the context tokens.
    targets : Tensor (R, B, Q)
        w·x of the query tokens, without noise.
    rotation : Tensor (R, B, D, D) or None
        O, None for the identity. Models do not see it; probes do.
    query : Tensor (R, B, D, D) or None
        E[x x^T] of a query of this context, None for Sigma. Models do not see it; probes do.
    """

    covariates: Tensor
    labels: Tensor
    targets: Tensor
    rotation: Tensor | None = None
    query: Tensor | None = None


class ContextSampler:
    """Draws contexts of a task on the source's device.

    Haar rotations are products of Householder reflections of Gaussian vectors, the orthogonal factor that a QR
    decomposition of a Gaussian matrix would give, with its signs fixed (Stewart, SIAM J. Numer. Anal. 17, 1980).
    Sigma_hat of Gaussian covariates comes from Bartlett's triangular factor, so that no tokens are drawn where none
    are seen; other laws (:mod:`sim.covariates`) draw their tokens.

    Parameters
    ----------
    config : TaskConfig
        The task.
    device, dtype
        Of the constants; the same as the sources'.
    """

    def __init__(self, config: TaskConfig, device: torch.device, dtype: torch.dtype) -> None:
        spectrum = config.spectrum.build()
        self.config = config
        self.dim = spectrum.dim
        self._root_eigenvalues = torch.tensor(spectrum.eigenvalues, device=device).sqrt().to(dtype)
        self.eigenvalues = torch.tensor(spectrum.eigenvalues, device=device, dtype=dtype)
        self._root_power = torch.tensor(spectrum.task_power, device=device).sqrt().to(dtype)
        flat = bool((spectrum.eigenvalues == spectrum.eigenvalues[0]).all())
        flat = flat and bool((spectrum.task_power == spectrum.task_power[0]).all())
        # Gaussian tasks on an isotropic spectrum look the same after any rotation; tokens made of signs do not.
        flat = flat and (config.covariates != "signs" or config.context is None)
        self.rotates = config.setting == "rrs" and not (flat and config.coefficients == "normal")

    def moments(self, source: Source, batch: int) -> Moments:
        """Return ``batch`` contexts a run as moments."""
        context = self.config.context
        by_bartlett = context is not None and self.config.covariates == "gaussian"
        gaussian = source.normal(batch, self.dim, self.dim) if self.rotates or by_bartlett else None
        rotation = haar(gaussian) if self.rotates and gaussian is not None else None
        task = self._rotated(self._coefficients(source, batch), rotation)
        # Rows of the factor F with Sigma_hat = F F^T, still in the eigenbasis.
        query = None
        if context is None:
            factor = torch.diag_embed(self._root_eigenvalues).expand(source.runs, batch, -1, -1)
        elif by_bartlett:
            assert gaussian is not None
            factor = self._root_eigenvalues[:, None] * bartlett(source, gaussian, context)
        else:
            white, given = white_tokens(self.config, self.dim, source, batch, context)
            factor = self._root_eigenvalues[:, None] * white.mT / context**0.5
            query = self._query(given, rotation)
        if rotation is not None:
            factor = rotation @ factor
        noise = None
        if self.config.label_noise and context is not None:
            scale = (self.config.label_noise / context) ** 0.5
            noise = _apply(factor, source.normal(batch, factor.shape[-1])) * scale
        return Moments(task, rotation, factor @ factor.mT, noise, query)

    def tokens(self, source: Source, batch: int) -> Tokens:
        """Return ``batch`` contexts a run as tokens."""
        context = self.config.context
        assert context is not None
        rotation = haar(source.normal(batch, self.dim, self.dim)) if self.rotates else None
        task = self._rotated(self._coefficients(source, batch), rotation)
        white, given = white_tokens(self.config, self.dim, source, batch, context + self.config.queries)
        x = white * self._root_eigenvalues
        if rotation is not None:
            x = x @ rotation.mT
        clean = _apply(x, task)
        labels = clean[..., :context]
        if self.config.label_noise:
            labels = labels + self.config.label_noise**0.5 * source.normal(batch, context)
        return Tokens(x, labels, clean[..., context:], rotation, self._query(given, rotation))

    def _query(self, given: Tensor | None, rotation: Tensor | None) -> Tensor | None:
        """Return O Lambda^(1/2) C Lambda^(1/2) O^T for the covariance C of z given the context; None for None."""
        if given is None:
            return None
        query = self._root_eigenvalues[:, None] * given * self._root_eigenvalues
        return query if rotation is None else rotation @ query @ rotation.mT

    def _coefficients(self, source: Source, batch: int) -> Tensor:
        draw = source.normal if self.config.coefficients == "normal" else source.signs
        return draw(batch, self.dim) * self._root_power

    @staticmethod
    def _rotated(vectors: Tensor, rotation: Tensor | None) -> Tensor:
        return vectors if rotation is None else _apply(rotation, vectors)


def haar(gaussian: Tensor) -> Tensor:
    """Return Haar orthogonal matrices from the lower triangles (diagonal included) of Gaussian ones.

    Parameters
    ----------
    gaussian : Tensor (..., D, D)
        Independent N(0, 1) entries; the strict upper triangle is not read.

    Returns
    -------
    Tensor (..., D, D)
    """
    lower = gaussian.tril()
    first = gaussian.diagonal(dim1=-2, dim2=-1)  # (..., D): leading entry of each reflected vector
    sign = torch.ones_like(first).copysign(first)
    norm = lower.square().sum(-2).sqrt()
    # A vector of norm zero, which float32 draws about once in 10^7, has no reflection: it is left as it is.
    reflected = norm > 0
    pivot = torch.where(reflected, first + norm * sign, 1.0)
    scales = torch.where(reflected, pivot / (norm * sign), 0.0)
    product = torch.linalg.householder_product(lower / pivot[..., None, :], scales)
    # R's diagonal is -sign * norm; Haar measure needs it positive (Mezzadri, Notices AMS 54, 2007).
    return product * -sign[..., None, :]


def bartlett(source: Source, gaussian: Tensor, context: int) -> Tensor:
    """Return A with A A^T distributed as Z^T Z / P for P x D Gaussian Z: lower trapezoidal, chi diagonal.

    Parameters
    ----------
    source : Source
        For the chi variables.
    gaussian : Tensor (R, B, D, D)
        Its strict upper triangle is read, transposed.
    context : int
        P, of any size against D.

    Returns
    -------
    Tensor (R, B, D, min(D, P))
    """
    dim = gaussian.shape[-1]
    columns = min(dim, context)
    factor = gaussian.mT.tril(-1)[..., :columns]
    freedom = context - torch.arange(columns)
    diagonal = source.chi(freedom, gaussian.shape[1])
    factor.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    return factor / context**0.5


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Return matrices (..., m, n) times vectors (..., n)."""
    return (matrices @ vectors[..., None]).squeeze(-1)
