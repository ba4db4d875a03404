"""From a task and a way of training to losses, gains and floors: which theory answers which question.

The rotating settings (RRS, ISO) have one gain a layer; the fixed basis (FS) one a layer and mode; small starts have
their own time courses. Each path says in ``notes`` what else it found and how far it is valid.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from theory.checks import FloatArray, choice, integer, real
from theory.floors import Floor, tied_optimum_of, untied_floor_of
from theory.losses import QuadraticLoss, quadratic_loss
from theory.task import Task

METHODS = ("flow", "sgd")
STARTS = ("zero", "merged", "heads")


@dataclasses.dataclass(frozen=True)
class Training:
    """How the model is trained, for a prediction.

    Parameters
    ----------
    method : {"flow", "sgd"}
    at : tuple of float
        Times of the flow, or steps of the recursion; increasing, >= 0.
    learning_rate : float
        Of ``sgd``; time = learning rate x step.
    untied : bool
        Let layers differ; ``break_size`` is the largest difference from their mean at the start.
    break_size : float
    start : {"zero", "merged", "heads"}
        Gamma from zero, or a product of small factors of size ``start_size`` (``theory.small_init``).
    start_size : float

    Raises
    ------
    ValueError
        For values out of range, or a combination that no theory covers.
    """

    method: str
    at: tuple[float, ...]
    learning_rate: float = 1.0
    untied: bool = False
    break_size: float = 0.0
    start: str = "zero"
    start_size: float = 1e-3

    def __post_init__(self) -> None:
        choice("method", self.method, METHODS)
        choice("start", self.start, STARTS)
        real("learning_rate", self.learning_rate, above=0)
        real("break_size", self.break_size, minimum=0)
        real("start_size", self.start_size, above=0)
        if self.start != "zero" and (self.method != "flow" or self.untied):
            raise ValueError(f"start={self.start!r}: must go with the method 'flow' and tied layers")
        if self.break_size > 0 and not self.untied:
            raise ValueError(f"break_size={self.break_size:g}: must be 0 for tied layers")


# Shares of the first loss above which no rounding of a gain can matter, and of a loss that rounding may move.
SURE = 1e-12
RESOLVED = 1e-6


@dataclasses.dataclass(frozen=True)
class Path:
    """What a way of training leads to.

    Parameters
    ----------
    losses : array of shape (replicates, n)
        Replicate 0 is the prediction; the rest are jackknife replicates.
    gains : array of shape (n, depth) or (n, depth, dim)
    floor : dict with ``tied`` and ``untied``
    notes : dict
        Further JSON-ready findings.
    status : str
    """

    losses: FloatArray
    gains: FloatArray
    floor: dict[str, Floor]
    notes: dict[str, Any]
    status: str


def predicted_path(
    task: Task,
    depth: int,
    training: Training,
    *,
    width: int | None = None,
    deterministic: bool = False,
    samples: int | None = None,
    seed: int = 0,
) -> Path:
    """Return the path of `training` on ``task``; see `theory.predict` for the arguments.

    Raises
    ------
    ValueError
        For arguments out of range, or a combination that no theory covers.
    """
    depth = integer("depth", depth)
    if training.start != "zero":
        return _small_start(task, depth, training, width, deterministic, samples, seed)
    if task.setting == "fs":
        return _fixed(task, depth, training, width, deterministic, samples, seed)
    return _rotating(task, depth, training, width, deterministic, samples, seed)


def _rotating(
    task: Task,
    depth: int,
    training: Training,
    width: int | None,
    deterministic: bool,
    samples: int | None,
    seed: int,
) -> Path:
    from theory.flow import tied_flow, tied_sgd
    from theory.stability import edge_of_stability
    from theory.tie_breaking import break_pattern, tie_break, untied_flow, untied_sgd

    loss, notes = _rotating_loss(task, depth, width, deterministic, samples, seed)
    at = np.array(training.at)
    status = "Converged to the requested accuracy."
    if training.untied and depth > 1:
        start = training.break_size * break_pattern(depth)
        if training.method == "flow":
            path = untied_flow(loss, start, at)
        else:
            path = untied_sgd(loss, start, training.learning_rate, at)
        status = path.status
        gains = path.gains
        losses = np.stack(
            [loss.values(row) if np.all(np.isfinite(row)) else np.full(loss.replicates, np.nan) for row in gains],
            axis=1,
        )
        # The path itself follows the average of all draws; its replicates differ at fixed gains.
        losses[0] = path.loss
        if training.break_size > 0 and training.method == "flow":
            found = tie_break(loss, depth, training.break_size)
            notes["tie_break"] = {"size": found.size, "rate": found.rate, "time": found.time}
    elif training.method == "flow" and task.context is None and width is None:
        from theory.tied import tied_curve

        curve = tied_curve(task.spectrum, depth, at)
        losses, gains = curve.losses[None], np.repeat(curve.gammas[:, None], depth, axis=1)
    else:
        walk = (
            tied_flow(loss, depth, at)
            if training.method == "flow"
            else tied_sgd(loss, depth, training.learning_rate, at)
        )
        losses, gains, status = walk.losses, np.repeat(walk.gains[0][:, None], depth, axis=1), walk.status
    if training.method == "sgd":
        notes["largest_stable_learning_rate"] = edge_of_stability(loss, depth).learning_rate
    if deterministic and task.context is not None:
        from theory.equivalents import deterministic_limit

        limit = deterministic_limit(task, depth)
        known = [np.all(np.isfinite(row)) for row in gains]
        notes["missing"] = [limit.missing(row) if ok else math.nan for row, ok in zip(gains, known, strict=True)]
        notes["rare_contexts"] = [ok and limit.rare_contexts(row) for row, ok in zip(gains, known, strict=True)]
    floor = {"tied": tied_optimum_of(loss, depth), "untied": untied_floor_of(loss, depth)}
    lost = _lost_in_rounding(loss, gains, losses[0])
    if lost.any():
        notes["below_rounding"] = lost.tolist()
        status += f" From {at[lost][0]:g} on the loss is below what one rounding of a gain leaves: not to be read."
    return Path(losses, gains, floor, notes, status)


def _lost_in_rounding(loss: QuadraticLoss, gains: FloatArray, values: FloatArray) -> np.ndarray:
    """Return where one rounding of each gain moves the loss by more than `RESOLVED` of itself."""
    lost = np.zeros(values.size, dtype=bool)
    start = float(loss.values(np.zeros(gains.shape[1]))[0])
    for i in np.flatnonzero(values < SURE * start):
        moved = float(np.abs(gains[i] * loss.gradient(gains[i])).sum()) * float(np.finfo(float).eps)
        lost[i] = moved >= RESOLVED * values[i]
    return lost


def _rotating_loss(
    task: Task, depth: int, width: int | None, deterministic: bool, samples: int | None, seed: int
) -> tuple[QuadraticLoss, dict[str, Any]]:
    if width is not None:
        from theory.bottleneck import bottleneck_limit, bottleneck_loss

        notes = {"width": integer("width", width, maximum=task.dim)}
        if deterministic:
            return bottleneck_limit(task, width, depth), notes | {"validity": f"large-size limit: order 1/{width}"}
        return bottleneck_loss(task, width, depth, samples=samples, seed=seed), notes
    if deterministic:
        from theory.equivalents import deterministic_limit

        limit = deterministic_limit(task, depth)
        return limit.quadratic_loss(), {"validity": limit.validity}
    return quadratic_loss(task, depth, samples=samples, seed=seed), {}


def _fixed(
    task: Task,
    depth: int,
    training: Training,
    width: int | None,
    deterministic: bool,
    samples: int | None,
    seed: int,
) -> Path:
    from theory import fixed_basis as fixed
    from theory.fixed_floors import one_layer_modes, sampled_floors
    from theory.small_init import one_layer_loss
    from theory.tie_breaking import break_pattern

    notes: dict[str, Any] = {}
    tail, full_dim = 0.0, task.dim
    if width is not None:
        from theory.bottleneck import seen_task

        task, tail = seen_task(task, width)
        notes = {"width": task.dim, "unseen_loss": tail}
    at = np.array(training.at)
    if task.context is None:
        start = training.break_size * break_pattern(depth)
        if training.method == "sgd":
            walk = fixed.mode_sgd(task, start, training.learning_rate, at)
            # r <- r - a r^(2L-1) from r = 1 stays within [-1, 1] exactly for a = 2 rate lambda^3 omega/L^2 <= 2.
            fastest = float(np.max(task.spectrum.eigenvalues**2 * task.spectrum.signal))
            notes["largest_stable_learning_rate"] = depth**2 / fastest if fastest > 0 else math.inf
        elif training.untied:
            walk = fixed.untied_mode_flow(task, start, at)
        else:
            walk = fixed.tied_mode_flow(task, depth, at)
        floor = Floor(tail, 0.0, ())
        return Path(
            walk.losses + tail, _padded(walk.gains, full_dim), {"tied": floor, "untied": floor}, notes, walk.status
        )
    if depth == 1:
        rate = training.learning_rate if training.method == "sgd" else None
        walk = one_layer_modes(task, at, learning_rate=rate)
        floor = Floor(one_layer_loss(task).floor + tail, 0.0, ())
        notes["floors"] = "exact"
        return Path(
            walk.losses + tail, _padded(walk.gains, full_dim), {"tied": floor, "untied": floor}, notes, walk.status
        )
    if deterministic:
        raise ValueError(
            "deterministic=True: must be left out in the setting fs beyond depth 1, where one gain a mode and layer "
            "stands between the sample covariances and contexts are sampled"
        )
    loss = fixed.SampledModes(task, depth, samples=samples, seed=seed)
    tied = not training.untied
    if training.method == "flow":
        start = training.break_size * break_pattern(depth)
        walk = fixed.sampled_mode_flow(loss, at, start=start, tied=tied)
    else:
        walk = fixed.sampled_mode_sgd(loss, training.learning_rate, at, tied=tied)
    fresh = fixed.SampledModes(task, depth, samples=samples, seed=seed + 1)
    floors, found = sampled_floors(loss, walk.gains[-1], fresh)
    floors = {name: dataclasses.replace(floor, loss=floor.loss + tail) for name, floor in floors.items()}
    found["floor_lower_bound"] += tail
    return Path(walk.losses + tail, _padded(walk.gains, full_dim), floors, notes | found, walk.status)


def _padded(gains: FloatArray, dim: int) -> FloatArray:
    """Modes that a narrow model does not see have no gain: zeros after the seen ones, in the order of signal."""
    return np.pad(gains, [(0, 0), (0, 0), (0, dim - gains.shape[2])])


def _small_start(
    task: Task,
    depth: int,
    training: Training,
    width: int | None,
    deterministic: bool,
    samples: int | None,
    seed: int,
) -> Path:
    from theory import small_init_flows as small
    from theory.small_init import plateaus
    from theory.small_init_heads import heads_flow

    if width is not None:
        raise ValueError(f"width={width}: must be left out with a small start")
    at, size = np.array(training.at), training.start_size
    notes: dict[str, Any] = {"start": training.start, "start_size": size}
    if task.setting != "fs" and training.start == "merged":
        loss, found = _rotating_loss(task, depth, None, deterministic, samples, seed)
        curve = small.merged_gain_flow(loss, depth, at, size=size)
        gains = np.repeat(curve.gains[:, :1], depth, axis=1)
        losses = np.stack([loss.values(row) for row in gains], axis=1)
        floor = {"tied": tied_optimum_of(loss, depth), "untied": untied_floor_of(loss, depth)}
        return Path(
            losses, gains, floor, notes | found | {"drop_times": curve.drop_time.tolist()}, "Converged to 1e-10."
        )
    if deterministic:
        raise ValueError("deterministic=True: must be left out, the mode by mode theory is exact")
    if training.start == "merged":
        curve = small.merged_flow(task, at, size=size, depth=depth)
    else:
        curve = heads_flow(task, at, size=size, depth=depth)
    levels = plateaus(task)
    notes |= {
        "drop_times": curve.drop_time.tolist(),
        "plateaus": levels.loss.tolist(),
        "order": (levels.order + 1).tolist(),
    }
    bottom = Floor(float(levels.loss[-1]), 0.0, ())
    gains = np.repeat(curve.gains[:, None], depth, axis=1)
    return Path(curve.loss[None], gains, {"tied": bottom, "untied": bottom}, notes, "Exact up to the solver.")
