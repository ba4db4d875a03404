"""Time courses of learning from a small start: one abrupt drop (merged), or one direction after another (heads).

Where the theory stops: one layer is exact in the settings FS and ISO at any context length. With several layers the
separate-head time courses are exact for the population covariance (all layers alike). At finite context the loss of
L layers holds Wishart moments of order 2L, which couple the modes: only the start of the first drop carries over
(growth at the one-layer rate divided by L). In the setting RRS separate heads see no preferred direction, and only
their plateaus are predicted (``theory.small_init.plateaus``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from theory.checks import FloatArray, integer, real, vector
from theory.small_init import SmallStartCurve, one_layer_loss
from theory.task import Task

# Relative error asked of the ordinary differential equation solver.
SOLVER_TOLERANCE = 1e-10
# A drop counts as over at this share of its height.
HALF = 0.5
# Below this share of its final size a start only grows exponentially, to a relative error of about its square.
ASYMPTOTIC_START = 1e-5
# Newton steps for the inverse of a head's clock; the bracket halves in the worst case, so this reaches rounding.
MOST_STEPS = 250
# exp(-700) is still a float64: a mode with this logit has nothing left to learn.
LATEST_LOGIT = 700.0


def merged_rate(task: Task) -> float:
    """Return the growth rate of v and W near zero, 2 |B| (Frobenius norm), B the drive; U = v W grows twice as fast.

    In the setting ``rrs`` the drive is its rotation average, mean(lambda^2 omega) I.
    """
    return 2 * float(np.linalg.norm(_drive(task)))


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


def merged_drop_time(task: Task, size: float) -> float:
    """Return when half of the reducible loss is gone, from the balanced start v = size, W = size B/|B|.

    For a small size this is log(1/size)/(2|B|) + constant: the constant comes from one integration of the flow.

    Raises
    ------
    ValueError
        For ``size`` <= 0 or the setting ``rrs``.
    """
    size = real("size", size, above=0)
    form = one_layer_loss(task)
    begin, skipped = _skip_exponential(task, size)
    target = form.floor + HALF * (form.total - form.floor)

    def above(_t: float, state: FloatArray) -> float:
        return float(form.loss(state[0] * state[1:])) - target

    above.terminal = True  # type: ignore[attr-defined]
    if above(0.0, _merged_state(task, begin)) <= 0:
        return 0.0
    span = (math.log(_merged_scale(task) / begin) + 10) / merged_rate(task)
    while True:
        solution = _merged_solve(task, begin, np.array([0.0, span]), above)
        if solution.t_events[0].size:
            return float(solution.t_events[0][0]) + skipped
        span *= 10


def merged_flow(task: Task, times: Iterable[float], *, size: float = 1e-3) -> SmallStartCurve:
    """Return the loss of U = v W from the balanced start v = size, W = size B/|B|, B the drive.

    dv/dt = 2 sum_k W_k [B_k - v a_k W_k],  dW_k/dt = 2 v [B_k - v a_k W_k],  a the curvature; off-diagonal entries of W
    are not driven. v^2 - |W|^2 is conserved. For equal eigenvalues U = g I with g logistic of rate 4|B|.

    Parameters
    ----------
    task : Task
        Setting ``fs`` or ``iso``.
    times : increasing numbers >= 0
    size : float
        > 0.

    Raises
    ------
    ValueError
        For bad times or size, or the setting ``rrs``.
    """
    moments = vector("times", times, minimum=0, increasing=True)
    size = real("size", size, above=0)
    begin, skipped = _skip_exponential(task, size)
    gains = np.empty((moments.size, task.dim))
    early = moments <= skipped
    grown = size * np.exp(merged_rate(task) * moments[early])
    gains[early] = grown[:, None] ** 2 * _direction(task)
    if not early.all():
        clock = np.concatenate([[0.0], moments[~early] - skipped])
        state = _merged_solve(task, begin, clock, None).y
        gains[~early] = (state[0] * state[1:]).T[1:]
    loss = one_layer_loss(task).loss(gains)
    return SmallStartCurve("merged", size, moments, loss, gains, np.array([merged_drop_time(task, size)]))


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


def head_times(task: Task, progress: float, *, size: float, depth: int = 1) -> FloatArray:
    """Return when an aligned head of each mode reaches a share of its final gain, from v = k = q = size along the mode.

    With s = v = |k| = |q| the gain is s^3 and ds/dt = (2/L) s^2 b (1 - s^3/g)^(2L - 1), b = lambda^2 omega, g the final
    gain, so that t = L/(2 b g^(1/3)) [F(x) - F(x_0)] with F(x) = int dx / (x^2 (1 - x^3)^(2L - 1)) and x = s/g^(1/3):
    L/(2 b size) to leading order. Weak directions wait for a time inversely proportional to the size of the start.

    Parameters
    ----------
    task : Task
        Setting ``fs`` or ``iso``; depth > 1 needs the population covariance.
    progress : float
        s^3/g in (0, 1).
    size : float
        > 0.
    depth : int
        Layers, all alike.

    Returns
    -------
    array of shape (dim,)
        0 where the head starts beyond ``progress``, inf for modes without signal.

    Raises
    ------
    ValueError
        For values out of range.
    """
    progress = real("progress", progress, above=0, maximum=1 - 1e-16)
    form_rate, gain = _head_scales(task, size, depth)
    result = np.full(task.dim, np.inf)
    live = form_rate > 0
    root = np.cbrt(gain[live])
    power = 2 * integer("depth", depth) - 1
    end = np.full(root.shape, math.log(progress / (1 - progress)))
    start = _logit_cube(size / root)
    span = np.where(end > start, _clock(end, power) - _clock(start, power), 0.0)
    result[live] = span / (2 * form_rate[live] * root)
    return result


def heads_flow(task: Task, times: Iterable[float], *, size: float = 1e-2, depth: int = 1) -> SmallStartCurve:
    """Return the loss of separate rank-one heads, one a mode, each starting aligned with its mode, v = k = q = size.

    Aligned heads do not disturb one another, so the loss is a sum over modes, each following ``head_times``. Depth > 1:
    population covariance, all layers alike, loss = sum_k lambda_k omega_k (1 - s_k^3/g_k)^(2L).

    Parameters
    ----------
    task : Task
        Setting ``fs`` or ``iso``; depth > 1 needs the population covariance.
    times : increasing numbers >= 0
    size : float
        > 0, below every mode's final factor.
    depth : int
        Layers, all alike.

    Raises
    ------
    ValueError
        For values out of range.
    """
    from scipy.special import expit

    moments = vector("times", times, minimum=0, increasing=True)
    depth = integer("depth", depth)
    rate, gain = _head_scales(task, size, depth)
    live = rate > 0
    root = np.cbrt(gain[live])
    power = 2 * depth - 1
    start = _logit_cube(size / root)
    target = _clock(start, power) + 2 * rate[live] * root * moments[:, None]
    logit = _inverse_clock(target, start, power)
    gains = np.zeros((moments.size, task.dim))
    gains[:, live] = gain[live] * expit(logit)
    missing = np.ones((moments.size, task.dim))
    missing[:, live] = expit(-logit)
    form = one_layer_loss(task)
    # With the population covariance every mode can be learned whole: its drop is its signal.
    loss = form.floor + missing ** (2 * depth) @ form.drop
    half_missing = HALF ** (1 / (2 * depth))
    drops = head_times(task, 1 - half_missing, size=size, depth=depth)
    return SmallStartCurve("heads", size, moments, loss, gains, drops)


def _drive(task: Task) -> FloatArray:
    """The gradient of the loss at U = 0, halved: lambda^2 omega, or its mean over modes in the setting rrs."""
    drive = task.spectrum.eigenvalues * task.spectrum.signal
    return np.full_like(drive, drive.mean()) if task.setting == "rrs" else drive


def _direction(task: Task) -> FloatArray:
    drive = _drive(task)
    return drive / np.linalg.norm(drive)


def _merged_scale(task: Task) -> float:
    """Size of v at which growth along the drive saturates: v^2 = |B|^3 / sum_k a_k B_k^2."""
    form = one_layer_loss(task)
    direction = _direction(task)
    return math.sqrt(float(form.drive @ direction) / float(form.curvature @ direction**2))


def _skip_exponential(task: Task, size: float) -> tuple[float, float]:
    """Return the size from which the solver starts and the time spent before: it cannot see a start of 1e-200."""
    visible = ASYMPTOTIC_START * _merged_scale(task)
    return (size, 0.0) if size >= visible else (visible, math.log(visible / size) / merged_rate(task))


def _merged_state(task: Task, size: float) -> FloatArray:
    return np.concatenate([[size], size * _direction(task)])


def _merged_solve(task: Task, size: float, times: FloatArray, event: Any) -> Any:
    from scipy.integrate import solve_ivp

    form = one_layer_loss(task)

    def velocity(_t: float, state: FloatArray) -> FloatArray:
        v, w = state[0], state[1:]
        force = form.drive - v * form.curvature * w
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


def _head_scales(task: Task, size: float, depth: int) -> tuple[FloatArray, FloatArray]:
    """Return b/L and the final gain of each mode, after checking the size and what the depth allows."""
    size = real("size", size, above=0)
    depth = integer("depth", depth)
    form = one_layer_loss(task)
    gain = form.gain
    if depth > 1:
        if task.context is not None:
            raise ValueError(f"context={task.context}: must be infinite for separate heads in more than one layer")
        gain = depth * gain
    live = form.drive > 0
    least = float(np.cbrt(gain[live].min()))
    if size >= least:
        raise ValueError(f"size={size:g}: must be below {least:g}, the smallest final factor")
    return form.drive / depth, gain


def _logit_cube(x: FloatArray) -> FloatArray:
    return 3 * np.log(x) - np.log1p(-(x**3))


def _root_of_share(logit: FloatArray) -> FloatArray:
    """x = share^(1/3), share = 1/(1 + exp(-logit)), also where the share itself underflows."""
    root: FloatArray = np.exp(-np.logaddexp(0.0, -logit) / 3)
    return root


def _clock(logit: FloatArray, power: int) -> FloatArray:
    """F(x) = int dx / (x^2 (1 - x^3)^power) with x^3 = 1/(1 + exp(-logit)): exact near both ends."""
    from scipy.special import expit, hyp2f1

    x = _root_of_share(logit)
    if power == 1:
        square = np.log1p(x + x**2)
        angle = np.arctan((2 * x + 1) / math.sqrt(3)) - math.pi / 6
        early: FloatArray = -1 / x + (np.logaddexp(0.0, logit) + 1.5 * square - math.sqrt(3) * angle) / 3
        return early
    with np.errstate(over="ignore"):
        later: FloatArray = (
            -np.exp((power - 1) * np.logaddexp(0.0, logit)) * hyp2f1(2 / 3 - power, 1, 2 / 3, expit(logit)) / x
        )
    return later


def _inverse_clock(target: FloatArray, start: FloatArray, power: int) -> FloatArray:
    """Return the logit at which F reaches ``target`` (n, modes), at or after ``start`` (modes,): bracketed Newton."""
    low = np.broadcast_to(start, target.shape).copy()
    high = np.full(target.shape, LATEST_LOGIT)
    growth = max(power - 1, 1)
    late_guess = 3 * target if power == 1 else np.log(3 * growth * np.maximum(target, 1.0)) / growth
    logit = np.where(target < -1, 3 * np.log(1 / np.maximum(-target, 1.0)), late_guess)
    logit = np.clip(logit, low, high)
    for count in range(MOST_STEPS):
        value = _clock(logit, power)
        low, high = np.where(value > target, low, logit), np.where(value > target, logit, high)
        with np.errstate(over="ignore", invalid="ignore"):
            slope = np.exp((power - 1) * np.logaddexp(0.0, logit)) / (3 * _root_of_share(logit))
            newton = logit + (target - value) / slope
        inside = (newton > low) & (newton < high) & (count % 4 < 3)
        new = np.where(inside, newton, (low + high) / 2)
        if np.all(np.abs(new - logit) <= 4e-16 * (1 + np.abs(logit))):
            return new
        logit = new
    return logit
