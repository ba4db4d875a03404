"""Separate rank-one heads from a small start: one principal direction after another, saddle to saddle.

Each head is aligned with a mode (``theory.small_init``); heads in different modes do not disturb one another, so every
mode keeps its own clock, in closed form.

Where the theory stops: one layer is exact in the settings FS and ISO at any context length, several layers, all alike,
for the population covariance. A head that starts at random first turns towards a mode: the law time ~ 1/size and the
plateaus stay, the constant is its own. In the setting RRS heads see no preferred direction, and only their plateaus are
predicted (``theory.small_init.plateaus``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from theory.checks import FloatArray, integer, real, vector
from theory.small_init import SmallStartCurve, one_layer_loss
from theory.small_init_flows import HALF
from theory.task import Task

# Newton steps for the inverse of a head's clock; the bracket halves in the worst case, so this reaches rounding.
MOST_STEPS = 250
# exp(-700) is still a float64: a mode with this logit has nothing left to learn.
LATEST_LOGIT = 700.0


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
    progress = real("progress", progress, above=0, below=1)
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
