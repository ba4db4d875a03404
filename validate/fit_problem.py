"""One fit's problem: a law, a table and a cost, with residuals, gradient and Hessian for a batch of parameters.

The cost is ``sum_i w_i s^2 rho((r_i/s)^2) / 2``, counted as `scipy.optimize.least_squares` counts it; ``r`` is the
residual on the log or the linear scale, divided by the row's standard error where one is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from theory.checks import FloatArray, choice
from theory.depth_laws import DepthLaw

RESIDUALS = ("log", "linear")
ROBUST_LOSSES = ("linear", "soft_l1", "huber")
# A cost whose residuals are rounding (about 1e-14 a row) cannot be lowered further.
ROUNDING_RESIDUAL = 1e-14
# exp of more than this, squared and multiplied, leaves what double precision holds.
LARGEST_LOG = 200.0
# Residuals as large as this are as good as infinite.
LARGEST_RESIDUAL = 1e100
# Imaginary step of the second derivatives, in units of each parameter: nothing is subtracted, so it may be this small.
IMAGINARY_STEP = 1e-30


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
    sizes
        One unit of each parameter on its search scale, (k,): the largest loss for those in units of loss.
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
    sizes: FloatArray = field(init=False, repr=False)
    _log_losses: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        choice("residuals", self.residuals, RESIDUALS)
        choice("robust", self.robust, ROBUST_LOSSES)
        logs = np.log(self.loss_values) if self.residuals == "log" else np.empty(0)
        object.__setattr__(self, "_log_losses", logs)
        largest = float(np.max(np.abs(self.loss_values)))
        in_losses = [p.scale == "linear" and p.name in {"plateau", "second_coefficient"} for p in self.law.parameters]
        object.__setattr__(self, "sizes", np.where(in_losses, largest, 1.0))
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

    def natural(self, points: Any) -> Any:
        """Return parameters from their search scale."""
        # numpy orders complex numbers by their real parts first.
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
        predicted, out = self._slopes(points)
        return self._residual_of(predicted), out

    def _slopes(self, points: Any) -> tuple[Any, Any]:
        """Return the law, (B, n), and the residuals' derivatives, (B, n, k), at real or complex points (B, k)."""
        values = self.natural(points)
        arguments = self._arguments(values)
        shape = (len(points), self.rows)
        predicted = np.broadcast_to(self.law.function(*arguments), shape)
        out = np.empty((*shape, points.shape[1]), dtype=points.dtype)
        for index, part in enumerate(self.law.gradient(*arguments)):
            out[:, :, index] = part
        out *= np.where(self.logarithmic, values, 1.0)[:, None, :]
        if self.residuals == "log":
            out /= predicted[:, :, None]
        if self.sigma is not None:
            out /= self.sigma[..., None]
        return predicted, out

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
        return slope_of_cost(weights * self.influence(residual)[0], jacobian)

    def hessian(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the second derivatives of the cost, (B, k, k), to rounding.

        The residuals' second derivatives come from the Jacobian at complex points (Squire and Trapp 1998, SIAM Review
        40, 110): differences of gradients would lose the curvature of a flat valley.
        """
        residual, jacobian = self.linearised(points)
        psi, slope, _ = self.influence(residual)
        out = np.swapaxes(jacobian, 1, 2) @ ((weights * slope)[:, :, None] * jacobian)
        pull = weights * psi
        for index in range(points.shape[1]):
            moved = points.astype(complex)
            moved[:, index] += 1j * IMAGINARY_STEP
            bend = self._slopes(moved)[1].imag / IMAGINARY_STEP
            out[:, index, :] += slope_of_cost(pull, bend)
        return np.asarray(0.5 * (out + np.swapaxes(out, 1, 2)))

    def members(self, rows: np.ndarray) -> FitProblem:
        """Return the problem for some fits of the batch, where each has rows of its own."""
        if self.loss_values.ndim == 1:
            return self
        return replace(
            self,
            columns={name: column[rows] if column.ndim == 2 else column for name, column in self.columns.items()},
            loss_values=self.loss_values[rows],
            sigma=self.sigma[rows] if self.sigma is not None and self.sigma.ndim == 2 else self.sigma,
        )


def search_domain(law: DepthLaw) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of a law's parameters on their search scale."""
    with np.errstate(divide="ignore"):
        ends = [
            (np.log(p.lower), min(np.log(p.upper), LARGEST_LOG)) if p.scale == "log" else (p.lower, p.upper)
            for p in law.parameters
        ]
    return np.array([end[0] for end in ends], dtype=float), np.array([end[1] for end in ends], dtype=float)


def slope_of_cost(pull: FloatArray, jacobian: FloatArray) -> FloatArray:
    """Return the gradient of the cost, (B, k), from weighted psi (B, n) and the Jacobian (B, n, k)."""
    return (pull[:, None, :] @ jacobian)[:, 0, :]
