"""Words and criteria of a fit: information criteria, leave-one-depth-out error, statuses, the answer 'no such law'."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from theory.checks import FloatArray
from validate.fit_checks import Monotony, lack_of_fit
from validate.fit_engine import minimise
from validate.fit_intervals import Interval, NoiseScale
from validate.fit_problem import ROUNDING_RESIDUAL, FitProblem
from validate.fit_result import FitResult, ParameterEstimate

# A law whose chi-square is larger than this share of tables would give does not describe them.
HOPELESS = 1e-3


def criteria(problem: FitProblem, cost: float, free: int, known: bool, weights: FloatArray) -> dict[str, float]:
    """Return AICc and BIC.

    With known standard errors ``chi^2 + 2 k`` (exact there: no small-sample term) and ``chi^2 + k log n``; else
    ``n log(2 cost/n) + 2 k + 2 k (k+1)/(n-k-1)`` and ``n log(2 cost/n) + k log n``, where k counts the noise too.
    Infinite where n is too small.
    """
    n = problem.rows
    mean = float(np.mean(weights))
    twice = 2.0 * cost / mean
    if known:
        return {"aicc": twice + 2.0 * free, "bic": twice + free * np.log(n)}
    k = free + 1
    size = 1.0 if problem.residuals == "log" else float(np.mean(problem.loss_values**2))
    fitted = n * np.log(max(twice / n, ROUNDING_RESIDUAL**2 * size))
    if n - k - 1 <= 0:
        return {"aicc": np.inf, "bic": np.inf}
    return {"aicc": fitted + 2.0 * k + 2.0 * k * (k + 1) / (n - k - 1), "bic": fitted + k * np.log(n)}


def left_out_error(problem: FitProblem, point: FloatArray, held: np.ndarray, weights: FloatArray) -> float:
    """Return the root mean square relative error of each depth's losses predicted from the other depths.

    NaN where the others cannot fix the free parameters, or the law has no depth.
    """
    if "depth" not in problem.columns:
        return np.nan
    depth = problem.columns["depth"]
    levels = np.unique(depth)
    if levels.size <= max(int(np.sum(~held)), 1):
        return np.nan
    left = depth[None, :] == levels[:, None]
    found = minimise(
        problem, np.repeat(point[None], levels.size, axis=0), weights=weights * ~left, held=held, polish=False
    )
    relative = problem.predicted(found.points) / problem.loss_values - 1.0
    return float(np.sqrt(np.sum(np.where(left, relative**2, 0.0)) / problem.rows))


def describe(result: FitResult, found: list[Interval], warnings: list[str], verdict: Monotony | None) -> FitResult:
    """Return the result with its estimates, its status sentence and its warnings."""
    problem, point, held = result.problem, result.point, result.held
    values = problem.natural(point)
    names = problem.law.parameter_names
    spread = np.sqrt(np.diag(result.spread)) * np.where(problem.logarithmic, values, 1.0)
    estimates, loose, resting = {}, [], []
    for place, name in enumerate(names):
        value, interval = float(values[place]), found[place]
        if held[place]:
            estimates[name] = ParameterEstimate(value, np.nan, (np.nan, np.nan), "fixed")
            continue
        status, stderr = "ok", float(spread[place])
        if not np.isfinite(result.noise.scale):
            status, stderr = "no interval: no degrees of freedom are left", np.nan
            interval = Interval(np.nan, np.nan)
        elif point[place] <= problem.lower[place] or point[place] >= problem.upper[place]:
            status, stderr = "at bound: one-sided interval", np.nan
            resting.append(name)
            if interval.high_side == "open" or interval.low_side == "open":
                status = "not identified: at bound and the other side does not close"
                loose.append(name)
        elif "open" in (interval.low_side, interval.high_side):
            status = "not identified: the profile stays low on " + (
                "both sides"
                if interval.low_side == interval.high_side
                else ("the upper side" if interval.high_side == "open" else "the lower side")
            )
            loose.append(name)
        elif "bound" in (interval.low_side, interval.high_side):
            status = "one-sided: the interval reaches the end of the domain"
        estimates[name] = ParameterEstimate(value, stderr, (interval.low, interval.high), status)
    notes = list(warnings)
    if verdict is not None and verdict.doubtful:
        if loose or (result.law not in {"power"} and _exponent_is_loose(result)):
            reason = f"{verdict.sentence} The exponent is not identified: no headline."
            return no_answer(
                problem, held, point, result.row_weights, reason, notes, result.interval_method, result.level
            )
        notes.append(verdict.sentence)
    if "plateau" in estimates and estimates["plateau"].value < 0:
        notes.append(f"the plateau is negative ({estimates['plateau'].value:.4g}): no loss can end there")
    if result.agreeing_starts < 2 and result.starts > 1:
        notes.append(f"only {result.agreeing_starts} of {result.starts} starts ended in this optimum")
    parts = ["Converged"]
    plain = problem.sigma is None and problem.robust == "linear"
    misfit = lack_of_fit(problem, problem.residual(point[None])[0], int(np.sum(~held))) if plain else None
    if misfit is not None and misfit[0] < HOPELESS:
        parts[0] = "Converged, but the law does not describe these losses"
        notes.append(
            f"the means of {misfit[1]} replicates lie off the law by more than their scatter explains "
            f"(chance {misfit[0]:.1e}): the law is wrong here, and the intervals are too narrow"
        )
    freedom = problem.rows - int(np.sum(~held))
    if problem.sigma is not None and freedom > 0:
        chance = float(stats.chi2.sf(2.0 * result.objective, freedom))
        if chance < HOPELESS:
            parts[0] = "Converged, but the law does not describe these losses"
            notes.append(
                f"chi-square {2.0 * result.objective:.4g} on {freedom} degrees of freedom (chance {chance:.1e}): "
                "the standard errors are too small or the law is wrong, and the intervals are too narrow"
            )
    if resting:
        parts.append(f"at bound: {', '.join(resting)}")
    if loose:
        parts.append(f"not identified: {', '.join(loose)}")
    if not np.isfinite(result.noise.scale):
        parts.append("no interval: no degrees of freedom are left")
    return replace(result, parameters=estimates, status="; ".join(parts) + ".", warnings=tuple(notes))


def _exponent_is_loose(result: FitResult) -> bool:
    """Return whether a free exponent on the same rows would not be identified."""
    from validate.fit import fit_depth_law

    problem = result.problem
    sigma = problem.sigma
    if sigma is not None and problem.residuals == "log":
        sigma = sigma * problem.loss_values
    free = fit_depth_law(problem.columns["depth"], problem.loss_values, law="power", standard_error=sigma)
    return not free.answered


def no_answer(
    problem: FitProblem,
    held: np.ndarray,
    point: FloatArray,
    weights: FloatArray,
    reason: str,
    warnings: list[str],
    method: str,
    level: float,
) -> FitResult:
    """Return a result without numbers that says why."""
    names = problem.law.parameter_names
    values = problem.natural(point)
    estimates = {
        name: ParameterEstimate(float(values[place]), np.nan, (np.nan, np.nan), "fixed")
        if held[place]
        else ParameterEstimate(np.nan, np.nan, (np.nan, np.nan), "no answer")
        for place, name in enumerate(names)
    }
    return FitResult(
        law=problem.law.name,
        n=problem.rows,
        objective=np.nan,
        parameters=estimates,
        answered=False,
        status=reason,
        warnings=tuple(warnings),
        aicc=np.inf,
        bic=np.inf,
        weight=np.nan,
        probability=np.nan,
        left_out_error=np.nan,
        interval_method=method,
        level=level,
        agreeing_starts=0,
        starts=0,
        problem=problem,
        point=point,
        held=held,
        spread=np.full((len(names), len(names)), np.nan),
        noise=NoiseScale(np.nan, np.nan),
        row_weights=weights,
    )
