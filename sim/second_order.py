"""Second-order training of small models: L-BFGS or Levenberg-Marquardt on one fixed, large batch (SciPy's)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sim.convergence import Convergence, judge_convergence
from sim.loop import TrainingLoop
from sim.models.base import Weights
from sim.models.reduced import ReducedKernel
from theory.checks import FloatArray

CORRECTIONS = 30
# Relative fall of the loss in one iteration, and relative change of the weights, below which a minimum is reached.
TOLERANCE = 1e-12
# Contexts whose Jacobian rows are computed at once.
ROWS_AT_ONCE = 256


class FixedBatch:
    """The loss of one run on one batch as a function of a flat vector.

    Parameters
    ----------
    loop : TrainingLoop
        Of a single run; its first batch is drawn, and its weights are the start.
    """

    def __init__(self, loop: TrainingLoop) -> None:
        self.loop = loop
        self.batch: Any = loop.model.draw(loop.data, loop.config.training.batch)
        self.start = np.concatenate([value.cpu().numpy().ravel() for value in loop.weights.values()])

    def weights(self, flat: FloatArray) -> Weights:
        """Return the weights that a flat vector holds, with the run axis."""
        parts, at = {}, 0
        for name, like in self.loop.weights.items():
            part = flat[at : at + like.numel()].reshape(like.shape)
            parts[name] = torch.tensor(part, device=self.loop.device, dtype=self.loop.dtype)
            at += like.numel()
        return parts

    def value_and_gradient(self, flat: FloatArray) -> tuple[float, FloatArray]:
        """Return the batch loss and its gradient."""
        self.loop.weights = self.weights(flat)
        losses, gradient = self.loop.loss_and_gradient(self.batch)
        whole = np.concatenate([gradient[name].cpu().numpy().ravel() for name in self.loop.weights])
        return float(losses.mean()), whole

    def residuals(self, flat: FloatArray) -> FloatArray:
        """Return all queries' errors times sqrt(2 / their number): half the sum of squares is the batch loss."""
        model = self.loop.model
        assert isinstance(model, ReducedKernel)
        with torch.no_grad():
            error = model.errors(self.weights(flat), self.batch)
        return np.asarray(error.cpu().numpy().ravel() * (2 / error.numel()) ** 0.5, dtype=np.float64)

    def jacobian(self, flat: FloatArray) -> FloatArray:
        """Return the derivatives of ``residuals``: each context is run as if it were a run of its own."""
        model = self.loop.model
        assert isinstance(model, ReducedKernel)
        weights, rows = self.weights(flat), []
        contexts = self.loop.config.training.batch
        for piece in self.batch.split(-(-contexts // ROWS_AT_ONCE)):
            alone = type(piece)(*[value.transpose(0, 1) for value in (piece.covariates, piece.labels, piece.targets)])
            count = alone.labels.shape[0]
            leaves = {name: value.expand(count, *value.shape[1:]).clone() for name, value in weights.items()}
            for leaf in leaves.values():
                leaf.requires_grad_()
            errors = model.errors(leaves, alone)
            of_queries = [self._rows(errors[..., q].sum(), list(leaves.values())) for q in range(errors.shape[-1])]
            rows.append(torch.stack(of_queries, dim=1).flatten(0, 1))
        whole = torch.cat(rows)
        return np.asarray(whole.cpu().numpy() * (2 / whole.shape[0]) ** 0.5, dtype=np.float64)

    @staticmethod
    def _rows(total: Tensor, leaves: list[Tensor]) -> Tensor:
        gradients = torch.autograd.grad(total, leaves, retain_graph=True)
        return torch.cat([part.flatten(1) for part in gradients], dim=1)


def minimise_fixed_batch(loop: TrainingLoop, after_each: Callable[[], object]) -> Convergence:
    """Minimise the loss of the loop's first batch; fill in its weights and the loss at each iteration.

    Parameters
    ----------
    loop : TrainingLoop
        Of a single run, at its start; ``training.steps`` is the most iterations.
    after_each : callable
        Called after each iteration; may raise to stop.

    Returns
    -------
    Convergence
        Converged if the loss, or the weights, change no more within rounding; a run that used up its iterations is
        judged as every other run is, by the slope of its loss (here free of noise) over the last of them.
    """
    began = time.perf_counter()
    problem = FixedBatch(loop)
    # SciPy counts the start as the first callback of neither method: its loss is recorded here.
    loop.history[:, 0] = problem.value_and_gradient(problem.start)[0]
    loop.step = 1

    def record(flat: FloatArray, loss: float) -> None:
        if loop.step <= loop.steps:
            loop.weights = problem.weights(flat)
            loop.history[:, loop.step] = loss
            loop.step += 1
        after_each()

    solve = _lbfgs if loop.config.training.optimizer == "lbfgs" else _levenberg_marquardt
    flat, reached, message = solve(problem, loop.steps, record)
    loop.weights = problem.weights(flat)
    loop.seconds += time.perf_counter() - began
    if reached:
        slope = float("nan")
        return Convergence(True, slope, slope, slope, f"converged after {loop.step - 1} iterations: {message}")
    judged = judge_convergence(np.arange(float(loop.step)), loop.history[0, : loop.step].cpu().numpy())
    return dataclasses.replace(judged, reason=f"stopped early after {loop.step - 1} iterations: {judged.reason}")


def _lbfgs(problem: FixedBatch, steps: int, record: Callable[..., None]) -> tuple[FloatArray, bool, str]:
    from scipy.optimize import minimize

    def told(intermediate_result: Any) -> None:
        record(intermediate_result.x, intermediate_result.fun)

    options = {"maxiter": steps, "maxfun": 20 * steps, "maxcor": CORRECTIONS, "ftol": TOLERANCE, "gtol": TOLERANCE}
    found = minimize(
        problem.value_and_gradient, problem.start, jac=True, method="L-BFGS-B", callback=told, options=options
    )
    return found.x, bool(found.success), str(found.message)


def _levenberg_marquardt(problem: FixedBatch, steps: int, record: Callable[..., None]) -> tuple[FloatArray, bool, str]:
    from scipy.optimize import least_squares

    def told(intermediate_result: Any) -> None:
        record(intermediate_result.x, intermediate_result.cost)

    # Trust-region reflective without bounds is Levenberg-Marquardt with an exactly solved step, and reports as it goes.
    found = least_squares(
        problem.residuals,
        problem.start,
        problem.jacobian,
        method="trf",
        ftol=TOLERANCE,
        xtol=TOLERANCE,
        gtol=TOLERANCE,
        max_nfev=steps,
        callback=told,
    )
    return found.x, bool(found.success), str(found.message)
