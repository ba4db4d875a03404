"""Where a spectrum is straight on log-log axes: the longest run of modes within its sampling error, noise left out."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray

# A window of modes must span this ratio of k and hold this many modes to carry a power law.
LEAST_RATIO, LEAST_MODES = 4.0, 10
# Windows are straight when the chi^2 of the binned deviations is below its degrees of freedom by this many deviations.
STRAIGHT = 2.5
# A run of noise modes, at most this share of all, is left out when the straight run grows by this factor.
MOST_NOISE, PAYS = 0.25, 1.5
# Bins a factor of e in k, and the least number of bins in a fit.
BINS_PER_E, LEAST_BINS = 4, 4


def bin_edges(first: int, last: int) -> npt.NDArray[np.int64]:
    """Return bin edges, a factor e^(1/BINS_PER_E) apart in k where modes are many, else one mode a bin."""
    count = max(2, math.ceil(BINS_PER_E * math.log((last + 1) / first)) + 1)
    return np.unique(np.rint(np.geomspace(first, last + 1, count)).astype(np.int64))


@functools.lru_cache(maxsize=1024)
def _grid(size: int) -> tuple[npt.NDArray[np.int64], FloatArray, FloatArray]:
    """Return the bin edges of that many modes, modes a bin, and mean log k of each bin."""
    edges = bin_edges(1, size)
    counts = np.diff(edges).astype(np.float64)
    return edges, counts, np.add.reduceat(np.log(np.arange(1, size + 1)), edges[:-1] - 1) / counts


def _bins(log_x: FloatArray, n: int) -> tuple[npt.NDArray[np.int64], FloatArray, FloatArray, FloatArray]:
    """Return bin edges, mean log k, mean log lambda, and its error."""
    edges, counts, centre = _grid(log_x.size)
    height = np.add.reduceat(log_x, edges[:-1] - 1) / counts
    # Relative sampling error of a Gaussian variance; exact eigenvalues have none.
    return edges, centre, height, _floor((math.sqrt(2 / n) if n else 0.0) / np.sqrt(counts))


def kept_modes(eigenvalues: FloatArray, n: int, last: int) -> tuple[npt.NDArray[np.int64], tuple[int, int]]:
    """Return the modes (from 0) to fit, and the run of noise modes (from 1) left out; (0, 0) if that does not pay."""
    last = min(last, int(np.count_nonzero(eigenvalues > eigenvalues[0] * 1e-14)))
    every = np.arange(last)
    plain = straight_window(eigenvalues, n, last)
    span = 1.0 if plain is None else plain[1] / plain[0]
    if last < 2 * LEAST_MODES or span > last / PAYS:
        return every, (0, 0)
    log_x = np.log(eigenvalues[:last])

    def misfit(start: int, length: int) -> float:
        _, centre, height, error = _bins(np.concatenate([log_x[:start], log_x[start + length :]]), n)
        return line(centre, height, error)[2] / max(centre.size - 2, 1)

    most = int(MOST_NOISE * last)
    starts = np.unique(np.geomspace(2, last - 2, 40).astype(int))
    lengths = np.unique(np.geomspace(2, most, 16).astype(int))
    candidates = [(misfit(a, m), a, m) for a in starts for m in lengths if a + m <= last]
    _, a, m = min(candidates)
    for radius in (max(m // 4, 2), max(m // 10, 1), 1):
        around = [
            (misfit(p, q), p, q)
            for p in range(max(1, a - 2 * radius), a + 2 * radius + 1, radius)
            for q in range(max(2, m - 2 * radius), min(most, m + 2 * radius) + 1, radius)
            if p + q <= last
        ]
        _, a, m = min(around)
    kept = np.delete(every, slice(a, a + m))
    found = straight_window(eigenvalues[kept], n, kept.size)
    if found is None or found[1] / found[0] < PAYS * span or not found[0] - 1 <= a < found[1]:
        return every, (0, 0)
    return kept, (int(a) + 1, int(a + m))


def straight_window(eigenvalues: FloatArray, n: int, last: int) -> tuple[int, int, float, float, float] | None:
    """Return first and last mode, slope, its error and degrees of freedom of the longest straight run, or ``None``."""
    positive = eigenvalues > eigenvalues[0] * 1e-14
    last = min(last, int(np.count_nonzero(positive)))
    if last < LEAST_MODES:
        return None
    edges, centre, height, error = _bins(np.log(eigenvalues[:last]), n)
    best: tuple[float, int, int] | None = None
    slopes: dict[tuple[int, int], tuple[float, float]] = {}
    for i in range(centre.size):
        for j in range(i + LEAST_BINS, centre.size + 1):
            if edges[j] / edges[i] < LEAST_RATIO or edges[j] - edges[i] < LEAST_MODES:
                continue
            slope, slope_error, chi2 = line(centre[i:j], height[i:j], error[i:j])
            freedom = j - i - 2
            if chi2 <= freedom + STRAIGHT * math.sqrt(2 * freedom):
                slopes[i, j] = (-slope, slope_error)
                length = float(edges[j] / edges[i])
                if best is None or length > best[0]:
                    best = (length, i, j)
    if best is None:
        return None
    _, i, j = best
    capacity, slope_error = slopes[i, j]
    # Windows about as long, which the data allow as well, say how far the choice matters.
    near = [s for (a, b), (s, _) in slopes.items() if edges[b] / edges[a] > best[0] / 2 and a >= i and b <= j]
    return int(edges[i]), int(edges[j] - 1), capacity, math.hypot(slope_error, float(np.std(near))), float(j - i - 2)


def _floor(error: FloatArray) -> FloatArray:
    """Return errors not below one per cent a bin: what is left of the bias, and of the data's own unevenness."""
    return np.hypot(error, 0.01)


def line(x: FloatArray, y: FloatArray, error: FloatArray) -> tuple[float, float, float]:
    """Return slope, its error and chi^2 of the weighted line through y."""
    weight = error**-2.0
    total = weight.sum()
    x, y = x - (weight @ x) / total, y - (weight @ y) / total
    spread = float(weight @ (x * x))
    slope = float(weight @ (x * y)) / spread
    chi2 = float(weight @ (y - slope * x) ** 2)
    return slope, spread**-0.5, chi2
