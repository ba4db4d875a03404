"""Exponents of the reduced linear model on power-law spectra (arXiv 2510.01098; derived in `theory.symbolic`)."""

from __future__ import annotations

import dataclasses

from theory.results import Result
from theory.spectra import Spectrum


@dataclasses.dataclass(frozen=True)
class Exponents(Result):
    """Exponents alpha of loss ~ x^-alpha in the RRS setting at infinite context; ``None`` off the power laws.

    Parameters
    ----------
    depth_tied : float or None
        beta: the tied optimum against depth.
    depth_untied : float or None
        2 beta: the untied floor against depth.
    time : float or None
        beta / (2 + beta): loss against time at large depth.
    compute : float or None
        beta / (3 + beta): loss against compute C = L t at the best split.
    """

    depth_tied: float | None
    depth_untied: float | None
    time: float | None
    compute: float | None


def exponents(spectrum: Spectrum) -> Exponents:
    """Return the exponents that the spectrum's source exponent beta fixes; all ``None`` without one."""
    beta = spectrum.source
    if beta is None:
        return Exponents(None, None, None, None)
    return Exponents(beta, 2 * beta, beta / (2 + beta), beta / (3 + beta))
