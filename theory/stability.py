"""Largest stable learning rate of the tied recursion from zero, at each depth.

The recursion gamma <- gamma - (eta/D) s(gamma), s = d loss/d gamma_l at equal gains, is a map of the line. The
population loss is convex in the tied gain, so s increases, and the first step from zero lands at gamma_1 = eta F/D,
F = -s(0). If s(gamma_1) < F the second step lands between 0 and gamma_1 and the map contracts; if s(gamma_1) > F it
lands below 0, where the force is larger than the one that started it, and every further step is longer than the last.
The edge is the two-cycle 0 -> gamma_1 -> 0:

    eta_c = D m/F,  m the mirror gain, s(m) = -s(0).

At L = 1, where s is linear, this is the edge of linear stability at the optimum, 2/curvature. Deeper models are
sharpest at the start: linear stability at the optimum alone would allow rates larger by orders of magnitude.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from theory.checks import integer
from theory.floors import tied_optimum_of
from theory.losses import QuadraticLoss, apply_average, noise_response, tied
from theory.results import Result
from theory.tie_breaking import compress


@dataclasses.dataclass(frozen=True)
class EdgeOfStability(Result):
    """Largest stable learning rates of the tied recursion.

    Attributes
    ----------
    learning_rate : float
        From a start at zero: the smaller of the two below.
    first_step : float
        D m/F, beyond which the recursion from zero runs away.
    optimum : float
        2 D L/(second derivative of the tied loss at its optimum), beyond which the optimum repels; inf where it
        is flat.
    mirror_gain : float
        m, where the slope is the opposite of the slope at zero.
    """

    learning_rate: float
    first_step: float
    optimum: float
    mirror_gain: float


def edge_of_stability(loss: QuadraticLoss, depth: int) -> EdgeOfStability:
    """Return the largest stable learning rate of `theory.flow.tied_sgd` from zero.

    Parameters
    ----------
    loss : QuadraticLoss
    depth : int

    Raises
    ------
    ValueError
        For a bad depth.
    """
    from scipy.optimize import brentq

    depth = integer("depth", depth)
    small = compress(loss, depth)

    def slope(gain: float) -> float:
        return float(small.gradient(tied(gain, depth)).mean())

    best = tied_optimum_of(small, depth).gains[0]
    force = -slope(0.0)
    high = 2 * best
    while slope(high) < force:
        high *= 2
    mirror = float(brentq(lambda gain: slope(gain) - force, best, high, rtol=8 * np.finfo(float).eps))
    bend = tied_curvature(small, best, depth)
    first, local = small.dim * mirror / force, 2 * small.dim * depth / bend if bend > 0 else math.inf
    return EdgeOfStability(min(first, local), first, local, mirror)


def tied_curvature(loss: QuadraticLoss, gain: float, depth: int) -> float:
    """Return the second derivative of the tied loss in the gain.

    Raises
    ------
    ValueError
        For a bad depth.
    """
    depth = integer("depth", depth)
    x = loss.nodes
    factor = 1 - gain * x / depth
    value, first = factor**depth, -x * factor ** (depth - 1)
    second = x**2 * (depth - 1) / depth * factor ** max(depth - 2, 0)
    result = 2 * first @ apply_average(loss.gram, first) + 2 * value @ apply_average(loss.gram, second)
    if loss.noise is not None:
        response, rise = noise_response(x, tied(gain, depth)), factor ** (depth - 1)
        bend = -x * (depth - 1) / depth * factor ** max(depth - 2, 0)
        result += 2 * rise @ apply_average(loss.noise, rise) + 2 * response @ apply_average(loss.noise, bend)
    return float(result)
