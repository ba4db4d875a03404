"""Covariance spectra: eigenvalues lambda_k and task power omega_k, all that linear theory needs of the data."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, integer, real, reject, vector
from theory.results import Result, axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Eigenvalues of a measured covariance below -this times the largest are a wrong input, not rounding.
NEGATIVE_EIGENVALUE_TOLERANCE = 1e-10
# Averages over contexts take fourth powers.
LARGEST_EIGENVALUE = 1e70
# A power law that spans more would leave float64.
LARGEST_DECADES = 300


@dataclasses.dataclass(frozen=True, eq=False)
class Spectrum(Result):
    """Eigenvalues and task power of a regression problem, in the covariance eigenbasis; immutable.

    Parameters
    ----------
    eigenvalues : array of shape (dim,)
        lambda_k >= 0; sorted descending on construction (``task_power`` is sorted along).
    task_power : array of shape (dim,), optional
        omega_k = E[w_k^2] >= 0; equal for all modes if omitted.
    capacity, source : float, optional
        nu and beta where the spectrum is the power law lambda_k = k^-nu, lambda_k omega_k ∝ k^-(nu beta + 1); for
        measured spectra, the exponents fitted to it.
    name : str
        Shown in output.
    normalise : bool, keyword only
        Scale ``task_power`` so that sum_k lambda_k omega_k = 1, the loss of predicting zero (default).

    Raises
    ------
    ValueError
        If an entry is negative or not finite, an eigenvalue is beyond 1e70, lengths differ, or
        sum_k lambda_k omega_k is not positive.
    """

    eigenvalues: FloatArray
    task_power: FloatArray = None  # type: ignore[assignment]
    capacity: float | None = None
    source: float | None = None
    name: str = "custom"
    normalise: dataclasses.InitVar[bool] = dataclasses.field(default=True, kw_only=True)

    def __post_init__(self, normalise: bool) -> None:
        eigenvalues = vector("eigenvalues", self.eigenvalues, minimum=0.0)
        if eigenvalues.max() > LARGEST_EIGENVALUE:
            raise ValueError(f"eigenvalues reach {eigenvalues.max():g}: must be at most {LARGEST_EIGENVALUE:g}")
        power = (
            np.ones_like(eigenvalues) if self.task_power is None else vector("task_power", self.task_power, minimum=0.0)
        )
        if power.size != eigenvalues.size:
            raise ValueError(f"task_power has {power.size} entries: must be as many as eigenvalues, {eigenvalues.size}")
        order = np.argsort(-eigenvalues, kind="stable")
        eigenvalues, power = eigenvalues[order], power[order]
        with np.errstate(over="ignore"):
            total = float(np.sum(eigenvalues * power))
        if not (total > 0 and np.isfinite(total)):
            raise ValueError(f"sum of eigenvalues * task_power is {total:g}: must be positive and finite")
        if normalise:
            power = power / total
        for array in (eigenvalues, power):
            array.setflags(write=False)
        object.__setattr__(self, "eigenvalues", eigenvalues)
        object.__setattr__(self, "task_power", power)

    @property
    def dim(self) -> int:
        """Covariate dimension D."""
        return int(self.eigenvalues.size)

    @property
    def signal(self) -> FloatArray:
        """lambda_k omega_k, shape (dim,): each mode's share of the loss of predicting zero."""
        return self.eigenvalues * self.task_power

    @property
    def total(self) -> float:
        """sum_k lambda_k omega_k, the loss of predicting zero (1 when normalised)."""
        return float(self.signal.sum())

    @property
    def digest(self) -> str:
        """A hash of the numbers, equal exactly when two spectra are equal."""
        return hashlib.sha256(self.eigenvalues.tobytes() + self.task_power.tobytes()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spectrum) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        largest, smallest = self.eigenvalues[0], self.eigenvalues[-1]
        return f"Spectrum {self.name}: dim {self.dim}, eigenvalues {largest:.4g} … {smallest:.4g}"

    @classmethod
    def power_law(cls, dim: int, capacity: float, source: float) -> Spectrum:
        """Return lambda_k = k^-capacity with lambda_k omega_k ∝ k^-(capacity source + 1), normalised to sum 1.

        Parameters
        ----------
        dim : int
            Number of modes, D.
        capacity : float
            nu > 0.
        source : float
            beta > 0; the tail sum over j > k of lambda_j omega_j falls like k^-(nu beta).

        Raises
        ------
        ValueError
            If ``dim`` < 1, an exponent is not positive, or the smallest eigenvalue would be below 1e-300.
        """
        dim = integer("dim", dim)
        capacity = real("capacity", capacity, above=0)
        source = real("source", source, above=0)
        if capacity * np.log10(dim) > LARGEST_DECADES:
            most = LARGEST_DECADES / np.log10(dim)
            raise reject("capacity", capacity, f"at most {most:.6g} at dim={dim}, so that no eigenvalue underflows")
        k = np.arange(1, dim + 1, dtype=np.float64)
        power = k ** (capacity - capacity * source - 1)
        return cls(k**-capacity, power, capacity, source, f"power law (capacity {capacity:g}, source {source:g})")

    @classmethod
    def isotropic(cls, dim: int) -> Spectrum:
        """Return lambda_k = 1, omega_k = 1/dim.

        Raises
        ------
        ValueError
            If ``dim`` < 1.
        """
        return cls(np.ones(integer("dim", dim)), name="isotropic")

    @classmethod
    def exponential(cls, dim: int, rate: float, *, task_power: npt.ArrayLike | None = None) -> Spectrum:
        """Return lambda_k = exp(-rate (k - 1)); task power equal for all modes unless given.

        Raises
        ------
        ValueError
            If ``dim`` < 1 or ``rate`` <= 0.
        """
        dim, rate = integer("dim", dim), real("rate", rate, above=0)
        eigenvalues = np.exp(-rate * np.arange(dim))
        return cls(eigenvalues, _optional(task_power), name=f"exponential (rate {rate:g})")

    @classmethod
    def spiked(
        cls, dim: int, spikes: Sequence[float], *, bulk: float = 1.0, task_power: npt.ArrayLike | None = None
    ) -> Spectrum:
        """Return a flat bulk with a few larger eigenvalues: ``spikes`` first, then ``bulk`` for the rest.

        Raises
        ------
        ValueError
            If there are more spikes than ``dim``, or a value is negative.
        """
        dim = integer("dim", dim)
        high = vector("spikes", spikes, minimum=0.0)
        if high.size > dim:
            raise reject("spikes", list(spikes), f"at most dim={dim} values")
        bulk = real("bulk", bulk, minimum=0)
        eigenvalues = np.concatenate([high, np.full(dim - high.size, bulk)])
        return cls(eigenvalues, _optional(task_power), name=f"spiked ({high.size} over a bulk of {bulk:g})")

    @classmethod
    def log_uniform(cls, dim: int, decades: float, *, task_power: npt.ArrayLike | None = None) -> Spectrum:
        """Return eigenvalues from 1 down to 10^-decades, evenly spaced in the logarithm.

        Raises
        ------
        ValueError
            If ``dim`` < 1 or ``decades`` <= 0.
        """
        dim, decades = integer("dim", dim), real("decades", decades, above=0)
        return cls(np.logspace(0, -decades, dim), _optional(task_power), name=f"log-uniform ({decades:g} decades)")

    @classmethod
    def from_covariance(cls, covariance: npt.ArrayLike, task: npt.ArrayLike | None = None) -> Spectrum:
        """Return the spectrum of a covariance matrix.

        Parameters
        ----------
        covariance : array of shape (dim, dim)
            Symmetric, positive semi-definite up to rounding.
        task : array of shape (dim,), optional
            A regression vector w in the original basis; omega_k is its squared projection on eigenvector k (summed
            within a repeated eigenvalue and shared equally there, since the eigenbasis is arbitrary). Equal if omitted.

        Raises
        ------
        ValueError
            If the matrix is not square, finite, symmetric and positive semi-definite, or ``task`` has another length.
        """
        matrix = np.asarray(covariance, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise ValueError(f"covariance has shape {matrix.shape}: must be square and not empty")
        if not np.all(np.isfinite(matrix)):
            raise ValueError("covariance has entries that are not finite: must be finite")
        scale = float(np.abs(matrix).max())
        if np.abs(matrix - matrix.T).max() > NEGATIVE_EIGENVALUE_TOLERANCE * scale:
            raise ValueError("covariance is not symmetric: must equal its transpose")
        eigenvalues, basis = np.linalg.eigh((matrix + matrix.T) / 2)
        if eigenvalues[0] < -NEGATIVE_EIGENVALUE_TOLERANCE * max(scale, abs(eigenvalues[-1])):
            raise ValueError(f"covariance has the eigenvalue {eigenvalues[0]:g}: must be positive semi-definite")
        eigenvalues = np.clip(eigenvalues, 0.0, None)
        if task is None:
            return cls(eigenvalues, name="from covariance")
        w = vector("task", np.asarray(task, dtype=np.float64))
        if w.size != eigenvalues.size:
            raise ValueError(f"task has {w.size} entries: must be as many as covariance has rows, {eigenvalues.size}")
        power = _share_within_repeats(eigenvalues, (basis.T @ w) ** 2)
        return cls(eigenvalues, power, name="from covariance")

    @classmethod
    def from_samples(cls, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Spectrum:
        """Return the spectrum of the uncentred sample second moment X^T X / n, with the least-squares task of ``y``.

        ``capacity`` and ``source`` are the bias-corrected estimates of `theory.estimate_spectrum`, which also gives
        their intervals, where the samples determine them; the eigenvalues are those of the sample.

        Parameters
        ----------
        X : array of shape (n, dim)
            Covariates, one row a sample.
        y : array of shape (n,), optional
            Labels; the task is the minimum-norm least-squares solution.

        Raises
        ------
        ValueError
            If ``X`` is not a finite matrix or ``y`` does not match it.
        """
        from theory.estimate import checked_samples, estimate_spectrum, well_determined

        rows, labels = checked_samples(X, y)
        task = None if labels is None else np.linalg.lstsq(rows, labels, rcond=None)[0]
        spectrum = cls.from_covariance(rows.T @ rows / rows.shape[0], task)
        fitted = well_determined(estimate_spectrum(rows, labels))
        return dataclasses.replace(spectrum, name=f"from {rows.shape[0]} samples", normalise=True, **fitted)

    def to_dict(self) -> dict[str, Any]:
        """Return name, dim, capacity, source, eigenvalues and task power."""
        return {"dim": self.dim, **super().to_dict()}

    def to_frame(self) -> pd.DataFrame:
        """Return one row a mode: mode (from 1), eigenvalue, task_power, signal."""
        import pandas as pd

        return pd.DataFrame(
            {
                "mode": np.arange(1, self.dim + 1),
                "eigenvalue": self.eigenvalues,
                "task_power": self.task_power,
                "signal": self.signal,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw eigenvalues and signal against the mode number, on log axes."""
        axes = axes_or_new(ax)
        mode = np.arange(1, self.dim + 1)
        axes.loglog(mode, self.eigenvalues, label=r"eigenvalue $\lambda_k$")
        axes.loglog(mode, self.signal, "--", label=r"signal $\lambda_k\omega_k$")
        axes.set(xlabel="mode k", title=self.name)
        axes.legend(frameon=False)
        return axes


def _optional(values: npt.ArrayLike | None) -> Any:
    return None if values is None else np.asarray(values, dtype=np.float64)


def _share_within_repeats(eigenvalues: FloatArray, power: FloatArray) -> FloatArray:
    """Average ``power`` over runs of (numerically) equal eigenvalues, ascending order."""
    gap = 1e-12 * max(float(eigenvalues[-1]), np.finfo(float).tiny)
    starts: Iterable[int] = np.flatnonzero(np.diff(eigenvalues, prepend=-np.inf) > gap)
    edges = [*starts, eigenvalues.size]
    shared = power.copy()
    for low, high in itertools.pairwise(edges):
        shared[low:high] = power[low:high].mean()
    return shared
