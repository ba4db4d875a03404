"""What a table must hold before a law is fitted to it, and the sentences said when it does not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from theory.checks import FloatArray, choice
from theory.depth_laws import DepthLaw
from validate.fit_problem import FitProblem

# A rise of the depth means is one where noise would make it once in this many tables.
RISE_CHANCE = 1e-3
# Without known noise, a rise by this share of the whole fall is one that a reader must know about.
RISE_SHARE = 0.1
SCATTER_DEPTHS = 8
# Columns whose logarithms are this close to proportional are one column.
COLLINEAR = 1e-9
# Depth means that differ relatively by no more than this are equal to rounding.
FLAT = 1e-13
NAMED_ROWS = 10


@dataclass(frozen=True)
class FitTable:
    """The rows that a fit uses, each column (n,)."""

    columns: dict[str, FloatArray]
    loss: FloatArray
    sigma: FloatArray | None
    weights: FloatArray
    groups: np.ndarray | None
    warnings: tuple[str, ...]


def named(rows: Sequence[int] | np.ndarray) -> str:
    """Return row numbers as text, the first ten."""
    shown = ", ".join(str(int(row)) for row in rows[:NAMED_ROWS])
    return shown if len(rows) <= NAMED_ROWS else f"{shown} and {len(rows) - NAMED_ROWS} more"


def check_columns(
    law: DepthLaw,
    columns: Mapping[str, npt.ArrayLike],
    loss: npt.ArrayLike,
    standard_error: npt.ArrayLike | None,
    weights: npt.ArrayLike | None,
    groups: Sequence[Any] | npt.ArrayLike | None,
    diverged: str,
) -> FitTable:
    """Return the table as float64 arrays of one length, without the diverged rows where these may be dropped.

    Raises
    ------
    ValueError
        If a column is missing, has the wrong length or a value out of range, or a loss is not finite and positive.
    """
    choice("diverged", diverged, ("refuse", "drop"))
    if set(columns) != set(law.variables):
        raise ValueError(f"columns={sorted(columns)}: must be {', '.join(law.variables)}")
    losses = _column("loss", loss, None)
    arrays = {name: _column(name, columns[name], losses.size) for name in law.variables}
    sigma = None if standard_error is None else _column("standard_error", standard_error, losses.size)
    row_weights = np.ones(losses.size) if weights is None else _column("weights", weights, losses.size)
    labels = None if groups is None else np.asarray(groups)
    if labels is not None and labels.shape != losses.shape:
        raise ValueError(f"groups has shape {labels.shape}: must be one label a row, {losses.shape}")
    for name, array in (*arrays.items(), ("standard_error", sigma), ("weights", row_weights)):
        if array is None:
            continue
        bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
        if bad.size:
            raise ValueError(f"{name}[{bad[0]}]={array[bad[0]]:g}: must be a positive number")
    good = np.isfinite(losses) & (losses > 0)
    notes: tuple[str, ...] = ()
    if not good.all():
        bad = np.flatnonzero(~good)
        text = f"loss is not a finite positive number in row {named(bad)}"
        if diverged == "refuse":
            raise ValueError(f"{text}: diverged runs must be left out (diverged='drop' does so and names them)")
        if not good.any():
            raise ValueError(f"{text}: no row is left")
        notes = (f"{text}: left out as diverged",)
    return FitTable(
        {name: array[good] for name, array in arrays.items()},
        losses[good],
        None if sigma is None else sigma[good],
        row_weights[good],
        None if labels is None else labels[good],
        notes,
    )


def _column(name: str, values: npt.ArrayLike, length: int | None) -> FloatArray:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: must be numbers") from None
    if array.ndim != 1 or array.size == 0 or (length is not None and array.size != length):
        wanted = "a non-empty list of numbers" if length is None else f"{length} numbers, one a row"
        raise ValueError(f"{name} has shape {array.shape}: must be {wanted}")
    return array


def refuse_collinear(problem: FitProblem, held: np.ndarray) -> None:
    """Raise if two columns of a joint law say the same, or one says nothing.

    Raises
    ------
    ValueError
        Naming the columns, and the law of one variable that can be fitted.
    """
    if len(problem.law.variables) < 2:
        return
    names = problem.law.parameter_names
    logs = {
        name: np.log(problem.columns[name])
        for name in problem.law.variables
        if not held[names.index(f"{name}_exponent")]
    }
    for name, column in logs.items():
        if np.ptp(column) < COLLINEAR:
            raise ValueError(f"column {name} has one value only: its exponent is not identified; leave it out")
    for first, second in itertools.combinations(logs, 2):
        a, b = logs[first] - logs[first].mean(), logs[second] - logs[second].mean()
        if 1.0 - abs(a @ b) / np.sqrt((a @ a) * (b @ b)) < COLLINEAR:
            raise ValueError(
                f"columns {first} and {second} are collinear ({second} is a power of {first} times a constant): "
                f"their exponents cannot be told apart; fit the law of {first} alone"
            )


def too_few(problem: FitProblem, held: np.ndarray) -> str:
    """Return why the rows cannot fix the free parameters, or an empty string."""
    free = [name for name, hold in zip(problem.law.parameter_names, held, strict=True) if not hold]
    points = np.stack([problem.columns[name] for name in problem.law.variables], axis=1)
    distinct = len(np.unique(points, axis=0))
    if distinct >= len(free):
        return ""
    what = "depth" if problem.law.variables == ("depth",) else "point"
    count = f"{distinct} distinct {what}{'' if distinct == 1 else 's'}"
    return f"{count} cannot fix {len(free)} parameters ({', '.join(free)})."


@dataclass(frozen=True)
class Monotony:
    """Whether loss falls with depth: ``refuses`` if it does not beyond the noise, ``doubtful`` if it may not."""

    refuses: bool
    doubtful: bool
    sentence: str


def monotony(problem: FitProblem, weights: FloatArray) -> Monotony:
    """Judge whether the depth means fall: by standard errors where noise is known, else by the share of the fall."""
    depth, loss = problem.columns["depth"], problem.loss_values
    sigma = problem.sigma
    if sigma is not None and problem.residuals == "log":
        sigma = sigma * loss
    levels = np.unique(depth)
    if levels.size < 2:
        return Monotony(False, False, "")
    means, errors = np.empty(levels.size), np.full(levels.size, np.nan)
    within, freedom = 0.0, 0
    counts = np.empty(levels.size)
    for place, level in enumerate(levels):
        rows = depth == level
        share = weights[rows] / (1.0 if sigma is None else sigma[rows] ** 2)
        means[place] = np.sum(share * loss[rows]) / np.sum(share)
        counts[place] = rows.sum()
        if sigma is not None:
            errors[place] = 1.0 / np.sqrt(np.sum(sigma[rows] ** -2.0))
        within += float(np.sum((loss[rows] / means[place] - 1.0) ** 2))
        freedom += int(rows.sum()) - 1
    if sigma is None and freedom >= levels.size:
        errors = means * np.sqrt(within / freedom / counts)
    noisy = bool(np.all(np.isfinite(errors)))
    pairs = levels.size * (levels.size - 1) / 2
    most = (
        stats.norm.isf(RISE_CHANCE / pairs) if sigma is not None else stats.t.isf(RISE_CHANCE / pairs, max(freedom, 1))
    )
    log_depth = np.log(levels) - np.log(levels).mean()
    trend = float(np.sum(log_depth * means) / np.sum(log_depth**2))
    if trend >= 0 or np.ptp(means) <= FLAT * np.max(means):
        return Monotony(True, True, "No such law: loss does not fall with depth.")
    lowest = np.minimum.accumulate(means)
    rises = means - lowest
    place = int(np.argmax(rises))
    if rises[place] <= 0:
        return Monotony(False, False, "")
    before = int(np.argmin(means[: place + 1]))
    fall = float(means.max() - means.min())
    text = f"loss rises from {means[before]:.4g} at depth {levels[before]:g} to {means[place]:.4g} at {levels[place]:g}"
    if noisy:
        reach = float(np.hypot(errors[place], errors[before]))
        rising = bool(rises[place] > most * reach)
        return Monotony(rising, False, f"No such law: {text}, {rises[place] / max(reach, 1e-300):.1f} standard errors.")
    # From this many depths on, the scatter about the law shows what noise can do.
    doubtful = bool(rises[place] > RISE_SHARE * fall) and levels.size < SCATTER_DEPTHS
    return Monotony(False, doubtful, f"Not monotone: {text}, {100 * rises[place] / fall:.0f} % of the whole fall.")


def lack_of_fit(problem: FitProblem, residual: FloatArray, free: int) -> tuple[float, int] | None:
    """Return the chance of so large a misfit of the replicates' means, and how many rows are replicates.

    The F test of the residuals between groups of equal variables against those within them (Draper and Smith,
    *Applied Regression Analysis*, section 1.5). ``None`` without replicates, or with no more groups than parameters.

    Parameters
    ----------
    residual
        (n,), on the scale of the fit.
    free
        Number of free parameters.
    """
    points = np.stack([problem.columns[name] for name in problem.law.variables], axis=1)
    group = np.unique(points, axis=0, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(group)
    within_freedom, between_freedom = problem.rows - counts.size, counts.size - free
    if within_freedom < 1 or between_freedom < 1:
        return None
    means = np.bincount(group, weights=residual) / counts
    within = float(np.sum((residual - means[group]) ** 2))
    between = float(np.sum(counts * means**2))
    if within <= 0:
        return None
    ratio = between / between_freedom / (within / within_freedom)
    return float(stats.f.sf(ratio, between_freedom, within_freedom)), int(counts[counts > 1].sum())
