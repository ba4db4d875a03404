"""The last descent of a fit by lmfit: bounded least squares with the law's own Jacobian and the robust cost."""

from __future__ import annotations

import numpy as np

from theory.checks import FloatArray
from validate.fit_problem import FitProblem


def lmfit_polish(problem: FitProblem, start: FloatArray, held: np.ndarray, weights: FloatArray) -> FloatArray:
    """Return where lmfit's ``least_squares`` ends from ``start``, both (k,) on the search scale."""
    import lmfit

    names = problem.law.parameter_names
    parameters = lmfit.Parameters()
    for place, name in enumerate(names):
        lower, upper = problem.lower[place], problem.upper[place]
        parameters.add(name, value=start[place], min=lower, max=upper, vary=not held[place])
    if held.all():
        return start.copy()
    # scipy's robust costs bend on the residual itself, so relative weights are applied only to a plain square.
    root = np.sqrt(weights) if problem.robust == "linear" else np.ones(problem.rows)

    def point_of(given: lmfit.Parameters) -> FloatArray:
        return np.array([[given[name].value for name in names]])

    def residual(given: lmfit.Parameters) -> FloatArray:
        values = root * problem.residual(point_of(given))[0]
        return np.where(np.isfinite(values), values, 1e6)

    def jacobian(given: lmfit.Parameters) -> FloatArray:
        return (root[:, None] * problem.jacobian(point_of(given))[0])[:, ~held]

    minimizer = lmfit.Minimizer(residual, parameters, calc_covar=False)
    # At an exact fit lmfit divides a covariance of zeros; its own error bars are not used here.
    with np.errstate(all="ignore"):
        outcome = minimizer.minimize(
            method="least_squares",
            jac=jacobian,
            x_scale="jac",
            loss=problem.robust,
            f_scale=problem.robust_scale,
            ftol=1e-15,
            xtol=1e-15,
            gtol=1e-15,
            max_nfev=200,
        )
    return point_of(outcome.params)[0]
