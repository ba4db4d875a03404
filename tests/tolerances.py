"""Every tolerance in the suite, by its cause. No test states another."""

from __future__ import annotations

import numpy as np

# Rounding: two float64 evaluations of one expression, conditioned like the formulas here.
ROUNDOFF = 1e-11
# Rounding after a cancelling or iterated computation (thousands of steps, nested sums).
ROUNDOFF_LONG = 1e-9
# Rounding of float32 training arithmetic.
ROUNDOFF_FLOAT32 = 2e-5
# A solver asked for this relative error; tests allow it a factor of ten.
SOLVER = 1e-9
# A central difference of step 1e-5: curvature and rounding leave 1e-10 of a slope of order one.
CENTRAL_DIFFERENCE = 1e-7
# Adam's first step is the rate up to epsilon = 1e-8 over the gradient.
FIRST_ADAM_STEP = 1e-5
# Exponents that the published cases state to three decimals, recomputed with their own grids.
PUBLISHED_EXPONENT = 0.002
# Standard errors that a Monte Carlo mean may be off: two-sided p = 6e-5 for each check.
SAMPLING_Z = 4.0


def sampling(standard_error: float | np.ndarray) -> float | np.ndarray:
    """Return the allowed deviation of a Monte Carlo mean with this standard error."""
    return SAMPLING_Z * standard_error


def model_error(size: float, power: float, constant: float = 3.0) -> float:
    """Return the allowed deviation of a law whose next correction is constant * size^-power."""
    return constant * size**-power


# Fits recomputed elsewhere and printed to four or five digits: 1 % on coefficients, 0.002 on exponents.
REFERENCE_COEFFICIENT = 0.01
REFERENCE_EXPONENT = 0.002
# Two descents to one optimum, each converged to a Newton decrement of 1e-10 of the cost.
SAME_OPTIMUM = 1e-4
