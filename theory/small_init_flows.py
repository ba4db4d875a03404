"""Time courses of learning from a small start: one abrupt drop (merged), or one direction after another (heads).

Where the theory stops: one layer is exact in the settings FS and ISO at any context length. With several layers the
separate-head time courses are exact for the population covariance (all layers alike). At finite context the loss of
L layers holds Wishart moments of order 2L, which couple the modes: only the start of the first drop carries over
(growth at the one-layer rate divided by L). In the setting RRS merged layers keep Gamma_l = g I, and `merged_gain_flow`
is exact at any depth and context; separate heads see no preferred direction, and only
their plateaus are predicted (``theory.small_init.plateaus``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from theory.checks import FloatArray, integer, real, vector
from theory.floors import tied_optimum_of
from theory.losses import QuadraticLoss, tied
from theory.small_init import OneLayerLoss, SmallStartCurve, one_layer_loss
from theory.task import Task
from theory.tie_breaking import compress

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
# From this logit on, 1 - gain/optimum = exp(-16), the approach to the optimum is exponential.
ARRIVED = 16.0


def merged_rate(task: Task, depth: int = 1) -> float:
    """Return the growth rate of v and W near zero, 2 |B|/L (Frobenius norm), B the drive; U = v W grows twice as fast.

    In the setting ``rrs`` the drive is its rotation average, mean(lambda^2 omega) I.
    """
    return 2 * float(np.linalg.norm(_drive(task))) / depth


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
        raise RuntimeError(f"the flow stopped at t={found.t[-1]:g}: {found.message}")
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
    return math.sqrt(depth * float(form.drive @ direction) / float(form.curvature @ direction**2))


def _skip_exponential(task: Task, size: float, depth: int) -> tuple[float, float]:
    """Return the size from which the solver starts and the time spent before: it cannot see a start of 1e-200."""
    visible = ASYMPTOTIC_START * _merged_scale(task, depth)
    return (size, 0.0) if size >= visible else (visible, math.log(visible / size) / merged_rate(task, depth))


def _merged_state(task: Task, size: float) -> FloatArray:
    return np.concatenate([[size], size * _direction(task)])


def _merged_solve(task: Task, size: float, times: FloatArray, event: Any, depth: int) -> Any:
    from scipy.integrate import solve_ivp

    form = one_layer_loss(task)

    def velocity(_t: float, state: FloatArray) -> FloatArray:
        v, w = state[0], state[1:]
        missing = 1 - np.divide(v * w, depth * form.gain, out=np.zeros_like(w), where=form.gain > 0)
        force = form.drive / depth * missing ** (2 * depth - 1)
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
