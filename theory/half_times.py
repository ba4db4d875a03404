"""When each mode is half learned, in every setting.

The error along an eigen-direction, lambda_k E[(O^T e)_k^2], starts at lambda_k omega_k; the mode is half learned when
half of that is left. (At finite context other modes leak into it; :mod:`sim.probes.modes` measures the same.)

- FS, population: each mode on its own clock, t = ln 2/(4 lambda^3 omega) at L = 1 and
  L^2 (2^((L-1)/L) - 1)/(4 (L-1) lambda^3 omega) beyond: the order is that of lambda^3 omega.
- RRS and ISO: one gain serves all, mode k being half learned at gamma_k = (L/lambda_k)(1 - 2^(-1/(2L))): the order is
  that of lambda, whatever the task, and modes beyond the reach of the tied optimum are never half learned.
- Finite context: the errors are averages over sampled contexts, in RRS and ISO at large dimension their large-size
  limit; label noise is included.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import FloatArray, integer
from theory.fixed_basis import SampledModes, sampled_mode_flow
from theory.floors import tied_optimum_of
from theory.losses import QuadraticLoss, quadratic_loss, tied
from theory.mode_errors import mode_moments, sampled_mode_moments
from theory.results import Result, axes_or_new
from theory.task import Task
from theory.tie_breaking import compress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Gauss-Legendre nodes a panel and panels of the clock of the gain, evenly spaced in -log(1 - gain/optimum).
PANEL_NODES = 12
PANEL = 0.5
LAST_PANEL = 30.0
# Gains tried a mode when its error is not monotone by construction (finite context).
SCAN = 400
# Larger dimensions take the limit, whose error is of order 1/P, for contexts of about the dimension 1/dim.
LARGEST_SAMPLED = 64
# Times a decade at which the sampled FS flow is recorded, and decades beyond the population's last half time.
PER_DECADE = 20
LATER = 1.5


@dataclasses.dataclass(frozen=True, eq=False)
class ModeHalfTimes(Result):
    """Times at which modes are half learned along the flow from zero, tied gains.

    Attributes
    ----------
    time : array of shape (dim,)
        In spectrum order; inf for modes that are never half learned.
    order : int array of shape (dim,)
        Modes (from 0) from first to last learned; modes learned together or never keep spectrum order.
    source : str
        Where the errors come from.
    """

    time: FloatArray
    order: np.ndarray
    source: str

    def to_frame(self) -> pd.DataFrame:
        """Return one row a mode: mode (from 1), half_time."""
        import pandas as pd

        return pd.DataFrame({"mode": np.arange(1, self.time.size + 1), "half_time": self.time})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw half time against mode on log axes."""
        axes = axes_or_new(ax)
        learned = np.isfinite(self.time)
        axes.loglog(np.arange(1, self.time.size + 1)[learned], self.time[learned], ".")
        axes.set(xlabel="mode k", ylabel="half time")
        return axes


def mode_half_times(task: Task, depth: int, *, samples: int | None = None, seed: int = 0) -> ModeHalfTimes:
    """Return when each mode is half learned, tied gradient flow from zero.

    Parameters
    ----------
    task : Task
        Any setting and context.
    depth : int
    samples : int, optional
        Draws at finite context.
    seed : int

    Raises
    ------
    ValueError
        For a bad depth.
    """
    depth = integer("depth", depth)
    if task.setting == "fs":
        if task.context is None:
            return _result(_fixed_population(task, depth), "closed form")
        return _result(_fixed_sampled(task, depth, samples, seed), "sampled contexts")
    loss = quadratic_loss(task, depth, samples=samples, seed=seed)
    small = compress(loss, depth)
    best = tied_optimum_of(small, depth).gains[0]
    gains = _gains_at_half(task, depth, best, samples, seed)
    limit = "errors of the large-size limit" if task.dim > LARGEST_SAMPLED else "sampled contexts"
    source = "one gain for all modes" if task.context is None else limit
    return _result(gain_times(small, depth, gains, best), source)


def gain_times(loss: QuadraticLoss, depth: int, gains: FloatArray, best: float) -> FloatArray:
    """Return when the tied flow from zero reaches ``gains`` (any order), inf from the tied optimum ``best`` on.

    t = int_0^gamma D d gamma/(-d loss/d gamma_l), with gamma = best (1 - e^-s) to resolve the slow arrival.
    """
    edges = np.arange(0.0, LAST_PANEL + PANEL, PANEL)
    x, w = np.polynomial.legendre.leggauss(PANEL_NODES)
    result = np.full(gains.shape, math.inf)
    reached = gains < best * (1 - math.exp(-LAST_PANEL))

    def clock(low: float, high: float) -> float:
        s = low + (high - low) * (x + 1) / 2
        slopes = [float(loss.gradient(tied(best * -math.expm1(-value), depth)).mean()) for value in s]
        with np.errstate(over="ignore", divide="ignore"):
            pace = loss.dim * best * np.exp(-s) / -np.array(slopes)
        return float((high - low) / 2 * (w @ pace))

    targets = -np.log1p(-gains[reached] / best)
    last = int(np.searchsorted(edges, targets.max())) if targets.size else 0
    starts = np.concatenate([[0.0], np.cumsum([clock(a, b) for a, b in itertools.pairwise(edges[: last + 1])])])
    # Many modes share few distinct gains (equal eigenvalues): each is integrated once.
    unique, member = np.unique(targets, return_inverse=True)
    first = np.minimum(np.searchsorted(edges, unique, side="right") - 1, edges.size - 1)
    times = np.array([starts[p] + clock(edges[p], t) for p, t in zip(first, unique, strict=True)])
    result[reached] = times[member]
    return result


def _result(time: FloatArray, source: str) -> ModeHalfTimes:
    return ModeHalfTimes(time, np.argsort(time, kind="stable"), source)


def _fixed_population(task: Task, depth: int) -> FloatArray:
    rate = 4 * task.spectrum.eigenvalues**2 * task.spectrum.signal
    clock = math.log(2.0) if depth == 1 else depth**2 / (depth - 1) * math.expm1(math.log(2.0) * (depth - 1) / depth)
    return np.divide(clock, rate, out=np.full_like(rate, math.inf), where=rate > 0)


def _fixed_sampled(task: Task, depth: int, samples: int | None, seed: int) -> FloatArray:
    population = _fixed_population(task, depth)
    known = population[np.isfinite(population)]
    if known.size == 0:
        return population
    decades = np.log10(known.max() / known.min()) + LATER + 1
    times = known.min() * 10 ** np.linspace(-1, decades - 1, math.ceil(PER_DECADE * decades))
    path = sampled_mode_flow(SampledModes(task, depth, samples=samples, seed=seed), times, tied=True)
    result = np.full(task.dim, math.inf)
    for k in np.flatnonzero(task.spectrum.signal > 0):
        left = np.log(path.mode_losses[:, k] / task.spectrum.signal[k] * 2)
        below = np.flatnonzero(left <= 0)
        if below.size and below[0] > 0:
            i = below[0]
            part = left[i - 1] / (left[i - 1] - left[i])
            result[k] = times[i - 1] * (times[i] / times[i - 1]) ** part
    return result


def _gains_at_half(task: Task, depth: int, best: float, samples: int | None, seed: int) -> FloatArray:
    """Return the first tied gain at which half of each mode's error is left; inf if none up to ``best``."""
    lam, signal = task.spectrum.eigenvalues, task.spectrum.signal
    if task.context is None:
        reach = -depth * math.expm1(-math.log(2.0) / (2 * depth))
        return np.where(signal > 0, np.divide(reach, lam, out=np.full_like(lam, math.inf), where=lam > 0), math.inf)
    if task.dim > LARGEST_SAMPLED:
        moments = mode_moments(task, depth)
    else:
        moments = sampled_mode_moments(task, depth, samples=samples, seed=seed)
    scan = np.linspace(0.0, best, SCAN)
    error = moments.errors(scan, depth, task.label_noise / task.context)
    result = np.full(lam.shape, math.inf)
    for k in np.flatnonzero(signal > 0):
        below = np.flatnonzero(error[k] <= signal[k] / 2)
        if below.size:
            i = below[0]
            part = (error[k, i - 1] - signal[k] / 2) / (error[k, i - 1] - error[k, i])
            result[k] = scan[i - 1] + part * (scan[i] - scan[i - 1])
    return result
