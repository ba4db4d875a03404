"""Fit depth laws and joint laws to tables of runs: many starts, proven convergence, honest intervals, ranked rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, choice, integer, real
from theory.depth_laws import DEPTH_LAWS, DepthLaw, additive_law, depth_law
from validate.fit_checks import check_columns, monotony, refuse_collinear, too_few
from validate.fit_engine import FLAT_DECREMENT, NEWTON_STEPS, Optima, minimise
from validate.fit_intervals import Interval, asymptotic_intervals, covariance, noise_scale, profile_intervals
from validate.fit_problem import RESIDUALS, ROBUST_LOSSES, ROUNDING_RESIDUAL, FitProblem
from validate.fit_result import FitResult
from validate.fit_starts import sobol_starts
from validate.fit_summary import criteria, describe, left_out_error, no_answer

INTERVALS = ("profile", "bootstrap", "asymptotic", "none")
# Costs within this relative distance of the best are the same optimum.
AGREEMENT = 1e-6
# The starts are followed until a step lowers the cost by less than this share; the best is then polished and proven.
ROUGH = 1e-9
# Up to this many rows, noise unknown, winners by AICc are right less often than their weights say
# (`benchmarks.recovery`: weights of 0.91 are right in 0.68 ± 0.02).
FEW_ROWS = 12
# A rival this many times as probable as the first is a tie: 2 in AICc.
TIED = float(np.exp(-1.0))
# Further starts of each point of a profile, which may have more than one valley.
PROFILE_STARTS = 4
# A robust cost is first minimised with its bend this many times wider, where it has few local minima.
WIDER = 30.0


def fit_depth_law(
    depth: npt.ArrayLike,
    loss: npt.ArrayLike,
    *,
    law: str = "power",
    standard_error: npt.ArrayLike | None = None,
    groups: Sequence[Any] | npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    fixed: Mapping[str, float] | None = None,
    plateau_minimum: float = 0.0,
    residuals: str | None = None,
    robust: str = "linear",
    robust_scale: float = 0.01,
    intervals: str = "profile",
    level: float = 0.95,
    starts: int = 64,
    resamples: int = 200,
    diverged: str = "refuse",
    seed: int = 0,
) -> FitResult:
    """Fit one depth law to losses at depths.

    Parameters
    ----------
    depth, loss
        (n,), positive; replicates are rows with the same depth.
    law
        A key of ``theory.depth_laws.DEPTH_LAWS``.
    standard_error
        Standard errors of the losses, (n,), taken as known; the noise is estimated from the residuals if ``None``.
    groups
        Labels, (n,), that the bootstrap resamples together.
    weights
        Relative weights of the rows, (n,); their common size changes no estimate.
    fixed
        Parameters that are not fitted, by name.
    plateau_minimum
        Smallest plateau allowed; ``-inf`` lets it be negative.
    residuals
        ``log`` (relative errors) or ``linear``; ``None`` is linear with standard errors, else log.
    robust, robust_scale
        ``linear``, ``soft_l1`` or ``huber``, and the residual at which the cost bends.
    intervals
        ``profile``, ``bootstrap``, ``asymptotic``, or ``none`` (NaN ends, for speed).
    level
        What the intervals should hold.
    starts
        Sobol starts, a power of two.
    resamples
        Of the bootstrap.
    diverged
        ``refuse`` rows whose loss is not a finite positive number, or ``drop`` them with a warning that names them.
    seed
        Of the starts and the bootstrap.

    Returns
    -------
    FitResult
        With ``answered`` false and NaN estimates where the data hold no such law.

    Raises
    ------
    ValueError
        If an argument is out of range, or ``FitError`` if the fit did not converge.
    """
    chosen = depth_law(law)
    return _fit(
        chosen,
        {"depth": depth},
        loss,
        standard_error=standard_error,
        groups=groups,
        weights=weights,
        fixed=fixed or {},
        plateau_minimum=plateau_minimum,
        residuals=residuals,
        robust=robust,
        robust_scale=robust_scale,
        intervals=intervals,
        level=level,
        starts=starts,
        resamples=resamples,
        diverged=diverged,
        seed=seed,
    )


def fit_joint_law(
    columns: Mapping[str, npt.ArrayLike],
    loss: npt.ArrayLike,
    *,
    robust: str = "soft_l1",
    robust_scale: float = 0.01,
    **options: Any,
) -> FitResult:
    """Fit ``plateau + sum of v_coefficient v^-v_exponent`` over the variables in ``columns``.

    Parameters
    ----------
    columns
        Variable (``width``, ``depth``, ``tokens``, ``parameters``) -> (n,), positive.
    loss
        (n,), positive.
    robust, robust_scale
        As for `fit_depth_law`; here soft L1 that bends at a relative error of 0.01.
    options
        The other keywords of `fit_depth_law`.

    Returns
    -------
    FitResult

    Raises
    ------
    ValueError
        If an argument is out of range or two columns are collinear, or ``FitError`` if the fit did not converge.
    """
    order = [name for name in ("width", "depth", "tokens", "parameters") if name in columns]
    unknown = sorted(set(columns) - set(order))
    if unknown:
        raise ValueError(f"columns={unknown}: must be among width, depth, tokens, parameters")
    law = additive_law(tuple(order))
    return _fit(law, columns, loss, robust=robust, robust_scale=robust_scale, **options)


def rank_laws(
    depth: npt.ArrayLike,
    loss: npt.ArrayLike,
    *,
    laws: Sequence[str] | None = None,
    fixed: Mapping[str, Mapping[str, float]] | None = None,
    **options: Any,
) -> list[FitResult]:
    """Fit rival depth laws and return them best first, with their probabilities and AICc weights.

    Parameters
    ----------
    depth, loss
        As for `fit_depth_law`.
    laws
        Names; all of ``DEPTH_LAWS`` if ``None``.
    fixed
        Law -> its fixed parameters, such as ``{"spectral": {"exponent": 0.5}}`` for a given spectrum.
    options
        The other keywords of `fit_depth_law`.

    Returns
    -------
    list of FitResult
        By probability; by AICc where there are no probabilities (a robust cost, a plateau held). Those without an
        answer last. The first one's status says when it is a tie, its warnings which laws are left out because their
        fit did not converge.

    Raises
    ------
    ValueError
        If an argument is out of range, or ``FitError`` if no fit converged.
    """
    from validate.fit_result import FitError

    names = list(DEPTH_LAWS) if laws is None else list(laws)
    fits: list[FitResult] = []
    errors: list[FitError] = []
    for name in names:
        try:
            fits.append(fit_depth_law(depth, loss, law=name, fixed=(fixed or {}).get(name), **options))
        except FitError as error:
            errors.append(error)
    if not fits:
        raise errors[0]
    best = min((fit.aicc for fit in fits if np.isfinite(fit.aicc)), default=np.inf)
    shares = np.array([np.exp(-0.5 * (fit.aicc - best)) if np.isfinite(fit.aicc) else 0.0 for fit in fits])
    total = shares.sum()
    chances = _probabilities(fits)
    weighed = [
        replace(fit, weight=float(share / total) if total > 0 else np.nan, probability=float(chance))
        for fit, share, chance in zip(fits, shares, chances, strict=True)
    ]
    ranked = sorted(weighed, key=lambda fit: (not fit.answered, -np.nan_to_num(fit.probability), fit.aicc))
    first = ranked[0]
    if np.isfinite(first.probability):
        ties = [fit.law for fit in ranked[1:] if fit.probability > TIED * first.probability]
        text = f" A tie: {', '.join(ties)} with a probability above 1/e of the first's."
    else:
        ties = [fit.law for fit in ranked[1:] if fit.aicc - best < 2.0]
        text = f" A tie: {', '.join(ties)} within 2 in AICc."
    if ties:
        first = replace(first, status=first.status + text)
    if total > 0 and first.n <= FEW_ROWS and first.problem.sigma is None and len(ranked) > 1:
        note = f"on {first.n} rows AICc weights promise too much; probabilities keep their promise"
        first = replace(first, warnings=(*first.warnings, note))
    ranked[0] = first
    missing = tuple(f"left out of the ranking: {error}" for error in errors)
    return [replace(ranked[0], warnings=(*ranked[0].warnings, *missing)), *ranked[1:]]


def _probabilities(fits: Sequence[FitResult]) -> FloatArray:
    """Return the laws' probabilities; NaN without an answer, and for all where one that has rows enough has none."""
    from validate.fit_evidence import law_probabilities, log_evidence

    evidence = np.full(len(fits), np.nan)
    for place, fit in enumerate(fits):
        if fit.answered:
            evidence[place] = log_evidence(fit.problem, fit.row_weights, fit.held, fit.point)
            if np.isnan(evidence[place]) and fit.n > int(np.sum(~fit.held)):
                return np.full(len(fits), np.nan)
    return law_probabilities(evidence)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _fit(
    law: DepthLaw,
    columns: Mapping[str, npt.ArrayLike],
    loss: npt.ArrayLike,
    *,
    standard_error: npt.ArrayLike | None = None,
    groups: Sequence[Any] | npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    fixed: Mapping[str, float] | None = None,
    plateau_minimum: float = 0.0,
    residuals: str | None = None,
    robust: str = "linear",
    robust_scale: float = 0.01,
    intervals: str = "profile",
    level: float = 0.95,
    starts: int = 64,
    resamples: int = 200,
    diverged: str = "refuse",
    seed: int = 0,
) -> FitResult:
    choice("intervals", intervals, INTERVALS)
    choice("robust", robust, ROBUST_LOSSES)
    real("robust_scale", robust_scale, above=0)
    real("level", level, above=0)
    if level >= 1:
        raise ValueError(f"level={level}: must be below 1")
    integer("starts", starts, minimum=1)
    table = check_columns(law, columns, loss, standard_error, weights, groups, diverged)
    scale = residuals if residuals is not None else ("log" if standard_error is None else "linear")
    choice("residuals", scale, RESIDUALS)
    sigma = table.sigma if table.sigma is None or scale == "linear" else table.sigma / table.loss
    problem = FitProblem(law, table.columns, table.loss, sigma, scale, robust, robust_scale)
    problem, held, fixed_point = _with_fixed(problem, fixed or {}, plateau_minimum)
    refuse_collinear(problem, held)
    warnings = list(table.warnings)
    shortage = too_few(problem, held)
    verdict = monotony(problem, table.weights) if law.variables == ("depth",) and not shortage else None
    if shortage or (verdict is not None and verdict.refuses):
        reason = shortage or verdict.sentence  # type: ignore[union-attr]
        return no_answer(problem, held, fixed_point, table.weights, reason, warnings, intervals, level)
    optimum, agreeing = _global_minimum(problem, held, fixed_point, table.weights, starts, seed)
    free = int(np.sum(~held))
    known = problem.sigma is not None
    others = sobol_starts(problem, PROFILE_STARTS, seed=seed + 1)
    others[:, held] = fixed_point[held]
    for _ in range(3):
        point, cost = optimum.points[0], float(optimum.costs[0])
        noise = noise_scale(problem, point, table.weights, free, known)
        spread = covariance(problem, point, table.weights, ~held, noise.scale)
        found: list[Interval] = []
        better = None
        exact = not known and noise.scale <= ROUNDING_RESIDUAL**2 * problem.unit
        if intervals == "profile" and not exact:
            found, better = profile_intervals(
                problem, point, cost, spread, noise, level, weights=table.weights, held=held, starts=others
            )
        if better is None:
            break
        optimum = _proven(problem, better[None], held, table.weights)
    if exact:
        warnings.append("the law fits to rounding: the intervals are those of rounding errors")
    if intervals == "none":
        found = [Interval(np.nan, np.nan)] * point.size
    elif intervals == "asymptotic" or exact:
        found = asymptotic_intervals(problem, point, spread, noise, level)
    elif intervals == "bootstrap":
        from validate.fit_bootstrap import bootstrap_intervals

        found = bootstrap_intervals(problem, point, held, table, level, resamples, seed)
    result = FitResult(
        law=law.name,
        n=problem.rows,
        objective=cost,
        parameters={},
        answered=True,
        status="",
        warnings=(),
        **criteria(problem, cost, free, known, table.weights),
        weight=np.nan,
        probability=np.nan,
        left_out_error=left_out_error(problem, point, held, table.weights),
        interval_method=intervals,
        level=level,
        agreeing_starts=agreeing,
        starts=starts,
        problem=problem,
        point=point,
        held=held,
        spread=spread,
        noise=noise,
        row_weights=table.weights,
        groups=table.groups,
    )
    return describe(result, found, warnings, verdict)


def _with_fixed(
    problem: FitProblem, fixed: Mapping[str, float], plateau_minimum: float
) -> tuple[FitProblem, np.ndarray, FloatArray]:
    """Return the problem with its domain set, which parameters are held, and their values on the search scale."""
    names = problem.law.parameter_names
    lower = problem.lower.copy()
    if "plateau" in names:
        if np.isnan(plateau_minimum):
            raise ValueError(f"plateau_minimum={plateau_minimum}: must be a number or -inf")
        lower[names.index("plateau")] = plateau_minimum
    held = np.zeros(len(names), dtype=bool)
    values = np.ones(len(names))
    for name, value in fixed.items():
        place = names.index(choice("fixed", name, names))
        parameter = problem.law.parameters[place]
        values[place] = real(f"fixed[{name}]", value, above=0 if parameter.scale == "log" else None)
        held[place] = True
    point = problem.searched(values)
    upper = problem.upper.copy()
    lower[held], upper[held] = np.minimum(lower, point)[held], np.maximum(upper, point)[held]
    return replace(problem, lower=lower, upper=upper), held, point


def _global_minimum(
    problem: FitProblem, held: np.ndarray, fixed_point: FloatArray, weights: FloatArray, starts: int, seed: int
) -> tuple[Optima, int]:
    """Return the best of many starts, proven, and how many starts ended there."""
    points = sobol_starts(problem, starts, seed=seed)
    points[:, held] = fixed_point[held]
    if problem.robust != "linear":
        wide = replace(problem, robust_scale=WIDER * problem.robust_scale)
        points = minimise(wide, points, weights=weights, held=held, polish=False, settle=ROUGH).points
    # A Huber cost with few rows inside its bend has curvature that only Newton steps see.
    rough = minimise(problem, points, weights=weights, held=held, polish=problem.robust == "huber", settle=ROUGH)
    order = np.argsort(rough.costs)
    best = _proven(problem, rough.points[order[:1]], held, weights)
    limit = best.costs[0] * (1.0 + AGREEMENT) + 1e-24 * problem.rows
    return best, int(np.sum(rough.costs <= limit))


def _proven(problem: FitProblem, start: FloatArray, held: np.ndarray, weights: FloatArray) -> Optima:
    """Return the optimum after lmfit's least squares and Newton steps from ``start``, or raise if it is not one."""
    from validate.fit_polish import lmfit_polish
    from validate.fit_result import FitError
    from validate.fit_valley import valley_bottom

    point = lmfit_polish(problem, start[0], held, weights)
    both = minimise(problem, np.stack([start[0], point]), weights=weights, held=held)
    best = int(np.argmin(both.costs))
    if not both.converged[best]:
        both = minimise(problem, both.points[[best]], weights=weights, held=held, newton_steps=20 * NEWTON_STEPS)
        best = 0
    if not both.converged[best]:
        bottom = valley_bottom(problem, both.points[best], weights, held)
        both = minimise(problem, bottom[None], weights=weights, held=held)
    accepted = both.converged[best] or (both.flat[best] and both.decrements[best] < FLAT_DECREMENT)
    if not accepted:
        raise FitError(
            f"law={problem.law.name!r} did not converge: a Newton step would still lower the objective by "
            f"{both.decrements[best]:.1e} of itself; more starts or fewer free parameters may help"
        )
    return both.take(slice(best, best + 1))
