"""Training of the tied gain from zero: gradient flow, and the discrete recursion of SGD without batch noise.

Rotation symmetry keeps Gamma_l = gamma_l I, and a gradient step on every entry of Gamma_l moves the gain by

    gamma_l <- gamma_l - (learning_rate / D) d loss / d gamma_l.

A tied start stays tied. Flow is the limit of small steps at fixed time = learning_rate * step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from theory.checks import FloatArray, integer, real, stopped, vector
from theory.jit import kernel
from theory.losses import QuadraticLoss, tied_losses_of, tied_slopes
from theory.measure import SpectralMeasure
from theory.tied import tied_curve

# Relative error asked of the flow's solver at every step; errors accumulate to a few hundred times this.
FLOW_TOLERANCE = 1e-12
# The flow is followed in s = -log(1 - gain/optimum), which grows evenly once s > ARRIVED: no time is too long.
ARRIVED = 12.0
# Relative rounding of the pace that the integrator can follow, draws to estimate it by, and where s must not end yet.
PACE_NOISE = 1e-10
ROUNDINGS = 8
EARLIEST = 4.0
# Doublings of the gain that bracket the optimum, and halvings that find it.
DOUBLINGS = 200
BISECTIONS = 1100


@dataclasses.dataclass(frozen=True, eq=False)
class GainPath:
    """A tied gain and its loss along training.

    Parameters
    ----------
    gains : array of shape (replicates, n)
        The gain shared by all layers, at each recorded time.
    losses : array of shape (replicates, n)
        NaN from the moment a recursion has diverged.
    status : str
        A sentence: what the solver has to say.
    """

    gains: FloatArray
    losses: FloatArray
    status: str


def tied_flow(loss: QuadraticLoss, depth: int, times: FloatArray) -> GainPath:
    """Return the tied gradient flow dgamma/dt = -(1/D) d loss / d gamma_l from zero, at ``times``.

    Parameters
    ----------
    loss : QuadraticLoss
        Its replicates are integrated side by side.
    depth : int
        L.
    times : array of shape (n,)
        Strictly increasing, >= 0, in units of learning rate x steps.

    Raises
    ------
    ValueError
        For bad arguments.
    RuntimeError
        If the solver gives up, with its reason.
    """
    from scipy.integrate import solve_ivp

    depth = integer("depth", depth)
    wanted = vector("times", times, minimum=0.0, increasing=True)
    if loss.gram.ndim == 1 and loss.noise is None:
        curve = tied_curve(SpectralMeasure(loss.nodes, loss.gram, loss.dim), depth, wanted)
        return GainPath(curve.gammas[None], curve.losses[None], "Integrated to rounding.")
    nodes, gram, noise = loss.dense()
    best = _first_optimum(nodes, gram, noise, depth)

    def pace(place: FloatArray) -> FloatArray:
        slope = tied_slopes(nodes, gram, noise, depth, -best * np.expm1(-place))
        found: FloatArray = np.maximum(-slope, 0.0) * np.exp(place) / np.maximum(best, np.finfo(float).tiny) / loss.dim
        return found

    # Near the optimum the ratio of slope and distance is its limit, not that of two roundings.
    near = _last_resolved(pace, loss.replicates)
    first, second, third = (pace(near - shift * math.log(2)) for shift in range(3))
    # The quadratic in x = exp(near - s) through x = 1, 2, 4; a pace that is resolved to the end is held.
    limit = np.where(near < ARRIVED, np.maximum((8 * first - 6 * second + third) / 3, 0.0), first)
    bend = np.where(near < ARRIVED, (second - 2 * first + limit) / 2, 0.0)
    slant = first - limit - bend

    def speed(_: float, place: FloatArray) -> FloatArray:
        x = np.exp(np.minimum(near - place, 0.0))
        return np.where(place < near, pace(np.minimum(place, near)), limit + slant * x + bend * x**2)

    places = np.zeros((loss.replicates, wanted.size))
    if wanted[-1] > 0:
        solution = solve_ivp(
            speed,
            (0.0, float(wanted[-1])),
            np.zeros(loss.replicates),
            method="LSODA",
            t_eval=wanted,
            rtol=FLOW_TOLERANCE,
            atol=1e-15,
            lband=0,
            uband=0,
        )
        if not solution.success:
            raise stopped(solution)
        places = solution.y
    gains = -best[:, None] * np.expm1(-places)
    losses = np.stack([tied_losses_of(nodes, gram, noise, depth, gains[:, i]) for i in range(wanted.size)], axis=1)
    return GainPath(gains, losses, "Converged to the requested accuracy.")


def _last_resolved(pace: Callable[[FloatArray], FloatArray], replicates: int) -> FloatArray:
    """Return up to which s the pace of each replicate stands above its rounding, at most `ARRIVED`.

    The slope's rounding stays while the slope falls like e^-s; large nodes of rare contexts, whose terms cancel, make
    it matter early. Beyond, the pace is continued as a quadratic in e^-s, with an error of order e^-3s.
    """
    there = np.full(replicates, ARRIVED)
    shifts = 1e-9 * np.arange(ROUNDINGS)
    seen = np.array([pace(there + shift) for shift in shifts])
    middle = np.maximum(seen.mean(axis=0), np.finfo(float).tiny)
    noise = np.maximum(seen.std(axis=0) / middle, np.finfo(float).eps)
    return np.clip(ARRIVED + np.log(PACE_NOISE / noise), EARLIEST, ARRIVED)


def _first_optimum(nodes: FloatArray, gram: FloatArray, noise: FloatArray, depth: int) -> FloatArray:
    """Return the tied gain of each replicate at which the flow from zero ends, by bisection to the last digit."""
    low = np.zeros(gram.shape[0])
    high = np.full(gram.shape[0], depth / float(nodes.max()))
    for _ in range(DOUBLINGS):
        short = tied_slopes(nodes, gram, noise, depth, high) < 0
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if np.all((middle <= low) | (middle >= high)):
            break
        below = tied_slopes(nodes, gram, noise, depth, middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low


def tied_sgd(loss: QuadraticLoss, depth: int, learning_rate: float, steps: FloatArray) -> GainPath:
    """Return the recursion of SGD on Gamma_l from zero, its gradient averaged over contexts, at ``steps``.

    Parameters
    ----------
    loss : QuadraticLoss
        Its replicates run side by side.
    depth : int
        L.
    learning_rate : float
        On every entry of Gamma_l.
    steps : array of shape (n,)
        Strictly increasing whole numbers; the loss at step s is the loss before update s (step 0 is the start).

    Raises
    ------
    ValueError
        For bad arguments.
    """
    depth = integer("depth", depth)
    rate = real("learning_rate", learning_rate, above=0)
    wanted = vector("steps", steps, minimum=0.0, increasing=True)
    if np.any(wanted != np.floor(wanted)):
        raise ValueError(f"steps={wanted[wanted != np.floor(wanted)][0]:g}: must be whole numbers")
    nodes, gram, noise = loss.dense()
    gains = _sgd_kernel(nodes, gram, noise, depth, rate / loss.dim, wanted.astype(np.int64))
    with np.errstate(over="ignore", invalid="ignore"):
        losses = np.stack([tied_losses_of(nodes, gram, noise, depth, gains[:, i]) for i in range(wanted.size)], axis=1)
    losses[~np.isfinite(losses)] = np.nan
    lost = np.flatnonzero(np.isnan(losses[0]))
    status = (
        "Ran every step." if lost.size == 0 else f"Diverged by step {int(wanted[lost[0]])}: lower the learning rate."
    )
    return GainPath(gains, losses, status)


@kernel
def _sgd_kernel(
    nodes: FloatArray, gram: FloatArray, noise: FloatArray, depth: int, rate: float, steps: FloatArray
) -> FloatArray:
    """Return the tied gain of every replicate at ``steps``; ``rate`` is learning_rate / D."""
    replicates, size = gram.shape[0], nodes.size
    recorded = np.empty((replicates, steps.size))
    others = np.empty(size)
    q = np.empty(size)
    r = np.empty(size)
    for replicate in range(replicates):
        gain = 0.0
        done = 0
        for index in range(steps.size):
            while done < steps[index]:
                for i in range(size):
                    factor = 1.0 - gain * nodes[i] / depth
                    power = 1.0
                    total = 0.0
                    for _ in range(depth - 1):
                        total += power
                        power *= factor
                    others[i] = power
                    q[i] = power * factor
                    r[i] = gain / depth * (total + power)
                slope = 0.0
                for i in range(size):
                    if gram.ndim == 2:
                        pull = gram[replicate, i] * q[i]
                    else:
                        pull = 0.0
                        for j in range(size):
                            pull += gram[replicate, i, j] * q[j]
                    slope -= nodes[i] * others[i] * pull
                    if noise.size > 0:
                        if noise.ndim == 2:
                            push = noise[replicate, i] * r[i]
                        else:
                            push = 0.0
                            for j in range(size):
                                push += noise[replicate, i, j] * r[j]
                        slope += others[i] * push
                gain -= rate * 2.0 / depth * slope
                done += 1
            recorded[replicate, index] = gain
    return recorded
