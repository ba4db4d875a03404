"""What a fit advises: the depth at which the gain is exhausted, and the best width and depth under a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from theory.checks import FloatArray, integer, real
from theory.results import Result, plain
from validate.fit_bootstrap import bootstrap_points, bootstrap_weights
from validate.fit_checks import FitTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from validate.fit_result import FitResult

# Parameters of a transformer block of width N: 4 N^2 in attention, 8 N^2 in the MLP.
PARAMETERS_PER_LAYER = 12.0
DEEPEST = 1e9


@dataclass(frozen=True)
class Advice(Result):
    """A number derived from a fit, with its bootstrap interval; infinite where it does not exist.

    Attributes
    ----------
    value, interval
        The number and its percentile interval over refits of resampled rows.
    reason
        One sentence.
    never
        Share of the resamples in which the number is infinite.
    """

    value: float
    interval: tuple[float, float]
    reason: str
    never: float

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.value:.4g} [{self.interval[0]:.4g}, {self.interval[1]:.4g}]: {self.reason}"


@dataclass(frozen=True)
class Shape(Result):
    """The width and depth of least loss at a parameter count.

    Attributes
    ----------
    width, depth, loss
        At the optimum, not rounded.
    width_interval, depth_interval
        Percentile intervals over refits of resampled rows.
    parameters
        The budget.
    reason
        One sentence, a warning where the optimum lies outside the data.
    """

    width: float
    depth: float
    loss: float
    width_interval: tuple[float, float]
    depth_interval: tuple[float, float]
    parameters: float
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        names = ("width", "depth", "loss", "width_interval", "depth_interval", "parameters", "reason")
        return {name: plain(getattr(self, name)) for name in names}

    def __str__(self) -> str:
        """Return one line."""
        return f"width {self.width:.4g}, depth {self.depth:.4g}, loss {self.loss:.4g}: {self.reason}"


def exhausted_depth(fit: FitResult, *, within: float = 0.05, resamples: int = 200, seed: int = 0) -> Advice:
    """Return the depth beyond which depth can lower the loss by no more than ``within`` of the plateau.

    Parameters
    ----------
    fit
        A fit of a law with a plateau; in a joint law, of its depth term.
    within
        Share of the plateau, > 0.
    resamples, seed
        Of the bootstrap.

    Returns
    -------
    Advice
        Infinite where the plateau is 0.

    Raises
    ------
    ValueError
        If the fit has no answer or its law no plateau or depth.
    """
    real("within", within, above=0)
    law = fit.problem.law
    if not fit.answered or "plateau" not in law.parameter_names or "depth" not in law.variables:
        raise ValueError(f"law={fit.law!r}: an answered fit of a law with depth and a plateau is needed")
    names = law.parameter_names

    def depth_of(values: FloatArray) -> float:
        given = dict(zip(names, values, strict=True))
        plateau = given["plateau"]
        if plateau <= 0:
            return np.inf
        if len(law.variables) > 1:
            return float((given["depth_coefficient"] / (within * plateau)) ** (1.0 / given["depth_exponent"]))
        return _solve(lambda depth: float(law.function(depth, *values)) - plateau * (1.0 + within))

    value, draws = _with_draws(fit, depth_of, resamples, seed)
    interval = _percentiles(draws[:, 0], fit.level)
    reason = (
        f"depth still lowers the loss by {within:.1%} of the plateau there"
        if np.isfinite(value[0])
        else ("the plateau is 0: the gain is never exhausted")
    )
    return Advice(float(value[0]), interval, reason, float(np.mean(np.isinf(draws[:, 0]))))


def best_shape(
    fit: FitResult,
    parameters: float,
    *,
    tokens: float | None = None,
    parameters_per_layer: float = PARAMETERS_PER_LAYER,
    resamples: int = 200,
    seed: int = 0,
) -> Shape:
    """Return the width and depth of least fitted loss with ``parameters_per_layer width^2 depth = parameters``.

    With the terms ``c_w width^-a_w + c_d depth^-a_d`` the optimum solves ``a_w c_w width^-a_w = 2 a_d c_d depth^-a_d``
    on the budget, a monotone equation in the depth.

    Parameters
    ----------
    fit
        A joint fit with width and depth.
    parameters
        Budget of the layers' parameters, > 0.
    tokens
        For the loss at the optimum, where the law has tokens (the medium one of the data if ``None``).
    parameters_per_layer
        12 for attention with an MLP of ratio 4.
    resamples, seed
        Of the bootstrap.

    Returns
    -------
    Shape

    Raises
    ------
    ValueError
        If the fit has no answer, or its law no width and depth.
    """
    real("parameters", parameters, above=0)
    real("parameters_per_layer", parameters_per_layer, above=0)
    law = fit.problem.law
    if not fit.answered or not {"width", "depth"} <= set(law.variables) or "parameters" in law.variables:
        raise ValueError(f"law={fit.law!r}: an answered joint fit with width and depth is needed")
    names = law.parameter_names
    area = parameters / parameters_per_layer

    def depth_of(values: FloatArray) -> float:
        given = dict(zip(names, values, strict=True))
        a_w, a_d = given["width_exponent"], given["depth_exponent"]
        left = np.log(a_w * given["width_coefficient"]) - 0.5 * a_w * np.log(area)
        right = np.log(2.0 * a_d * given["depth_coefficient"])
        return float(np.exp((right - left) / (0.5 * a_w + a_d)))

    value, draws = _with_draws(fit, depth_of, resamples, seed)
    depth, depths = float(value[0]), draws[:, 0]
    width = float(np.sqrt(area / depth))
    others = {}
    if "tokens" in law.variables:
        others["tokens"] = float(np.median(fit.problem.columns["tokens"]) if tokens is None else tokens)
    loss = float(fit.loss_at(depth, width=width, **others)[0])
    outside = [
        name
        for name, at in (("width", width), ("depth", depth))
        if not fit.problem.columns[name].min() <= at <= fit.problem.columns[name].max()
    ]
    reason = f"outside the data in {' and '.join(outside)}" if outside else "within the data"
    return Shape(
        width,
        depth,
        loss,
        _percentiles(np.sqrt(area / depths), fit.level),
        _percentiles(depths, fit.level),
        float(parameters),
        reason,
    )


def _solve(excess: Callable[[float], float]) -> float:
    """Return where a falling function of depth crosses zero, 0 if it is below from the start, inf if it never is."""
    low, high = 1e-6, 1.0
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        high *= 4.0
        if high > DEEPEST:
            return np.inf
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-12))


def _with_draws(
    fit: FitResult, number: Callable[[FloatArray], float], resamples: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return ``number`` at the fit, (1,), and at refits of resampled rows, (resamples, 1)."""
    integer("resamples", resamples, minimum=20)
    problem = fit.problem
    table = FitTable(dict(problem.columns), problem.loss_values, problem.sigma, fit.row_weights, fit.groups, ())
    weights = bootstrap_weights(table, resamples, seed) * fit.row_weights
    points = problem.natural(bootstrap_points(problem, fit.point, fit.held, weights).points)
    value = number(problem.natural(fit.point[None])[0])
    return np.array([value]), np.array([[number(point)] for point in points])


def _percentiles(draws: FloatArray, level: float) -> tuple[float, float]:
    # Counted, not interpolated: draws may be infinite.
    ordered = np.sort(draws)
    low = int(np.floor(0.5 * (1.0 - level) * (draws.size - 1)))
    return float(ordered[low]), float(ordered[draws.size - 1 - low])
