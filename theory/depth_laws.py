"""Depth laws: plain functions with named parameters, each with its gradient, domain, limits and derivation.

A law is a function of positive variables (depth; width, tokens, parameters for the joint laws) and of named
parameters. Functions and gradients broadcast: parameters of shape (B, 1) and a variable of shape (n,) give (B, n).
A gradient is the tuple of derivatives with respect to the parameters, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory.checks import FloatArray, choice

Array = Any
Function = Callable[..., Array]
Gradient = Callable[..., tuple[Array, ...]]

# Exponents outside this range cannot be told from a constant (below) or from a step at the smallest depth (above).
EXPONENT_RANGE = (1e-3, 20.0)
# Layers whose errors correlate more than this are one layer at every depth a table can hold.
LARGEST_CORRELATION = 0.99


@dataclass(frozen=True)
class LawParameter:
    """One parameter of a law: its name, its closed domain, and the scale on which it is searched.

    Attributes
    ----------
    name
        The field's word for it.
    lower, upper
        Domain; infinite where there is no end.
    scale
        ``log`` for a positive parameter searched on a log scale, ``linear`` else.
    meaning
        One line, with units.
    """

    name: str
    lower: float
    upper: float
    scale: str
    meaning: str


@dataclass(frozen=True)
class DepthLaw:
    """A law that loss may follow.

    Attributes
    ----------
    name
        Its name in output and on the command line.
    variables
        The columns that it takes, in the order of ``function``'s first arguments.
    parameters
        Its parameters, in the order of ``function``'s further arguments.
    formula
        The law in text.
    function, gradient
        ``function(*variables, *parameters)`` and its derivatives with respect to the parameters.
    limits
        What it tends to where a variable grows.
    derivation
        Where it comes from.
    """

    name: str
    variables: tuple[str, ...]
    parameters: tuple[LawParameter, ...]
    formula: str
    function: Function
    gradient: Gradient
    limits: str
    derivation: str

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(parameter.name for parameter in self.parameters)

    def __call__(self, variables: Mapping[str, Array] | Array, **parameters: float) -> FloatArray:
        """Return the loss at ``variables`` (a mapping, or depths alone for a law of depth) for named parameters.

        Raises
        ------
        ValueError
            If a parameter is missing or unknown.
        """
        if set(parameters) != set(self.parameter_names):
            raise ValueError(f"parameters={sorted(parameters)}: must be {', '.join(self.parameter_names)}")
        given = variables if isinstance(variables, Mapping) else {self.variables[0]: variables}
        columns = [np.asarray(given[name], dtype=np.float64) for name in self.variables]
        return np.asarray(self.function(*columns, *(parameters[name] for name in self.parameter_names)))


def inverse_depth(depth: Array, plateau: Array, coefficient: Array) -> Array:
    """Return ``plateau + coefficient / depth``."""
    return plateau + coefficient / depth


def inverse_depth_gradient(depth: Array, plateau: Array, coefficient: Array) -> tuple[Array, ...]:
    """Return the derivatives of `inverse_depth` with respect to its parameters."""
    return _one(depth, plateau), 1.0 / depth + 0.0 * coefficient


def discretisation(depth: Array, plateau: Array, coefficient: Array) -> Array:
    """Return ``plateau + coefficient / depth**2``."""
    return plateau + coefficient / depth**2


def discretisation_gradient(depth: Array, plateau: Array, coefficient: Array) -> tuple[Array, ...]:
    """Return the derivatives of `discretisation` with respect to its parameters."""
    return _one(depth, plateau), depth**-2.0 + 0.0 * coefficient


def corrected(depth: Array, plateau: Array, coefficient: Array, second_coefficient: Array) -> Array:
    """Return ``plateau + coefficient / depth + second_coefficient / depth**2``; the last may have either sign."""
    return plateau + coefficient / depth + second_coefficient / depth**2


def corrected_gradient(
    depth: Array, plateau: Array, coefficient: Array, second_coefficient: Array
) -> tuple[Array, ...]:
    """Return the derivatives of `corrected` with respect to its parameters."""
    return _one(depth, plateau), 1.0 / depth + 0.0 * coefficient, depth**-2.0 + 0.0 * second_coefficient


def power(depth: Array, plateau: Array, coefficient: Array, exponent: Array) -> Array:
    """Return ``plateau + coefficient * depth**-exponent``."""
    return plateau + coefficient * np.exp(-exponent * np.log(depth))


def power_gradient(depth: Array, plateau: Array, coefficient: Array, exponent: Array) -> tuple[Array, ...]:
    """Return the derivatives of `power` with respect to its parameters."""
    logarithm = np.log(depth)
    falling = np.exp(-exponent * logarithm)
    return _one(falling, plateau), falling, -coefficient * logarithm * falling


def spectral(depth: Array, coefficient: Array, exponent: Array) -> Array:
    """Return ``coefficient * depth**-exponent``, with no plateau."""
    return coefficient * np.exp(-exponent * np.log(depth))


def spectral_gradient(depth: Array, coefficient: Array, exponent: Array) -> tuple[Array, ...]:
    """Return the derivatives of `spectral` with respect to its parameters."""
    return power_gradient(depth, 0.0, coefficient, exponent)[1:]


def exponential(depth: Array, plateau: Array, coefficient: Array, decay_depth: Array) -> Array:
    """Return ``plateau + coefficient * exp(-depth / decay_depth)``."""
    return plateau + coefficient * np.exp(-depth / decay_depth)


def exponential_gradient(depth: Array, plateau: Array, coefficient: Array, decay_depth: Array) -> tuple[Array, ...]:
    """Return the derivatives of `exponential` with respect to its parameters."""
    falling = np.exp(-depth / decay_depth)
    return _one(falling, plateau), falling, coefficient * falling * depth / decay_depth**2


def ar1(depth: Array, plateau: Array, coefficient: Array, correlation: Array) -> Array:
    """Return ``plateau + coefficient * g(depth, correlation)``, ``g`` the variance of the mean of L unit AR(1) errors.

    ``g = [(1+r)/(1-r) - 2 r (1-r^L) / (L (1-r)^2)] / L``; it is ``1/L`` at r = 0 and tends to
    ``(1+r)/(1-r)/L``.
    """
    return plateau + coefficient * _ar1_mean(depth, correlation)[0]


def ar1_gradient(depth: Array, plateau: Array, coefficient: Array, correlation: Array) -> tuple[Array, ...]:
    """Return the derivatives of `ar1` with respect to its parameters."""
    mean, slope = _ar1_mean(depth, correlation)
    return _one(mean, plateau), mean, coefficient * slope


def _ar1_mean(depth: Array, r: Array) -> tuple[Array, Array]:
    """Return the variance of the mean of L unit AR(1) errors and its derivative with respect to r."""
    gap = 1.0 - r
    faded = np.power(r, depth)
    mean = ((1.0 + r) / gap - 2.0 * r * (1.0 - faded) / (depth * gap**2)) / depth
    curve = (1.0 - faded - depth * faded) / gap**2 + 2.0 * r * (1.0 - faded) / gap**3
    slope = 2.0 * (1.0 / gap**2 - curve / depth) / depth
    return mean, slope


def _one(shape_of: Array, parameter: Array) -> Array:
    return np.ones(np.broadcast_shapes(np.shape(shape_of), np.shape(parameter)))


def _plateau(minimum: float = 0.0) -> LawParameter:
    return LawParameter("plateau", minimum, math.inf, "linear", "loss that no depth removes")


def _coefficient(name: str = "coefficient", of: str = "the gain at depth 1") -> LawParameter:
    return LawParameter(name, 0.0, math.inf, "log", f"size of {of}, in units of loss")


def _exponent(name: str = "exponent", of: str = "depth") -> LawParameter:
    return LawParameter(name, *EXPONENT_RANGE, "log", f"power with which the gain falls in {of}")


INVERSE_DEPTH = DepthLaw(
    "inverse-depth",
    ("depth",),
    (_plateau(), _coefficient()),
    "plateau + coefficient/L",
    inverse_depth,
    inverse_depth_gradient,
    "plateau as L grows; the gap halves when L doubles",
    "exchangeable layer errors, covariance s^2[(1-rho) I + rho 11^T]: 1^T C 1 / L^2 = rho s^2 + (1-rho) s^2/L",
)
POWER = DepthLaw(
    "power",
    ("depth",),
    (_plateau(), _coefficient(), _exponent()),
    "plateau + coefficient L^-exponent",
    power,
    power_gradient,
    "plateau as L grows; a logarithm as the exponent tends to 0",
    "free exponent: the alternative against which exponent 1 is tested",
)
EXPONENTIAL = DepthLaw(
    "exponential",
    ("depth",),
    (
        _plateau(),
        _coefficient(of="the gain at depth 0"),
        LawParameter("decay_depth", 1e-2, 1e6, "log", "layers over which the gap falls by e"),
    ),
    "plateau + coefficient exp(-L/decay_depth)",
    exponential,
    exponential_gradient,
    "plateau as L grows, faster than any power; a straight line as decay_depth grows",
    "each layer removes the same fraction of the remaining error: gap_(l+1) = q gap_l, decay_depth = -1/log q",
)
DISCRETISATION = DepthLaw(
    "discretisation",
    ("depth",),
    (_plateau(), _coefficient()),
    "plateau + coefficient/L^2",
    discretisation,
    discretisation_gradient,
    "plateau as L grows; the gap quarters when L doubles",
    "L Euler steps of a smooth flow, step 1/L: state error O(1/L), squared in the loss at the flow's optimum",
)
SPECTRAL = DepthLaw(
    "spectral",
    ("depth",),
    (_coefficient(), _exponent()),
    "coefficient L^-exponent",
    spectral,
    spectral_gradient,
    "0 as L grows",
    "reduced linear model on a power-law spectrum: exponent beta with tied gains, 2 beta untied",
)
AR1 = DepthLaw(
    "ar1",
    ("depth",),
    (
        _plateau(),
        _coefficient(of="one layer's error variance"),
        LawParameter("correlation", 0.0, LARGEST_CORRELATION, "linear", "correlation of neighbouring layers' errors"),
    ),
    "plateau + coefficient/L [(1+r)/(1-r) - 2r(1-r^L)/(L(1-r)^2)]",
    ar1,
    ar1_gradient,
    "plateau + coefficient (1+r)/(1-r)/L as L grows; inverse-depth at r = 0",
    "layer errors with correlation r^|l-m|: 1^T C 1 / L^2 summed as a geometric series",
)
CORRECTED = DepthLaw(
    "inverse-depth-corrected",
    ("depth",),
    (
        _plateau(),
        _coefficient(),
        LawParameter("second_coefficient", -math.inf, math.inf, "linear", "next order in 1/L, in units of loss"),
    ),
    "plateau + coefficient/L + second_coefficient/L^2",
    corrected,
    corrected_gradient,
    "inverse-depth as L grows",
    "next order of the central-limit form: end effects of correlated layers and the readout's curvature",
)

DEPTH_LAWS: dict[str, DepthLaw] = {
    law.name: law for law in (INVERSE_DEPTH, POWER, EXPONENTIAL, DISCRETISATION, SPECTRAL, AR1, CORRECTED)
}


def additive_law(variables: tuple[str, ...]) -> DepthLaw:
    """Return the joint law ``plateau + sum over variables v of v_coefficient * v**-v_exponent``.

    Parameters
    ----------
    variables
        Any of ``width``, ``depth``, ``tokens``, ``parameters``, each at most once, at least one.

    Returns
    -------
    DepthLaw
        Parameters ``plateau``, then ``v_coefficient`` and ``v_exponent`` for each variable.

    Raises
    ------
    ValueError
        If a variable is unknown or doubled.

    Notes
    -----
    The limits of separate resources add: Hoffmann et al. (2022), equation 2, for parameters and tokens;
    arXiv 2602.05970 for width, depth and tokens.
    """
    for name in variables:
        choice("variables", name, ("width", "depth", "tokens", "parameters"))
    if not variables or len(set(variables)) != len(variables):
        raise ValueError(f"variables={variables!r}: must be different names, at least one")
    count = len(variables)

    def function(*arguments: Array) -> Array:
        columns, plateau, rest = arguments[:count], arguments[count], arguments[count + 1 :]
        total = plateau
        for position, column in enumerate(columns):
            total = total + rest[2 * position] * np.exp(-rest[2 * position + 1] * np.log(column))
        return total

    def gradient(*arguments: Array) -> tuple[Array, ...]:
        columns, plateau, rest = arguments[:count], arguments[count], arguments[count + 1 :]
        parts: list[Array] = []
        for position, column in enumerate(columns):
            logarithm = np.log(column)
            falling = np.exp(-rest[2 * position + 1] * logarithm)
            parts += [falling, -rest[2 * position] * logarithm * falling]
        return (_one(parts[0], plateau), *parts)

    parameters = [_plateau()]
    for name in variables:
        parameters += [_coefficient(f"{name}_coefficient", f"the term in {name}"), _exponent(f"{name}_exponent", name)]
    return DepthLaw(
        "additive-" + "-".join(variables),
        variables,
        tuple(parameters),
        "plateau + " + " + ".join(f"{name}_coefficient {name}^-{name}_exponent" for name in variables),
        function,
        gradient,
        "plateau as all variables grow; the law of the others as one grows",
        "limits set by separate resources add (Hoffmann et al. 2022, eq. 2; arXiv 2602.05970)",
    )


def depth_law(name: str) -> DepthLaw:
    """Return the depth law called ``name``: a key of ``DEPTH_LAWS``.

    Raises
    ------
    ValueError
        If there is none.
    """
    return DEPTH_LAWS[choice("law", name, DEPTH_LAWS)]
