"""The in-context regression task: one object that both theory and simulation read."""

from __future__ import annotations

import dataclasses
from typing import Any

from theory.checks import choice, integer, real
from theory.results import Result
from theory.spectra import Spectrum

# Larger spectra are held as compressed measures.
LARGEST_DIM = 1_000_000
SETTINGS = ("rrs", "fs", "iso")


@dataclasses.dataclass(frozen=True)
class Task(Result):
    """How contexts are drawn.

    In each context x = O Lambda^(1/2) z with z ~ N(0, I), labels y = w·x + noise, and w has independent entries of
    mean 0 and variance omega_k in the covariance eigenbasis. The loss is E[(w·x_query - f)^2], without the query's own
    noise.

    Parameters
    ----------
    spectrum : Spectrum
        lambda_k and omega_k. A `SpectralMeasure`, for spectra too large to hold, serves in the setting ``rrs`` at
        infinite context, where only sums over modes matter.
    setting : {"rrs", "fs", "iso"}
        ``rrs``: a fresh Haar rotation O in every context; ``fs``: O = I, the same eigenbasis always;
        ``iso``: all eigenvalues equal one.
    context : int or None
        P, labelled tokens a context; ``None`` is the population covariance (P → inf).
    label_noise : float
        sigma^2 >= 0, the variance of the noise on the context labels.

    Raises
    ------
    ValueError
        For an unknown setting, ``context`` < 1, negative noise, or ``iso`` with unequal eigenvalues.
    """

    spectrum: Spectrum
    setting: str = "rrs"
    context: int | None = None
    label_noise: float = 0.0

    def __post_init__(self) -> None:
        choice("setting", self.setting, SETTINGS)
        if self.context is not None:
            object.__setattr__(self, "context", integer("context", self.context))
        object.__setattr__(self, "label_noise", real("label_noise", self.label_noise, minimum=0))
        if not isinstance(self.spectrum, Spectrum) and (self.setting != "rrs" or self.context is not None):
            raise ValueError(
                f"spectrum={self.spectrum.name!r} of dim {self.spectrum.dim:g}: must have at most {LARGEST_DIM} modes "
                "unless the setting is rrs and the context infinite"
            )
        if self.setting == "iso" and not bool((self.spectrum.eigenvalues == 1).all()):
            raise ValueError(f"spectrum={self.spectrum.name!r}: must have all eigenvalues 1 in the setting 'iso'")

    @property
    def dim(self) -> int:
        """Covariate dimension D."""
        return self.spectrum.dim

    def to_dict(self) -> dict[str, Any]:
        """Return setting, context, label noise and the spectrum."""
        return {
            "setting": self.setting,
            "context": self.context,
            "label_noise": self.label_noise,
            "spectrum": self.spectrum.to_dict(),
        }
