"""Starts for a fit: Sobol points over the shapes, the sizes solved for linearly or drawn."""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from theory.checks import FloatArray
from validate.fit_problem import FitProblem

EXPONENTS = (0.05, 5.0)
CORRELATIONS = (0.0, 0.98)
# Shares of the largest loss that a drawn term may have at the middle of its variable.
SHARES = (1e-3, 1.0)


def sobol_starts(problem: FitProblem, count: int, *, seed: int = 0) -> FloatArray:
    """Return ``count`` starts on the search scale, (count, k).

    Exponents, decay depths and correlations are Sobol points over wide ranges. In every second start the plateau and
    the coefficients are the least squares solution for those shapes, where it lies in the domain; in the others they
    are Sobol points too, so that no start depends on a solution that hides another optimum.
    """
    law = problem.law
    unit = qmc.Sobol(len(law.parameters), seed=seed).random_base2(max(count - 1, 1).bit_length())[:count]
    losses = problem.loss_values
    values = np.empty((count, len(law.parameters)))
    exponents: dict[str, FloatArray] = {}
    for index, parameter in enumerate(law.parameters):
        u = unit[:, index]
        if parameter.name.endswith("exponent"):
            values[:, index] = _log_between(u, *EXPONENTS)
            exponents[parameter.name] = values[:, index]
        elif parameter.name == "decay_depth":
            depth = problem.columns["depth"]
            values[:, index] = _log_between(u, 0.2 * depth.min(), 5.0 * depth.max())
        elif parameter.name == "correlation":
            values[:, index] = CORRELATIONS[0] + u * (CORRELATIONS[1] - CORRELATIONS[0])
        elif parameter.name == "plateau":
            values[:, index] = u * losses.min()
        elif parameter.name == "second_coefficient":
            values[:, index] = (2.0 * u - 1.0) * losses.max()
    for index, parameter in enumerate(law.parameters):
        if parameter.name.endswith("coefficient") and parameter.scale == "log":
            stem = parameter.name.removesuffix("coefficient")
            column = problem.columns[stem.rstrip("_") or "depth"]
            power = exponents.get(stem + "exponent", np.ones(count))
            middle = np.exp(power * np.mean(np.log(column)))
            values[:, index] = _log_between(unit[:, index], *SHARES) * losses.max() * middle
    values[::2] = _sizes_by_least_squares(problem, values[::2])
    return np.clip(problem.searched(values), problem.lower, problem.upper)


def _log_between(unit: FloatArray, low: float, high: float) -> FloatArray:
    return low * (high / low) ** unit


def _sizes_by_least_squares(problem: FitProblem, values: FloatArray) -> FloatArray:
    """Return ``values`` with the parameters in which the law is linear solved for, where they lie in the domain."""
    law = problem.law
    linear = [
        index for index, name in enumerate(law.parameter_names) if name == "plateau" or name.endswith("coefficient")
    ]
    columns = [problem.columns[name] for name in law.variables]
    parts = law.gradient(*columns, *(values[:, [index]] for index in range(values.shape[1])))
    shape = (len(values), problem.rows)
    relative = 1.0 / problem.loss_values if problem.residuals == "log" else np.ones(problem.rows)
    out = values.copy()
    basis = np.stack([np.broadcast_to(parts[index], shape) for index in linear], axis=-1) * relative[:, None]
    for row, matrix in enumerate(basis):
        scale = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
        solved = np.linalg.lstsq(matrix / scale, problem.loss_values * relative, rcond=1e-10)[0] / scale
        if all(
            solved[place] > 0 if law.parameters[index].scale == "log" else solved[place] >= law.parameters[index].lower
            for place, index in enumerate(linear)
        ):
            out[row, linear] = solved
    return out
