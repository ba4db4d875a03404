"""Untied gains: L coupled equations, the instability of the tied manifold, and when the layers separate.

A tied start stays tied exactly. Differences between layers obey, to first order, d delta/dt = kappa delta with

    kappa = -(h_same - h_other)/D,  h the second derivatives of the loss in gamma_l, gamma_m at equal gains,

positive for L >= 2. In the population

    kappa = (2/D) sum_k lambda_k omega_k (lambda_k/L)^2 (1 - gamma lambda_k/L)^(2L-2),

which is 1/(2L - 1) of the rate at which the tied force F falls, so that delta^(2L-1) F is conserved along the flow:

    delta(t) = delta(0) [F(0)/F(t)]^(1/(2L-1)),  F = sum_k lambda_k^2 omega_k (1 - gamma lambda_k/L)^(2L-1).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from theory.checks import LARGEST_GAIN, FloatArray, integer, real, stopped, vector
from theory.floors import jacobi_matrix, tied_optimum_of, untied_floor_of
from theory.losses import QuadraticLoss, apply_average, noise_response, tied
from theory.results import Result, axes_or_new
from theory.untied import untied_path

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Relative error asked of the solver.
SOLVER_TOLERANCE = 1e-11
# Layers have separated when the loss is below the tied curve by this share of (tied optimum - untied floor).
SEPARATED = 0.1
# A recursion whose gains have grown beyond this has diverged.
RUN_AWAY = 1e6


@dataclasses.dataclass(frozen=True, eq=False)
class UntiedPath(Result):
    """Gains of every layer along the untied flow.

    Attributes
    ----------
    time : array of shape (n,)
    gains : array of shape (n, depth)
    loss : array of shape (n,)
    """

    time: FloatArray
    gains: FloatArray
    loss: FloatArray
    status: str = "Converged to the requested accuracy."

    def to_frame(self) -> pd.DataFrame:
        """Return one row a time: time, loss, gain_1 … gain_L."""
        import pandas as pd

        columns = {f"gain_{layer + 1}": self.gains[:, layer] for layer in range(self.gains.shape[1])}
        return pd.DataFrame({"time": self.time, "loss": self.loss, **columns})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss against time on log axes."""
        axes = axes_or_new(ax)
        shown = self.time > 0
        axes.loglog(self.time[shown], self.loss[shown], label="untied")
        axes.set(xlabel="time", ylabel="loss")
        return axes


@dataclasses.dataclass(frozen=True, eq=False)
class TieBreak(Result):
    """When a start that breaks the tie by a small amount leaves the tied curve.

    Attributes
    ----------
    size : float
        Largest |gamma_l - mean| at the start.
    rate : float
        kappa at the tied optimum: each factor e in ``size`` costs a time 1/rate.
    time : float
        Predicted time at which the loss is below the tied curve by the share ``SEPARATED`` of the distance between tied
        optimum and untied floor; inf where differences never grow so far.
    gain : float
        Tied gain at that time.
    """

    size: float
    rate: float
    time: float
    gain: float


def break_pattern(depth: int) -> FloatArray:
    """Return evenly spaced differences between layers, zero mean, largest modulus one, shape (depth,)."""
    depth = integer("depth", depth)
    return np.zeros(1) if depth == 1 else np.linspace(-1.0, 1.0, depth)


def untied_flow(loss: QuadraticLoss, start: npt.ArrayLike, times: Iterable[float]) -> UntiedPath:
    """Return the flow d gamma_l/dt = -(1/D) d loss/d gamma_l of all layers from ``start``.

    Parameters
    ----------
    loss : QuadraticLoss
        Population or finite context; its average over all draws is used.
    start : array of shape (depth,)
    times : increasing numbers >= 0

    Returns
    -------
    UntiedPath
        From equal gains the path is the tied one exactly: one equation is solved then, whatever the rounding. NaN from
        where float64 gains cannot follow the flow further, which ``status`` says.

    Raises
    ------
    ValueError
        For bad arguments.
    RuntimeError
        If the solver gives up, with its reason.
    """
    gains = vector("start", np.atleast_1d(np.asarray(start, dtype=np.float64)))
    moments = vector("times", times, minimum=0, increasing=True)
    small = compress(loss, gains.size)
    if small.gram.ndim == 1 and small.noise is None:
        states, losses, status = untied_path(small.nodes, small.gram, small.dim, gains, moments)
        return UntiedPath(moments, states, losses, status)
    groups, member = np.unique(gains, return_inverse=True)

    def force(_t: float, levels: FloatArray) -> FloatArray:
        slope = small.gradient(levels[member])
        # Equal gains have equal slopes; averaging keeps rounding from telling them apart.
        return -np.bincount(member, slope) / np.bincount(member) / small.dim

    levels = _solve(force, groups, moments)
    path = levels[:, member]
    return UntiedPath(moments, path, np.array([small.value(row) for row in path]))


def untied_sgd(loss: QuadraticLoss, start: npt.ArrayLike, learning_rate: float, steps: Iterable[float]) -> UntiedPath:
    """Return the recursion gamma_l <- gamma_l - (rate/D) d loss/d gamma_l of all layers, its gradient averaged.

    Equal layers stay equal exactly; ``time`` is learning rate x step; NaN once the recursion has diverged.

    Raises
    ------
    ValueError
        For bad arguments.
    """
    gains = vector("start", np.atleast_1d(np.asarray(start, dtype=np.float64)))
    rate, wanted = real("learning_rate", learning_rate, above=0), vector("steps", steps, minimum=0, increasing=True)
    if np.any(wanted != np.floor(wanted)):
        raise ValueError(f"steps={wanted[wanted != np.floor(wanted)][0]:g}: must be whole numbers")
    small = compress(loss, gains.size)
    levels, member = np.unique(gains, return_inverse=True)
    counts, done = np.bincount(member), 0
    path, losses = np.full((wanted.size, gains.size), np.nan), np.full(wanted.size, np.nan)
    status = "Ran every step."
    with np.errstate(over="ignore", invalid="ignore"):
        for index, step in enumerate(wanted):
            while done < step and np.abs(levels).max() < RUN_AWAY:
                levels = levels - rate / small.dim * np.bincount(member, small.gradient(levels[member])) / counts
                done += 1
            if done < step:
                status = f"Diverged by step {int(step)}: lower the learning rate."
                break
            path[index], losses[index] = levels[member], small.value(levels[member])
    return UntiedPath(rate * wanted, path, losses, status)


def compress(loss: QuadraticLoss, depth: int) -> QuadraticLoss:
    """Return the same loss for ``depth`` layers on depth + 1 nodes: a Gauss rule is exact for q^2, of degree 2 depth.

    A finite-context loss has that many nodes already and is returned as it is.
    """
    if loss.gram.ndim > 1 or loss.noise is not None or loss.nodes.size <= depth + 1:
        return loss
    from scipy.linalg import eigh_tridiagonal

    carried = loss.gram > 0
    diagonal, off_diagonal = jacobi_matrix(loss.nodes[carried], loss.gram[carried], depth + 1)
    nodes, vectors = eigh_tridiagonal(diagonal, off_diagonal)
    weights = vectors[0] ** 2 * loss.gram.sum()
    return QuadraticLoss(np.clip(nodes, 0.0, None), weights, None, loss.dim, max_depth=depth)


def transversal_rate(loss: QuadraticLoss, gain: float, depth: int) -> float:
    """Return kappa, the rate at which differences between ``depth`` equal layers grow at this tied gain.

    In the population it is positive for depth >= 2: -1/D times the antisymmetric Hessian eigenvalue.

    Raises
    ------
    ValueError
        For ``depth`` < 2, where there is nothing to separate.
    """
    depth = integer("depth", depth, minimum=2)
    slope = real("gain", gain, largest=LARGEST_GAIN) / depth
    x = loss.nodes
    factor = 1 - slope * x
    second = (x / depth) ** 2 * factor ** (depth - 2)
    hessian = -2 * float(second @ apply_average(loss.gram, factor**depth))
    if loss.noise is not None:
        response = noise_response(x, tied(gain, depth))
        hessian += 2 * float((x / depth**2 * factor ** (depth - 2)) @ apply_average(loss.noise, response))
    return -hessian / loss.dim


def growth_of_differences(loss: QuadraticLoss, gain: float, depth: int) -> float:
    """Return delta(t)/delta(0) when the tied gain has come from 0 to ``gain``: [F(0)/F]^(1/(2L-1)), population.

    Raises
    ------
    ValueError
        For ``depth`` < 2, or a finite context, where this closed form does not hold.
    """
    depth = integer("depth", depth, minimum=2)
    if loss.gram.ndim > 1:
        raise ValueError("context: must be infinite for the closed form of the growth")
    weight = loss.gram * loss.nodes
    force = float(weight @ (1 - real("gain", gain, largest=LARGEST_GAIN) * loss.nodes / depth) ** (2 * depth - 1))
    return float((weight.sum() / force) ** (1 / (2 * depth - 1))) if force > 0 else math.inf


def tie_break(loss: QuadraticLoss, depth: int, size: float) -> TieBreak:
    """Predict when a start gamma_l = size * break_pattern leaves the tied curve.

    Differences are followed along the tied flow to first order, and the loss they take off to second order,
    (D kappa/2) |delta|^2, until it is the share ``SEPARATED`` of tied optimum - untied floor. From the arrival at the
    tied optimum on, growth is exponential. The time is log(1/size)/rate plus a constant; the constant carries the error
    of stopping at second order.

    Parameters
    ----------
    loss : QuadraticLoss
    depth : int
        >= 2.
    size : float
        > 0.

    Raises
    ------
    ValueError
        For arguments out of range.
    RuntimeError
        If the solver gives up.
    """
    depth = integer("depth", depth, minimum=2)
    size = real("size", size, above=0)
    small = compress(loss, depth)
    optimum = tied_optimum_of(small, depth)
    best, rate = optimum.gains[0], transversal_rate(small, optimum.gains[0], depth)
    threshold = SEPARATED * (optimum.loss - untied_floor_of(small, depth).loss)
    spread = size**2 * float(np.sum(break_pattern(depth) ** 2))

    def margin(_t: float, state: FloatArray) -> float:
        """log of (loss taken off) / threshold."""
        gain, growth = float(state[0]), float(state[1])
        taken = small.dim * transversal_rate(small, gain, depth) / 2 * spread
        return math.log(taken / threshold) + 2 * growth if taken > 0 else -math.inf

    def speed(_t: float, state: FloatArray) -> FloatArray:
        gain = float(state[0])
        return np.array([-small.gradient(tied(gain, depth)).mean() / small.dim, transversal_rate(small, gain, depth)])

    margin.terminal, margin.direction = True, 1  # type: ignore[attr-defined]
    if threshold > 0 and margin(0.0, np.zeros(2)) >= 0:
        return TieBreak(size, rate, 0.0, 0.0)
    # The growth needed at the optimum, at the slower of the two rates met on the way, bounds the time.
    needed = -margin(0.0, np.array([best, 0.0])) / 2 if threshold > 0 else math.inf
    if not (rate > 0 and threshold > 0 and math.isfinite(needed)):
        return TieBreak(size, rate, math.inf, best)
    from scipy.integrate import solve_ivp

    horizon = (max(needed, 1.0) + 5.0) / min(rate, transversal_rate(small, 0.0, depth))
    while True:
        found = solve_ivp(speed, (0.0, horizon), np.zeros(2), method="LSODA", events=margin, rtol=1e-10, atol=1e-12)
        if not found.success:
            raise stopped(found)
        if found.t_events[0].size:
            return TieBreak(size, rate, float(found.t_events[0][0]), float(found.y_events[0][0][0]))
        horizon *= 10


def separation_time(loss: QuadraticLoss, depth: int, size: float, *, horizon: float) -> float:
    """Return when the integrated untied flow from size * break_pattern has left the tied curve, as `tie_break` says.

    Without approximation; inf if it has not happened by ``horizon``.

    Raises
    ------
    ValueError
        For arguments out of range.
    """
    from scipy.integrate import solve_ivp

    depth = integer("depth", depth, minimum=2)
    size, horizon = real("size", size, above=0), real("horizon", horizon, above=0)
    small = compress(loss, depth)
    threshold = SEPARATED * (tied_optimum_of(small, depth).loss - untied_floor_of(small, depth).loss)

    def speed(_t: float, state: FloatArray) -> FloatArray:
        apart = -small.gradient(state[:depth])
        together = -small.gradient(tied(float(state[depth]), depth)).mean()
        return np.append(apart, together) / small.dim

    def margin(_t: float, state: FloatArray) -> float:
        return small.value(state[:depth]) - small.value(tied(float(state[depth]), depth)) + threshold

    margin.terminal, margin.direction = True, -1  # type: ignore[attr-defined]
    start = np.append(size * break_pattern(depth), 0.0)
    found = solve_ivp(
        speed,
        (0.0, horizon),
        start,
        method="LSODA",
        events=margin,
        rtol=SOLVER_TOLERANCE,
        atol=1e-3 * size * SOLVER_TOLERANCE,
    )
    return float(found.t_events[0][0]) if found.t_events[0].size else math.inf


def _solve(force: Any, start: FloatArray, moments: FloatArray) -> FloatArray:
    """Return the states (n, size) at ``moments``, time 0 included without a solver."""
    from scipy.integrate import solve_ivp

    states = np.repeat(start[None], moments.size, axis=0)
    later = moments > 0
    if later.any():
        found = solve_ivp(
            force,
            (0.0, float(moments[-1])),
            start,
            method="LSODA",
            t_eval=moments[later],
            rtol=SOLVER_TOLERANCE,
            atol=SOLVER_TOLERANCE * 1e-3,
        )
        if not found.success:
            raise stopped(found)
        states[later] = found.y.T
    return states
