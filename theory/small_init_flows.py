"""Merged key-query layers from a small start, U = v W: one abrupt drop and its time course.

Where the theory stops: one layer is exact in the settings FS and ISO at any context length, several layers, all alike,
for the population covariance (`merged_flow`). In the setting RRS merged layers keep Gamma_l = g I, and
`merged_gain_flow` is exact at any depth and context. In the setting FS with several layers at finite context the loss
holds Wishart moments of order 2L, which couple the modes: only the start of the drop carries over (growth at the
one-layer rate divided by L).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from theory.checks import FloatArray, integer, real, stopped, vector
from theory.floors import tied_optimum_of
from theory.losses import QuadraticLoss, tied
from theory.small_init import OneLayerLoss, SmallStartCurve, one_layer_loss
from theory.task import Task
from theory.tie_breaking import compress

# Relative error asked of the ordinary differential equation solver.
SOLVER_TOLERANCE = 1e-10
# A drop counts as over at this share of its height.
HALF = 0.5
# Modes whose drive is this much smaller than the largest are never learned.
NEVER = 1e-200
# Below this share of its final size a start only grows exponentially, to a relative error of about its square.
ASYMPTOTIC_START = 1e-5
# From this logit on, 1 - gain/optimum = exp(-16), the approach to the optimum is exponential.
ARRIVED = 16.0


def merged_rate(task: Task, depth: int = 1) -> float:
    """Return the growth rate of v and W near zero, 2 |B|/L (Frobenius norm), B the drive; U = v W grows twice as fast.

    In the setting ``rrs`` the drive is its rotation average, mean(lambda^2 omega) I.
    """
    return 2 * float(_drive(task) @ _direction(task)) / depth


def merged_start(task: Task, v: float, W: np.ndarray) -> float:
    """Return the size of the balanced start that an arbitrary small start (v, W) becomes.

    Near zero (v, W) grows along (1, B/|B|)/sqrt 2 and shrinks along (1, -B/|B|); the growing amplitude is
    (v + <W, B>/|B|)/2, of either sign (U does not change when both factors change theirs).

    Parameters
    ----------
    task : Task
    v : float
    W : array of shape (dim, dim)
        In the covariance eigenbasis.

    Raises
    ------
    ValueError
        If ``W`` has another shape.
    """
    matrix = np.asarray(W, dtype=np.float64)
    if matrix.shape != (task.dim, task.dim):
        raise ValueError(f"W has shape {matrix.shape}: must be ({task.dim}, {task.dim})")
    drive = _drive(task)
    return abs(v + float(np.diag(matrix) @ drive) / float(np.linalg.norm(drive))) / 2


def merged_drop_time(task: Task, size: float, depth: int = 1) -> float:
    """Return when half of the reducible loss is gone, from the balanced start v = size, W = size B/|B|.

    For a small size this is L log(1/size)/(2|B|) + constant: the constant comes from one integration of the flow.

    Raises
    ------
    ValueError
        For ``size`` <= 0, the setting ``rrs``, or several layers at finite context.
    """
    size, depth = real("size", size, above=0), _merged_depth(task, depth)
    form = one_layer_loss(task)
    begin, skipped = _skip_exponential(task, size, depth)
    target = form.floor + HALF * (form.total - form.floor)

    def above(_t: float, state: FloatArray) -> float:
        return float(_layered_loss(form, state[0] * state[1:], depth)) - target

    above.terminal = True  # type: ignore[attr-defined]
    if above(0.0, _merged_state(task, begin)) <= 0:
        return 0.0
    span = (math.log(_merged_scale(task, depth) / begin) + 10) / merged_rate(task, depth)
    while True:
        solution = _merged_solve(task, begin, np.array([0.0, span]), above, depth)
        if solution.t_events[0].size:
            return float(solution.t_events[0][0]) + skipped
        span *= 10


def merged_flow(task: Task, times: Iterable[float], *, size: float = 1e-3, depth: int = 1) -> SmallStartCurve:
    """Return the loss of U = v W from the balanced start v = size, W = size B/|B|, B the drive.

    dv/dt = 2 sum_k W_k [B_k - v a_k W_k],  dW_k/dt = 2 v [B_k - v a_k W_k],  a the curvature; off-diagonal entries of W
    are not driven. v^2 - |W|^2 is conserved. For equal eigenvalues U = g I with g logistic of rate 4|B|. With L layers,
    all alike, population covariance: B_k (1 - v W_k lambda_k/L)^(2L - 1)/L takes the place of the bracket.

    Parameters
    ----------
    task : Task
        Setting ``fs`` or ``iso``.
    times : increasing numbers >= 0
    size : float
        > 0.
    depth : int
        Layers, all alike; more than one needs the population covariance.

    Raises
    ------
    ValueError
        For bad times, size or depth, or the setting ``rrs``.
    """
    moments = vector("times", times, minimum=0, increasing=True)
    size, depth = real("size", size, above=0), _merged_depth(task, depth)
    begin, skipped = _skip_exponential(task, size, depth)
    gains = np.empty((moments.size, task.dim))
    early = moments <= skipped
    grown = size * np.exp(merged_rate(task, depth) * moments[early])
    gains[early] = grown[:, None] ** 2 * _direction(task)
    if not early.all():
        clock = np.concatenate([[0.0], moments[~early] - skipped])
        state = _merged_solve(task, begin, clock, None, depth).y
        gains[~early] = (state[0] * state[1:]).T[1:]
    loss = _layered_loss(one_layer_loss(task), gains, depth)
    return SmallStartCurve("merged", size, moments, loss, gains, np.array([merged_drop_time(task, size, depth)]))


def merged_gain_flow(loss: QuadraticLoss, depth: int, times: Iterable[float], *, size: float = 1e-3) -> SmallStartCurve:
    """Return the merged layers of the settings RRS and ISO: Gamma_l = g I, any depth and context.

    With W = u I/sqrt D and v = u (balanced) g = v u/sqrt D, and d g/dt = -(2 g/(L sqrt D)) d loss/d g, the derivative
    in the gain shared by all layers: the tied flow of ``theory.flow`` in another time, which starts exponentially.

    Parameters
    ----------
    loss : QuadraticLoss
        Of the settings rrs or iso, for this depth.
    depth : int
    times : increasing numbers >= 0
    size : float
        u at the start, > 0.

    Raises
    ------
    ValueError
        For bad arguments.
    RuntimeError
        If the solver gives up, with its reason.
    """
    from scipy.integrate import solve_ivp
    from scipy.special import expit

    moments, size = vector("times", times, minimum=0, increasing=True), real("size", size, above=0)
    depth = integer("depth", depth)
    small = compress(loss, depth)
    best = tied_optimum_of(small, depth)
    root = math.sqrt(loss.dim)

    def speed(_t: float, logit: FloatArray) -> FloatArray:
        # d logit/dt = (d g/dt) / (g (1 - g/best)); near the optimum the ratio is its limit, not that of two roundings.
        place = min(float(logit[0]), ARRIVED)
        slope = float(small.gradient(tied(best.gains[0] * float(expit(place)), depth)).mean())
        return np.array([-2 / root * slope / float(expit(-place))])

    target = best.loss + HALF * (small.value(np.zeros(depth)) - best.loss)

    def above(_t: float, logit: FloatArray) -> float:
        return small.value(tied(best.gains[0] * float(expit(logit[0])), depth)) - target

    share = size**2 / root / best.gains[0]
    if share >= 1:
        raise ValueError(f"size={size:g}: must be below {math.sqrt(best.gains[0] * root):g}, the final factor")
    start = np.array([math.log(share) - math.log1p(-share)])
    rate = -2 / root * float(small.gradient(np.zeros(depth)).mean())
    horizon = max(float(moments[-1]), 2 * (60 - start[0]) / rate)
    found = solve_ivp(
        speed,
        (0.0, horizon),
        start,
        method="LSODA",
        t_eval=np.unique(np.append(moments, horizon)),
        events=above,
        rtol=SOLVER_TOLERANCE,
        atol=SOLVER_TOLERANCE,
    )
    if not found.success:
        raise stopped(found)
    gains = best.gains[0] * expit(found.y[0, : moments.size])
    losses = np.array([small.value(tied(gain, depth)) for gain in gains])
    drop = found.t_events[0][:1] if found.t_events[0].size else np.array([math.inf])
    return SmallStartCurve("merged", size, moments, losses, np.repeat(gains[:, None], loss.dim, axis=1), drop)


def logistic_gain(task: Task, times: Iterable[float], *, size: float) -> FloatArray:
    """Return g(t) for the merged layer with equal eigenvalues, U = g I, from v = |W| = size.

    dg/dt = 4 |B| g (1 - g/g*), g* the best gain. The setting ``iso``, or ``fs`` with equal eigenvalues and task power.

    Raises
    ------
    ValueError
        If the drive differs between modes, or a time or the size is out of range.
    """
    moments = vector("times", times, minimum=0)
    size = real("size", size, above=0)
    form = one_layer_loss(task)
    if not np.all(form.drive == form.drive[0]):
        raise ValueError("task has modes that differ: must have equal eigenvalues and task power")
    best, start = float(form.gain[0]), size**2 / math.sqrt(task.dim)
    return best / (1 + (best / start - 1) * np.exp(-2 * merged_rate(task) * moments))


def _drive(task: Task) -> FloatArray:
    """The gradient of the loss at U = 0, halved: lambda^2 omega, or its mean over modes in the setting rrs."""
    drive = task.spectrum.eigenvalues * task.spectrum.signal
    if task.setting == "rrs":
        return np.full_like(drive, drive.mean())
    # No time is long enough for the modes below; their subnormal numbers would only upset the solver.
    return np.where(drive >= NEVER * drive.max(), drive, 0.0)


def _direction(task: Task) -> FloatArray:
    # Scaled first: the square of a tiny drive underflows.
    drive = _drive(task) / max(float(_drive(task).max()), np.finfo(float).tiny)
    return drive / np.linalg.norm(drive)


def _merged_depth(task: Task, depth: int) -> int:
    depth = integer("depth", depth)
    if depth > 1 and task.context is not None:
        raise ValueError(f"context={task.context}: must be infinite for mode by mode learning in more than one layer")
    return depth


def _layered_loss(form: OneLayerLoss, gains: FloatArray, depth: int) -> FloatArray:
    """floor + sum_k drop_k (1 - U_k/(L g_k))^(2L), which is the loss of one layer, or of many in the population."""
    best = depth * form.gain
    missing = 1 - np.divide(gains, best, out=np.zeros_like(gains), where=best > 0)
    loss: FloatArray = form.floor + missing ** (2 * depth) @ form.drop
    return loss


def _merged_scale(task: Task, depth: int) -> float:
    """Size of v at which growth along the drive saturates: v^2 = |B|^3 / sum_k a_k B_k^2, L times that in L layers."""
    form = one_layer_loss(task)
    direction = _direction(task)
    # Curvature is drive/gain; the common scale of the drive cancels and may be tiny.
    drive = _drive(task) / _drive(task).max()
    pull = np.divide(drive * direction**2, form.gain, out=np.zeros_like(drive), where=form.gain > 0)
    return math.sqrt(depth * float(drive @ direction) / float(pull.sum()))


def _skip_exponential(task: Task, size: float, depth: int) -> tuple[float, float]:
    """Return the size from which the solver starts and the time spent before: it cannot see a start of 1e-200."""
    visible = ASYMPTOTIC_START * _merged_scale(task, depth)
    return (size, 0.0) if size >= visible else (visible, math.log(visible / size) / merged_rate(task, depth))


def _merged_state(task: Task, size: float) -> FloatArray:
    return np.concatenate([[size], size * _direction(task)])


def _merged_solve(task: Task, size: float, times: FloatArray, event: Any, depth: int) -> Any:
    from scipy.integrate import solve_ivp

    form = one_layer_loss(task)

    drive = _drive(task)

    def velocity(_t: float, state: FloatArray) -> FloatArray:
        v, w = state[0], state[1:]
        missing = 1 - np.divide(v * w, depth * form.gain, out=np.zeros_like(w), where=form.gain > 0)
        force = drive / depth * missing ** (2 * depth - 1)
        return 2 * np.concatenate([[w @ force], v * force])

    return solve_ivp(
        velocity,
        (0.0, float(times[-1])),
        _merged_state(task, size),
        method="LSODA",
        t_eval=times,
        events=event,
        rtol=SOLVER_TOLERANCE,
        atol=SOLVER_TOLERANCE * size,
    )
