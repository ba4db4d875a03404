"""Capacity and source of measured data: eigenvalues freed of sampling bias, power laws fitted where they hold.

Sample eigenvalues are spread out (Marchenko and Pastur 1967): the first are too large, the last too small. The bias in
log lambda is found by drawing Gaussian samples of the same size from the current estimate and comparing, and taken
away until nothing changes (iterated bootstrap). The signal s_k = lambda_k omega_k comes from least squares, less what
label noise alone would give. Both laws are fitted on the longest run of modes on which log lambda against log k is
straight within its sampling error, so that a bent head or tail stays out. Noise modes, of about one variance, make a
plateau somewhere in the sorted eigenvalues and push all modes after it to higher k: where leaving out such a run, and
counting on without it, gives a longer straight run, that is done.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from theory.checks import LARGEST_REAL, FloatArray, integer, real, vector
from theory.results import Result, axes_or_new
from theory.sampling_bias import fall_of_equal_eigenvalues, redrawn, without_sampling_bias
from theory.straight_runs import LEAST_BINS, LEAST_RATIO, bin_edges, kept_modes, line, straight_window

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# A straight run over less than this share of log k is an accident, or the noise itself.
LEAST_SHARE = 0.5
# Samples drawn anew to see what the choice of modes and the sampling error do to the capacity.
REDRAWN = 12
# A sample of fewer rows than this times the modes has no usable least-squares task.
ROWS_PER_MODE = 1.2


@dataclasses.dataclass(frozen=True, eq=False)
class SpectrumEstimate(Result):
    """What samples say about their spectrum.

    Attributes
    ----------
    samples, dim : int
        Rows and columns; ``samples`` 0 where eigenvalues came without samples.
    raw, eigenvalues : arrays of shape (dim,)
        Sample eigenvalues, descending, and the same freed of sampling bias.
    signal : array of shape (dim,) or None
        lambda_k omega_k with the share of label noise taken away (may be negative where there is none).
    noise_variance : float
        Variance of the labels' noise; NaN without labels.
    capacity, source : float
        nu and beta; NaN where the data do not determine them.
    capacity_interval, source_interval : (low, high)
        At ``level``, from the sampling error, the spread over windows or over samples drawn anew, whichever is larger,
        and, for the source, the scatter of the task.
    window : (first, last)
        Modes, counted from 1, on which the power laws were fitted; (0, 0) if there are none.
    left_out : (first, last)
        Run of noise modes inside the window that was left out of the fit and of the count; (0, 0) if there is none.
    level : float
    status : str
        Sentences: what was found, and why something was not.
    """

    samples: int
    dim: int
    raw: FloatArray
    eigenvalues: FloatArray
    signal: FloatArray | None
    noise_variance: float
    capacity: float
    capacity_interval: tuple[float, float]
    source: float
    source_interval: tuple[float, float]
    window: tuple[int, int]
    left_out: tuple[int, int]
    level: float
    status: str

    def __str__(self) -> str:
        def shown(name: str, value: float, interval: tuple[float, float]) -> str:
            if math.isnan(value):
                return f"{name} undetermined"
            return f"{name} {value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"

        return (
            f"{self.dim} modes from {self.samples or 'no'} samples: "
            f"{shown('capacity', self.capacity, self.capacity_interval)}, "
            f"{shown('source', self.source, self.source_interval)}. {self.status}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a mode: mode, raw, eigenvalue, signal, in_window."""
        import pandas as pd

        mode = np.arange(1, self.dim + 1)
        inside = (mode >= self.window[0]) & (mode <= self.window[1])
        inside &= (mode < self.left_out[0]) | (mode > self.left_out[1])
        signal = np.full(self.dim, np.nan) if self.signal is None else self.signal
        return pd.DataFrame(
            {"mode": mode, "raw": self.raw, "eigenvalue": self.eigenvalues, "signal": signal, "in_window": inside}
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw raw and corrected eigenvalues, the signal, and the fitted law over its window, on log axes."""
        axes = axes_or_new(ax)
        mode = np.arange(1, self.dim + 1)
        axes.loglog(mode, np.where(self.raw > 0, self.raw, np.nan), color="0.7", label="sample eigenvalues")
        axes.loglog(mode, np.where(self.eigenvalues > 0, self.eigenvalues, np.nan), label="bias corrected")
        if self.signal is not None:
            axes.loglog(mode, np.where(self.signal > 0, self.signal, np.nan), ".", ms=3, label="signal")
        if not math.isnan(self.capacity):
            shown = mode[self.to_frame()["in_window"].to_numpy()]
            skipped = max(0, self.left_out[1] - self.left_out[0] + 1) if self.left_out[1] else 0
            k = np.where(shown > self.left_out[1], shown - skipped, shown)
            level = np.exp(np.mean(np.log(self.eigenvalues[shown - 1]) + self.capacity * np.log(k)))
            label = f"$k^{{-{self.capacity:.2f}}}$"
            axes.loglog(shown, level * k**-self.capacity, "k--", lw=1, label=label)
        axes.set(xlabel="mode k", ylabel="eigenvalue, signal")
        axes.legend(frameon=False, fontsize="small")
        return axes


def estimate_spectrum(X: npt.ArrayLike, y: npt.ArrayLike | None = None, *, level: float = 0.95) -> SpectrumEstimate:
    """Return capacity and source of samples, with intervals.

    Parameters
    ----------
    X : array of shape (n, dim)
        One row a sample; the second moment X^T X / n is uncentred, as everywhere here.
    y : array of shape (n,), optional
        Labels, for the source.
    level : float
        Of the intervals, in (0, 1).

    Raises
    ------
    ValueError
        If ``X`` is not a finite matrix, ``y`` does not match it, or ``level`` is outside (0, 1).
    """
    rows, labels = checked_samples(X, y)
    n, dim = rows.shape
    if not rows.any():
        raise ValueError("X is all zero: must have a direction that varies")
    level = real("level", level, above=0, below=1)
    raw, basis = _sample_modes(rows)
    eigenvalues = without_sampling_bias(raw, n)
    # Beyond half the rows the sample's modes say next to nothing one by one.
    last = max(1, min(dim, n // 2))
    signal, noise, about_task = None, math.nan, "No labels, so no source."
    if labels is not None:
        signal, noise, about_task = _signal(rows, labels, raw, basis)
    return _fit(n, raw, eigenvalues, signal, noise, last, level, about_task)


def estimate_from_eigenvalues(
    eigenvalues: npt.ArrayLike,
    signal: npt.ArrayLike | None = None,
    *,
    samples: int | None = None,
    level: float = 0.95,
) -> SpectrumEstimate:
    """Return capacity (and source) of given eigenvalues, with intervals.

    Parameters
    ----------
    eigenvalues : array of shape (dim,)
        In any order.
    signal : array of shape (dim,), optional
        lambda_k omega_k, each mode's own, without noise.
    samples : int, optional
        Rows behind the eigenvalues, whose sampling bias is then taken away; without it they are taken as exact.
    level : float
        Of the intervals, in (0, 1).

    Raises
    ------
    ValueError
        If an entry is negative or not finite, lengths differ, all are zero, or ``level`` or ``samples`` is off limits.
    """
    level = real("level", level, above=0, below=1)
    n = 0 if samples is None else integer("samples", samples, minimum=2)
    values = vector("eigenvalues", np.asarray(eigenvalues, dtype=np.float64), minimum=0.0)
    order = np.argsort(-values, kind="stable")
    values = values[order]
    if values[0] == 0:
        raise ValueError("eigenvalues are all zero: must have a positive one")
    strength = None
    if signal is not None:
        strength = vector("signal", np.asarray(signal, dtype=np.float64), minimum=0.0)
        if strength.size != values.size:
            raise ValueError(f"signal has {strength.size} entries: must be as many as eigenvalues, {values.size}")
        strength = strength[order]
    corrected = without_sampling_bias(values, n) if n else values
    last = max(1, min(values.size, n // 2)) if n else values.size
    about = "No labels, so no source." if strength is None else ""
    return _fit(n, values, corrected, strength, 0.0 if strength is not None else math.nan, last, level, about)


def checked_samples(X: npt.ArrayLike, y: npt.ArrayLike | None) -> tuple[FloatArray, FloatArray | None]:
    """Return samples and labels as float64 arrays.

    Raises
    ------
    ValueError
        If ``X`` is not a finite matrix or ``y`` does not match it.
    """
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"X has shape {rows.shape}: must be (samples, dim), both at least 1")
    if not np.all(np.abs(rows) <= LARGEST_REAL):
        raise ValueError(f"X has entries that are not finite or beyond {LARGEST_REAL:g}: must be finite, and smaller")
    if y is None:
        return rows, None
    labels = vector("y", np.asarray(y, dtype=np.float64))
    if labels.size != rows.shape[0]:
        raise ValueError(f"y has {labels.size} entries: must be as many as X has rows, {rows.shape[0]}")
    return rows, labels


def _sample_modes(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues of X^T X / n, descending, and its eigenvectors as columns."""
    values, vectors = np.linalg.eigh(rows.T @ rows / rows.shape[0])
    return np.clip(values[::-1], 0.0, None), vectors[:, ::-1]


def _signal(
    rows: FloatArray, labels: FloatArray, raw: FloatArray, basis: FloatArray
) -> tuple[FloatArray | None, float, str]:
    """Return lambda_k omega_k less its noise share, the noise variance, and a sentence."""
    n, dim = rows.shape
    if n < ROWS_PER_MODE * dim:
        return None, math.nan, f"{n} rows are too few for least squares in {dim} dimensions: no source."
    task = np.linalg.lstsq(rows, labels, rcond=None)[0]
    noise = float(np.sum((labels - rows @ task) ** 2)) / (n - dim)
    return raw * (basis.T @ task) ** 2 - noise / n, noise, ""


def _fit(
    n: int,
    raw: FloatArray,
    eigenvalues: FloatArray,
    signal: FloatArray | None,
    noise: float,
    last: int,
    level: float,
    about_task: str,
) -> SpectrumEstimate:
    """Return the estimate with both laws fitted on the longest straight window up to mode ``last``."""
    nothing = (math.nan, math.nan)
    capacity, capacity_interval, source, source_interval, window = math.nan, nothing, math.nan, nothing, (0, 0)
    sentences = []
    kept, left_out = kept_modes(eigenvalues, n, last)
    found = straight_window(eigenvalues[kept], n, kept.size)
    if found is None:
        sentences.append("No run of modes looks like a power law.")
    elif math.log(found[1] / found[0]) < LEAST_SHARE * math.log(kept.size):
        sentences.append(f"The longest straight run, modes {found[0]} to {found[1]}, is too short for a power law.")
    elif _interval(found[2], found[3], found[4], level)[0] <= 0:
        sentences.append(f"Modes {found[0]} to {found[1]} do not fall: flat, no power law.")
    elif n and math.log(raw[kept[0]] / raw[kept[found[1] - 1]]) <= fall_of_equal_eigenvalues(raw.size, n, found[1]):
        sentences.append("The eigenvalues fall by no more than sampling alone would make them.")
    else:
        first, end, capacity, error, freedom = found
        if n:
            error = max(error, _redrawn_error(raw, eigenvalues, n, last, capacity))
        window = (int(kept[first - 1]) + 1, int(kept[end - 1]) + 1)
        capacity_interval = _interval(capacity, error, freedom, level)
        sentences.append(f"Power law on modes {window[0]} to {window[1]}.")
        if left_out[1]:
            sentences.append(f"Modes {left_out[0]} to {left_out[1]} look like noise and were left out.")
        if signal is not None:
            source, error, freedom, complaint = _source(signal[kept], noise, n, first, end, capacity, error)
            if complaint:
                about_task = complaint
            else:
                source_interval = _interval(source, error, freedom, level)
    if about_task:
        sentences.append(about_task)
    return SpectrumEstimate(
        samples=n,
        dim=raw.size,
        raw=raw,
        eigenvalues=eigenvalues,
        signal=signal,
        noise_variance=noise,
        capacity=capacity,
        capacity_interval=capacity_interval,
        source=source,
        source_interval=source_interval,
        window=window,
        left_out=left_out,
        level=level,
        status=" ".join(sentences),
    )


def _redrawn_error(raw: FloatArray, eigenvalues: FloatArray, n: int, last: int, capacity: float) -> float:
    """Return the root mean square change of the capacity over other samples, all choices of modes made anew."""
    changes = []
    for other in redrawn(raw, eigenvalues, n, REDRAWN):
        kept, _ = kept_modes(other, n, last)
        found = straight_window(other[kept], n, kept.size)
        if found is not None:
            changes.append(found[2] - capacity)
    return float(np.sqrt(np.mean(np.square(changes)))) if changes else 0.0


def _interval(value: float, error: float, freedom: float, level: float) -> tuple[float, float]:
    from scipy.stats import t

    half = float(t.ppf((1 + level) / 2, freedom)) * error
    return value - half, value + half


def _source(
    signal: FloatArray, noise: float, n: int, first: int, last: int, capacity: float, capacity_error: float
) -> tuple[float, float, float, str]:
    """Return source, its error, degrees of freedom, and a complaint if it is not determined.

    log of the mean signal in a bin against log k has slope -(nu beta + 1). A Gaussian task scatters each mode's signal
    by sqrt(2) of itself, and noise adds 4 s sigma^2 / n + 2 sigma^4 / n^2 to its variance.
    """
    edges = bin_edges(first, last)
    floor = noise / n if n else 0.0
    centre, height, error = [], [], []
    for a, b in itertools.pairwise(edges):
        part = signal[a - 1 : b - 1]
        mean = float(part.mean())
        scatter = 2 * max(mean, 0.0) ** 2 + 4 * max(mean, 0.0) * floor + 2 * floor**2
        deviation = math.sqrt(scatter / part.size)
        # Log of a mean of m squares of Gaussians is low by about 1/m; bins lost in noise say nothing.
        if mean > 2 * math.sqrt(2 / part.size) * floor:
            centre.append(float(np.log(np.arange(a, b)).mean()))
            height.append(math.log(mean) + 1 / part.size)
            error.append(deviation / mean)
    if len(centre) < LEAST_BINS or math.exp(centre[-1] - centre[0]) < LEAST_RATIO / 2:
        return math.nan, math.nan, math.nan, "The signal does not stand out of the noise over enough modes: no source."
    slope, slope_error, chi2 = line(np.array(centre), np.array(height), np.array(error))
    freedom = len(centre) - 2
    # Where the bins scatter more than a Gaussian task explains, they say so themselves.
    slope_error *= math.sqrt(max(1.0, chi2 / freedom))
    source = (-slope - 1) / capacity
    return source, math.hypot(slope_error, source * capacity_error) / abs(capacity), float(freedom), ""


def well_determined(estimate: SpectrumEstimate) -> dict[str, Any]:
    """Return the exponents worth carrying: those whose interval is narrower than the value itself and positive."""
    found = {}
    for name in ("capacity", "source"):
        value, (low, high) = getattr(estimate, name), getattr(estimate, f"{name}_interval")
        if value > 0 and high - low < value:
            found[name] = float(value)
    return found
