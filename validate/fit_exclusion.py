"""How a fit depends on the rows left out: refits without the 0, 1, 2, ... largest losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import FloatArray, choice, integer
from theory.results import Result, axes_or_new
from validate.fit_engine import minimise
from validate.fit_intervals import covariance, noise_scale
from validate.fit_starts import sobol_starts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from validate.fit_result import FitResult

# Sobol starts of each refit besides the whole table's optimum.
EXTRA_STARTS = 16


@dataclass(frozen=True)
class ExclusionPath(Result):
    """Estimates without the largest losses.

    Attributes
    ----------
    left_out
        How many of the largest losses are left out, (m,).
    largest_kept
        The largest loss that remains, (m,).
    values, stderrs
        Estimates and asymptotic standard errors, (m, k).
    names
        The k parameters.
    """

    left_out: np.ndarray
    largest_kept: FloatArray
    values: FloatArray
    stderrs: FloatArray
    names: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row a refit."""
        import pandas as pd

        frame = pd.DataFrame({"left_out": self.left_out, "largest_kept": self.largest_kept})
        for place, name in enumerate(self.names):
            frame[name] = self.values[:, place]
            frame[f"{name}_stderr"] = self.stderrs[:, place]
        return frame

    def plot(self, ax: Axes | None = None, *, parameter: str | None = None) -> Axes:
        """Draw one estimate (the depth exponent if there is one) with two standard errors against the rows left out."""
        names = self.names
        default = next((name for name in ("depth_exponent", "exponent") if name in names), names[0])
        place = names.index(choice("parameter", default if parameter is None else parameter, names))
        ax = axes_or_new(ax, figsize=(3.4, 2.6))
        value, error = self.values[:, place], self.stderrs[:, place]
        ax.plot(self.left_out, value, color="#0072B2", lw=1.4, label="estimate")
        ax.fill_between(
            self.left_out, value - 2 * error, value + 2 * error, color="#0072B2", alpha=0.2, lw=0, label="± 2 s.e."
        )
        if default.endswith("exponent"):
            ax.axhline(1.0, color="#D55E00", ls="--", lw=1.0, label="1")
        ax.set(xlabel="largest losses left out", ylabel=names[place].replace("_", " "))
        ax.legend(frameon=False, fontsize=8)
        return ax


def exclusion_path(fit: FitResult, most: int = 100) -> ExclusionPath:
    """Refit without the 0, 1, ..., ``most`` largest losses.

    Parameters
    ----------
    fit
        An answered fit to all rows.
    most
        Largest number of rows left out; it leaves at least two rows more than there are parameters.

    Returns
    -------
    ExclusionPath

    Raises
    ------
    ValueError
        If the fit has no answer or ``most`` leaves too few rows.
    """
    problem = fit.problem
    free = int(np.sum(~fit.held))
    integer("most", most, minimum=0, maximum=max(problem.rows - free - 2, 0))
    if not fit.answered:
        raise ValueError(f"law={fit.law!r} has no fit: {fit.status}")
    counts = np.arange(most + 1)
    rank = np.empty(problem.rows, dtype=int)
    rank[np.argsort(-problem.loss_values, kind="stable")] = np.arange(problem.rows)
    weights = fit.row_weights * (rank[None, :] >= counts[:, None])
    starts = np.concatenate([fit.point[None], sobol_starts(problem, EXTRA_STARTS, seed=2)])
    starts[:, fit.held] = fit.point[fit.held]
    found = minimise(
        problem,
        np.tile(starts, (counts.size, 1)),
        weights=np.repeat(weights, len(starts), axis=0),
        held=fit.held,
        polish=problem.robust == "huber",
    )
    best = np.argmin(found.costs.reshape(counts.size, len(starts)), axis=1) + len(starts) * counts
    points = found.points[best]
    stderrs = np.full(points.shape, np.nan)
    for place, point in enumerate(points):
        kept = np.flatnonzero(weights[place] > 0)
        part = problem.take(kept)
        noise = noise_scale(part, point, weights[place][kept], free, problem.sigma is not None)
        spread = covariance(part, point, weights[place][kept], ~fit.held, noise.scale)
        stderrs[place] = np.sqrt(np.diag(spread)) * np.where(problem.logarithmic, np.exp(point), 1.0)
    ordered = np.sort(problem.loss_values)[::-1]
    return ExclusionPath(counts, ordered[: most + 1], problem.natural(points), stderrs, problem.law.parameter_names)
