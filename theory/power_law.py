"""A power-law spectrum as four numbers, with the prefactor of its loss against the gain and each correction to it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from theory.measure import SpectralMeasure
from theory.spectra import Spectrum

# Eigenvalues of an exact power law are powers of k to rounding.
EXACT = 1e-9


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """nu, beta, A and D of a power-law spectrum, checked."""

    capacity: float
    source: float
    amplitude: float
    dim: float

    @property
    def power(self) -> float:
        """nu beta + 1, the exponent of the signal."""
        return self.capacity * self.source + 1

    def gain_prefactor(self, depth: int) -> float:
        """Return c_L (L → inf for 0): loss = c_L gamma^-beta."""
        beta = self.source
        if depth == 0:
            return self.amplitude / self.capacity * math.gamma(beta) * 2**-beta
        log_ratio = beta * math.log(2 * depth) + math.lgamma(2 * depth + 1) - math.lgamma(2 * depth + 1 + beta)
        return self.gain_prefactor(0) * math.exp(log_ratio)

    def ripple(self, gamma: float) -> float:
        """Return the size, against the law, of the first harmonic of Poisson's sum over k: the error of L → inf.

        Saddle point of k^-p exp(-x k^-nu - 2 pi i k), x = 2 gamma.
        """
        nu, x = self.capacity, 2 * gamma
        k = (nu * x / (2 * math.pi)) ** (1 / (1 + nu))
        damping = (1 + nu) * x * k**-nu * math.cos(math.pi * nu / (2 * (1 + nu)))
        width = math.sqrt(2 * math.pi / (nu * (nu + 1) * x * k ** (-nu - 2)))
        return 2 * k**-self.power * width * math.exp(-damping) * self.amplitude / self._law(gamma, 0)

    def cutoff(self, gamma: float) -> float:
        """Return the share of the law that lies beyond mode D."""
        if math.isinf(self.dim):
            return 0.0
        tail = (self.dim + 0.5) ** (1 - self.power) / (self.power - 1)
        return tail * self.amplitude / self._law(gamma, 0)

    def missing(self, gamma: float) -> float:
        """Return by how much the law exceeds the loss without the modes beyond D, relative to that loss."""
        share = self.cutoff(gamma)
        return share / (1 - share) if share < 1 else math.inf

    def top_modes(self, gamma: float, depth: int) -> float:
        """Return the loss, against the law, of the modes whose residual has changed sign or is about to (gamma ~ L)."""
        if depth == 0 or gamma <= 0:
            return 0.0
        last = max(1, math.ceil((gamma / depth) ** (1 / self.capacity)))
        k = np.arange(1.0, min(last, 10_000) + 1)
        terms = k**-self.power * np.abs(1 - gamma * k**-self.capacity / depth) ** (2 * depth)
        return self.amplitude * float(terms.sum()) / self._law(gamma, depth)

    def _law(self, gamma: float, depth: int) -> float:
        return self.gain_prefactor(depth) * gamma**-self.source


def is_power_law(spectrum: Spectrum | SpectralMeasure) -> bool:
    """Return whether the eigenvalues are k^-nu themselves; measured spectra only carry fitted exponents."""
    if spectrum.capacity is None or spectrum.source is None:
        return False
    if isinstance(spectrum, SpectralMeasure):
        return spectrum.amplitude is not None
    expected = np.array([1.0, spectrum.dim]) ** -spectrum.capacity
    return bool(np.allclose(spectrum.eigenvalues[[0, -1]], expected, rtol=EXACT, atol=0))


def power_law_of(spectrum: Spectrum | SpectralMeasure) -> PowerLaw:
    """Return nu, beta, A and D of a spectrum that is a power law.

    Raises
    ------
    ValueError
        If it is none: its ``capacity`` or ``source`` is ``None``.
    """
    nu, beta = spectrum.capacity, spectrum.source
    if nu is None or beta is None or not is_power_law(spectrum):
        raise ValueError(f"spectrum={spectrum.name!r}: must be an exact power law for laws with prefactors")
    # The first mode has lambda = 1, so its signal is A.
    amplitude = float(spectrum.signal[0]) if isinstance(spectrum, Spectrum) else spectrum.amplitude
    assert amplitude is not None
    return PowerLaw(nu, beta, amplitude, float(spectrum.dim))
