"""Many fits at once: damped Gauss-Newton, then Newton, on a batch of starts, resamples or profile points.

Every fit of the batch minimises ``sum_i w_i s^2 rho((r_i/s)^2) / 2`` with its own starts, row weights and held
parameters; ``r`` is the residual of the law on the log or the linear scale, divided by the row's standard error where
one is given. The cost is counted as `scipy.optimize.least_squares` counts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from theory.checks import FloatArray, choice
from theory.depth_laws import DepthLaw

RESIDUALS = ("log", "linear")
ROBUST_LOSSES = ("linear", "soft_l1", "huber")

# A fit has converged when a Newton step would lower the cost by less than this share of it.
DECREMENT = 1e-12
# Along a flat valley differences of the gradient are mostly rounding: this is accepted there. At 100 rows it moves
# the parameters along the valley by a hundredth of a standard error.
FLAT_DECREMENT = 1e-6
# Least eigenvalue of the Hessian, scaled to a unit diagonal, below which a valley counts as flat.
FLAT_CURVATURE = 1e-6
# A cost whose residuals are rounding (about 1e-14 a row) cannot be lowered further.
ROUNDING_RESIDUAL = 1e-14
# Steps of the two phases.
GAUSS_NEWTON_STEPS = 60
NEWTON_STEPS = 25
# exp of more than this, squared and multiplied, leaves what double precision holds.
LARGEST_LOG = 200.0
# Distance from an end of the domain, on the search scale, below which a parameter that descends to it rests on it.
TOUCHING = 1e-7
# No step is longer than this on the search scale.
LONGEST_STEP = 1e6
# Residuals as large as this are as good as infinite.
LARGEST_RESIDUAL = 1e100
# Relative step of the difference of gradients that gives the Hessian.
HESSIAN_STEP = 6e-6


@dataclass(frozen=True)
class FitProblem:
    """One law, one table, one cost.

    Attributes
    ----------
    law
        The law.
    columns
        Variable name -> (n,), or (B, n) where each fit of a batch has its own rows.
    loss_values
        The losses, (n,) or (B, n), positive for residuals on the log scale.
    sigma
        Standard errors on the scale of the residuals, (n,), or ``None``.
    residuals
        ``log`` or ``linear``.
    robust, robust_scale
        ``linear`` (least squares), ``soft_l1`` or ``huber``, and the residual at which it bends.
    lower, upper
        Domain of the parameters on their search scale, (k,).
    pulled
        Whether the last row pulls with a plain square, whatever the robust cost of the others.
    logarithmic
        Which parameters are searched on the log scale, (k,).
    """

    law: DepthLaw
    columns: Mapping[str, FloatArray]
    loss_values: FloatArray
    sigma: FloatArray | None = None
    residuals: str = "log"
    robust: str = "linear"
    robust_scale: float = 1.0
    lower: FloatArray = field(default_factory=lambda: np.empty(0))
    upper: FloatArray = field(default_factory=lambda: np.empty(0))
    pulled: bool = False
    logarithmic: np.ndarray = field(init=False, repr=False)
    _log_losses: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        choice("residuals", self.residuals, RESIDUALS)
        choice("robust", self.robust, ROBUST_LOSSES)
        logs = np.log(self.loss_values) if self.residuals == "log" else np.empty(0)
        object.__setattr__(self, "_log_losses", logs)
        object.__setattr__(self, "logarithmic", np.array([p.scale == "log" for p in self.law.parameters]))
        if not self.lower.size:
            low, high = search_domain(self.law)
            object.__setattr__(self, "lower", low)
            object.__setattr__(self, "upper", high)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.loss_values.shape[-1]

    @property
    def unit(self) -> float:
        """Square of a residual as large as the data, in units of its standard error."""
        size = 1.0 if self.residuals == "log" else float(np.max(np.abs(self.loss_values)))
        return size**2 if self.sigma is None else (size / float(np.min(self.sigma))) ** 2

    def natural(self, points: FloatArray) -> FloatArray:
        """Return parameters from their search scale."""
        return np.where(
            self.logarithmic, np.exp(np.where(self.logarithmic, np.minimum(points, LARGEST_LOG), 0.0)), points
        )

    def searched(self, values: FloatArray) -> FloatArray:
        """Return parameters on their search scale."""
        return np.where(self.logarithmic, np.log(np.where(self.logarithmic, values, 1.0)), values)

    def take(self, rows: np.ndarray) -> FitProblem:
        """Return the problem on these rows alone."""
        return replace(
            self,
            columns={name: column[..., rows] for name, column in self.columns.items()},
            loss_values=self.loss_values[..., rows],
            sigma=None if self.sigma is None else self.sigma[..., rows],
        )

    def predicted(self, points: FloatArray) -> FloatArray:
        """Return the law at ``points`` (B, k) for every row, (B, n)."""
        out = self.law.function(*self._arguments(self.natural(points)))
        return np.broadcast_to(out, (len(points), self.rows))

    def residual(self, points: FloatArray) -> FloatArray:
        """Return the residuals, prediction minus data, (B, n); infinite where a log residual is undefined."""
        return self._residual_of(self.predicted(points))

    def jacobian(self, points: FloatArray) -> FloatArray:
        """Return the derivatives of the residuals with respect to the searched parameters, (B, n, k)."""
        return self.linearised(points)[1]

    def linearised(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the residuals, (B, n), and their derivatives with respect to the searched parameters, (B, n, k)."""
        values = self.natural(points)
        arguments = self._arguments(values)
        shape = (len(points), self.rows)
        predicted = np.broadcast_to(self.law.function(*arguments), shape)
        out = np.empty((*shape, points.shape[1]))
        for index, part in enumerate(self.law.gradient(*arguments)):
            out[:, :, index] = part
        out *= np.where(self.logarithmic, values, 1.0)[:, None, :]
        if self.residuals == "log":
            out /= predicted[:, :, None]
        if self.sigma is not None:
            out /= self.sigma[..., None]
        return self._residual_of(predicted), out

    def _arguments(self, values: FloatArray) -> list[FloatArray]:
        columns = [self.columns[name] for name in self.law.variables]
        return columns + [values[:, index, None] for index in range(values.shape[1])]

    def _residual_of(self, predicted: FloatArray) -> FloatArray:
        if self.residuals == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                out = np.where(predicted > 0, np.log(predicted) - self._log_losses, np.inf)
        else:
            out = predicted - self.loss_values
        return out if self.sigma is None else out / self.sigma

    def row_costs(self, residual: FloatArray) -> FloatArray:
        """Return ``s^2 rho((r/s)^2) / 2`` for each residual."""
        plain = 0.5 * residual**2
        if self.robust == "linear":
            return plain
        robust = self._robust_costs(residual)
        if self.pulled:
            robust[..., -1] = plain[..., -1]
        return robust

    def _robust_costs(self, residual: FloatArray) -> FloatArray:
        scale = self.robust_scale
        if self.robust == "soft_l1":
            # sqrt(1+z) - 1 without cancellation at small z, and without overflow at large z
            return np.abs(residual) * np.abs(residual) / (np.hypot(1.0, residual / scale) + 1.0)
        size = np.abs(residual)
        return np.where(size <= scale, 0.5 * size**2, scale * size - 0.5 * scale**2)

    def influence(self, residual: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return psi (the cost's derivative), psi' and the reweighting psi/r of each residual."""
        one = np.ones_like(residual)
        if self.robust == "linear":
            return residual, one, one
        parts = self._robust_influence(residual)
        if self.pulled:
            for part, plain in zip(parts, (residual, one, one), strict=True):
                part[..., -1] = plain[..., -1]
        return parts

    def _robust_influence(self, residual: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        scale = self.robust_scale
        if self.robust == "soft_l1":
            root = np.hypot(1.0, residual / scale)
            return residual / root, root**-3.0, 1.0 / root
        size = np.abs(residual)
        inside = size <= scale
        weight = np.where(inside, 1.0, scale / np.maximum(size, scale))
        return residual * weight, inside.astype(float), weight

    def cost(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the cost of each fit, (B,)."""
        residual = self.residual(points)
        defined = np.all(np.abs(residual) < LARGEST_RESIDUAL, axis=-1)
        costs = np.sum(weights * self.row_costs(np.where(defined[:, None], residual, 0.0)), axis=-1)
        return np.where(defined, costs, np.inf)

    def gradient(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the derivatives of the cost with respect to the searched parameters, (B, k)."""
        residual, jacobian = self.linearised(points)
        return _gradient(weights * self.influence(residual)[0], jacobian)

    def hessian(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the second derivatives of the cost, from central differences of its gradient, (B, k, k)."""
        batch, count = points.shape
        steps = HESSIAN_STEP * np.maximum(np.abs(points), 1e-3)
        above, below = np.minimum(points + steps, self.upper), np.maximum(points - steps, self.lower)
        out = np.zeros((batch, count, count))
        for index in range(count):
            width = above[:, [index]] - below[:, [index]]
            one, two = points.copy(), points.copy()
            one[:, index], two[:, index] = above[:, index], below[:, index]
            with np.errstate(invalid="ignore"):
                difference = self.gradient(one, weights) - self.gradient(two, weights)
                out[:, index, :] = difference / np.where(width > 0, width, np.inf)
        return 0.5 * (out + np.swapaxes(out, 1, 2))


@dataclass(frozen=True)
class Optima:
    """What a batch of fits ended with.

    Attributes
    ----------
    points
        Parameters on their search scale, (B, k).
    costs
        (B,).
    decrements
        What a Newton step would still gain, as a share of the cost, (B,).
    converged
        Whether that is below ``DECREMENT``, or the residuals are rounding, (B,).
    flat
        Whether the cost is flat to rounding along some direction of the free parameters, (B,).
    """

    points: FloatArray
    costs: FloatArray
    decrements: FloatArray
    converged: np.ndarray
    flat: np.ndarray

    def take(self, rows: slice | np.ndarray) -> Optima:
        """Return some of the fits."""
        return Optima(self.points[rows], self.costs[rows], self.decrements[rows], self.converged[rows], self.flat[rows])


def search_domain(law: DepthLaw) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of a law's parameters on their search scale."""
    with np.errstate(divide="ignore"):
        ends = [(np.log(p.lower), np.log(p.upper)) if p.scale == "log" else (p.lower, p.upper) for p in law.parameters]
    return np.array([end[0] for end in ends], dtype=float), np.array([end[1] for end in ends], dtype=float)


def minimise(
    problem: FitProblem,
    starts: FloatArray,
    *,
    weights: FloatArray | None = None,
    held: np.ndarray | None = None,
    polish: bool = True,
    settle: float = 1e-15,
    newton_steps: int = NEWTON_STEPS,
) -> Optima:
    """Return the local minimum that each start leads to.

    Parameters
    ----------
    starts
        Parameters on their search scale, (B, k).
    weights
        Row weights, (n,) or (B, n); 1 if ``None``.
    held
        Which parameters stay where they start, (k,) or (B, k); none if ``None``.
    polish
        Whether Newton steps on the exact Hessian follow.
    settle
        A fit stops when a step lowers its cost by less than this share of it.
    newton_steps
        Most Newton steps.
    """
    points = np.clip(np.array(starts, dtype=float, ndmin=2), problem.lower, problem.upper)
    batch = len(points)
    row_weights = np.broadcast_to(np.ones(problem.rows) if weights is None else weights, (batch, problem.rows))
    fixed = np.broadcast_to(np.zeros(points.shape[1], dtype=bool) if held is None else held, points.shape)
    points, costs = _descend(problem, points, row_weights, fixed, exact=False, limit=GAUSS_NEWTON_STEPS, settle=settle)
    if polish:
        points, costs = _descend(problem, points, row_weights, fixed, exact=True, limit=newton_steps, settle=settle)
    points, costs, decrements, flat = _settled(problem, points, costs, row_weights, fixed)
    floor = 0.5 * ROUNDING_RESIDUAL**2 * np.sum(row_weights, axis=-1) * problem.unit
    return Optima(points, costs, decrements, (decrements < DECREMENT) | (costs <= floor), flat)


def _frozen(problem: FitProblem, points: FloatArray, gradient: FloatArray, fixed: np.ndarray) -> np.ndarray:
    """Return which parameters cannot move: held ones, and those at an end with the descent pointing out."""
    at_lower = (points <= problem.lower) & (gradient > 0)
    at_upper = (points >= problem.upper) & (gradient < 0)
    return fixed | at_lower | at_upper


def _snapped(problem: FitProblem, points: FloatArray, gradient: FloatArray, fixed: np.ndarray) -> FloatArray:
    """Return the points with parameters moved onto an end of their domain that they all but touch and descend to."""
    low = ~fixed & (points - problem.lower < TOUCHING) & (gradient > 0)
    high = ~fixed & (problem.upper - points < TOUCHING) & (gradient < 0)
    return np.where(low, problem.lower, np.where(high, problem.upper, points))


def _gradient(pull: FloatArray, jacobian: FloatArray) -> FloatArray:
    return (pull[:, None, :] @ jacobian)[:, 0, :]


def _quadratic(
    problem: FitProblem, points: FloatArray, weights: FloatArray, *, exact: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the gradient (B, k) and the curvature (B, k, k): exact, or that of the reweighted normal equations."""
    residual, jacobian = problem.linearised(points)
    psi, _, reweighting = problem.influence(residual)
    gradient = _gradient(weights * psi, jacobian)
    normal = np.swapaxes(jacobian, 1, 2) @ ((weights * reweighting)[:, :, None] * jacobian)
    if not exact:
        return gradient, normal
    hessian = problem.hessian(points, weights)
    # Next to where the law is undefined the differences are too: the normal equations stand in.
    defined = np.all(np.isfinite(hessian), axis=(1, 2))
    return gradient, np.where(defined[:, None, None], hessian, normal)


def _steps(curvature: FloatArray, gradient: FloatArray, frozen: np.ndarray, damping: FloatArray) -> FloatArray:
    """Return damped steps that lower the cost, frozen parameters left where they are."""
    free = ~frozen
    matrix = curvature * (free[:, :, None] & free[:, None, :])
    diagonal = np.einsum("bkk->bk", matrix)
    scale = np.sqrt(np.maximum(np.abs(diagonal), 1e-300))
    scale = np.where(free, scale, 1.0)
    matrix = matrix / (scale[:, :, None] * scale[:, None, :])
    values, vectors = np.linalg.eigh(matrix + np.eye(matrix.shape[1]) * frozen[:, None, :])
    # A negative curvature is turned round, so that the step goes down; a vanishing one is left to the damping.
    values = np.maximum(np.abs(values), 1e-14) + damping[:, None]
    with np.errstate(over="ignore"):
        along = np.einsum("bkj,bk->bj", vectors, np.where(free, gradient, 0.0) / scale) / values
        step = np.where(free, -np.einsum("bkj,bj->bk", vectors, along) / scale, 0.0)
    return np.nan_to_num(np.clip(step, -LONGEST_STEP, LONGEST_STEP))


def _descend(
    problem: FitProblem,
    points: FloatArray,
    weights: FloatArray,
    fixed: np.ndarray,
    *,
    exact: bool,
    limit: int,
    settle: float,
) -> tuple[FloatArray, FloatArray]:
    points = points.copy()
    costs = problem.cost(points, weights)
    damping = np.full(len(points), 0.0 if exact else 1e-3)
    active = np.isfinite(costs)
    for _ in range(limit):
        rows = np.flatnonzero(active)
        if not rows.size:
            break
        part = _batch(problem, rows)
        here, weight = points[rows], weights[rows]
        gradient, curvature = _quadratic(part, here, weight, exact=exact)
        here = _snapped(problem, here, gradient, fixed[rows])
        frozen = _frozen(problem, here, gradient, fixed[rows])
        whole = _steps(curvature, gradient, frozen, damping[rows])
        settled = -0.5 * np.einsum("bk,bk->b", gradient, whole) <= settle * costs[rows]
        waiting = np.flatnonzero(~settled)
        # Shorter steps until the cost falls; a fit whose cost no step lowers has settled.
        for attempt in range(12):
            if not waiting.size:
                break
            index = rows[waiting]
            step = whole[waiting]
            if attempt:
                step = _steps(curvature[waiting], gradient[waiting], frozen[waiting], damping[index])
            trial = np.clip(here[waiting] + step, problem.lower, problem.upper)
            cost = _batch(part, waiting).cost(trial, weight[waiting])
            gain = costs[index] - cost
            better = gain > 0
            chosen = index[better]
            points[chosen], costs[chosen] = trial[better], cost[better]
            settled[waiting[better]] = gain[better] <= settle * costs[chosen]
            damping[chosen] = np.where(damping[chosen] < 1e-11, 0.0, damping[chosen] / 8.0)
            waiting = waiting[~better]
            damping[rows[waiting]] = np.maximum(damping[rows[waiting]] * 8.0, 1e-6)
        settled[waiting] = True
        active[rows[settled]] = False
    return points, costs


def _settled(
    problem: FitProblem, points: FloatArray, costs: FloatArray, weights: FloatArray, fixed: np.ndarray
) -> tuple[FloatArray, FloatArray, FloatArray, np.ndarray]:
    """Return the points resting on the ends they touch, their costs, what a Newton step would gain, and flatness."""
    points, costs, decrements = points.copy(), costs.copy(), np.full(len(points), np.inf)
    flat = np.zeros(len(points), dtype=bool)
    rows = np.flatnonzero(np.isfinite(costs))
    if not rows.size:
        return points, costs, decrements, flat
    part, weight = _batch(problem, rows), weights[rows]
    points[rows] = _snapped(part, points[rows], part.gradient(points[rows], weight), fixed[rows])
    costs[rows] = part.cost(points[rows], weight)
    gradient, curvature = _quadratic(part, points[rows], weight, exact=True)
    frozen = _frozen(part, points[rows], gradient, fixed[rows])
    step = _steps(curvature, gradient, frozen, np.full(rows.size, 1e-12))
    gain = 0.5 * np.abs(np.einsum("bk,bk->b", gradient, step))
    decrements[rows] = np.where(gain == 0, 0.0, gain / np.maximum(costs[rows], 1e-300))
    free = ~frozen
    scale = np.sqrt(np.maximum(np.abs(np.einsum("bkk->bk", curvature)), 1e-300))
    matrix = curvature / (scale[:, :, None] * scale[:, None, :]) * (free[:, :, None] & free[:, None, :])
    least = np.linalg.eigvalsh(matrix + np.eye(matrix.shape[1]) * frozen[:, None, :]).min(axis=1)
    flat[rows] = least < FLAT_CURVATURE
    return points, costs, decrements, flat


def _batch(problem: FitProblem, rows: np.ndarray) -> FitProblem:
    """Return the problem for some fits of the batch, where each has rows of its own."""
    if problem.loss_values.ndim == 1:
        return problem
    return replace(
        problem,
        columns={name: column[rows] if column.ndim == 2 else column for name, column in problem.columns.items()},
        loss_values=problem.loss_values[rows],
        sigma=problem.sigma[rows] if problem.sigma is not None and problem.sigma.ndim == 2 else problem.sigma,
    )
