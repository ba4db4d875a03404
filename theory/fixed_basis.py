"""The setting FS, the same eigenbasis in every context: one gain a layer and mode, and the modes learn in parallel.

In the population the loss is sum_k lambda_k omega_k prod_l r_lk^2 with r_lk = 1 - gamma_lk lambda_k/L, and the flow
d gamma_lk/dt = - d loss/d gamma_lk (there is no rotation to average over, hence no 1/D) conserves r_lk^2 - r_mk^2: each
mode is one scalar equation, solved in closed form when the layers are equal. At finite context the modes are coupled by
Sigma_hat; flipping the sign of a covariate changes nothing on average, so Gamma_l stays diagonal there too, but equal
layers do not stay equal: for L = 2 their gradients differ by (lambda_k/2P) [sum_j gamma_j lambda_j^2 omega_j
- lambda_k omega_k sum_j gamma_j lambda_j] to first order in the gains.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, integer, real, stopped, vector
from theory.finite_context import draw_covariances
from theory.losses import jackknife_error
from theory.task import Task

# Relative error asked of the solver where there is no closed form.
SOLVER_TOLERANCE = 1e-10
# Entries of sample covariances held at once: 4e6 float64 are 32 MB, and as much again a layer.
MOST_ENTRIES = 4_000_000
FEWEST_SAMPLES = 50
MOST_SAMPLES = 200


@dataclasses.dataclass(frozen=True, eq=False)
class ModeGains:
    """Gains of every layer and mode along training.

    Parameters
    ----------
    gains : array of shape (n, depth, dim)
    losses : array of shape (replicates, n)
        Replicate 0 is the average; the rest, at finite context, leave a block of draws out (jackknife).
    mode_losses : array of shape (n, dim)
        Error along each eigen-direction, lambda_k E[e_k^2]; the sum is the loss.
    status : str
    """

    gains: FloatArray
    losses: FloatArray
    mode_losses: FloatArray
    status: str


def tied_residual(task: Task, depth: float, times: FloatArray) -> FloatArray:
    """Return r_k^(2L), the share of each mode left, along the tied flow from zero; shape (n, dim), population.

    L = 1: exp(-4 lambda^3 omega t). L >= 2: [1 + 4 (L - 1) lambda^3 omega t/L^2]^(-L/(L-1)).
    L = inf (time in units of L): 1/(1 + 4 lambda^3 omega t).

    Notes
    -----
    d r/dt = -(2 lambda^3 omega/L^2) r^(2L-1), integrated.
    """
    rate = 4 * task.spectrum.eigenvalues**2 * task.spectrum.signal
    clock = np.multiply.outer(np.asarray(times, dtype=np.float64), rate)
    if math.isinf(depth):
        return 1 / (1 + clock)
    if depth == 1:
        return np.exp(-clock)
    share: FloatArray = np.exp(-depth / (depth - 1) * np.log1p(clock * ((depth - 1) / depth**2)))
    return share


def tied_mode_flow(task: Task, depth: int, times: Iterable[float]) -> ModeGains:
    """Return the tied flow from zero in the population, in closed form.

    Raises
    ------
    ValueError
        For bad arguments or a finite context.
    """
    depth = integer("depth", depth)
    moments = vector("times", times, minimum=0, increasing=True)
    _population_only(task)
    share = tied_residual(task, depth, moments)
    lam = task.spectrum.eigenvalues
    gain = np.divide(
        -depth * np.expm1(np.log(np.maximum(share, 1e-320)) / (2 * depth)), lam, out=np.zeros_like(share), where=lam > 0
    )
    modes = share * task.spectrum.signal
    return ModeGains(np.repeat(gain[:, None], depth, axis=1), modes.sum(axis=1)[None], modes, "Closed form.")


def untied_mode_flow(task: Task, start: npt.ArrayLike, times: Iterable[float]) -> ModeGains:
    """Return the flow of L x dim gains from the same start in every mode, population.

    With m the smallest r_l^2 of a mode and d_l = r_l^2 - m conserved, d log m/dt = -(4 lambda^2 signal/L^2)
    prod_(l != min) (m + d_l): a layer that is ahead by a little takes the whole mode over once m falls to d, and the
    loss goes to zero exponentially instead of as a power.

    Parameters
    ----------
    task : Task
    start : array of shape (depth,)
        r_l = 1 - start_l lambda_k/L must be positive.
    times : increasing numbers >= 0

    Raises
    ------
    ValueError
        For bad arguments, or a finite context.
    RuntimeError
        If the solver gives up, with its reason.
    """
    from scipy.integrate import solve_ivp

    first = vector("start", np.atleast_1d(np.asarray(start, dtype=np.float64)))
    moments = vector("times", times, minimum=0, increasing=True)
    _population_only(task)
    lam, depth = task.spectrum.eigenvalues, first.size
    factors = 1 - np.multiply.outer(first / depth, lam)
    if factors.min() <= 0:
        raise ValueError(f"start={first.max():g}: must be below {depth / lam[0]:g}, depth/largest eigenvalue")
    squares = factors**2
    least = squares.argmin(axis=0)
    gaps = squares - np.take_along_axis(squares, least[None], axis=0)
    rate = 4 * lam * task.spectrum.signal * lam / depth**2
    others = np.arange(depth)[:, None] != least

    def speed(_t: float, log_least: FloatArray) -> FloatArray:
        return -rate * np.prod(np.where(others, np.exp(log_least) + gaps, 1.0), axis=0)

    logs = np.repeat(np.log(np.take_along_axis(squares, least[None], axis=0)), moments.size, axis=0)
    later = moments > 0
    if later.any():
        found = solve_ivp(
            speed,
            (0.0, float(moments[-1])),
            logs[0],
            method="LSODA",
            t_eval=moments[later],
            lband=0,
            uband=0,
            rtol=SOLVER_TOLERANCE,
            atol=SOLVER_TOLERANCE,
        )
        if not found.success:
            raise stopped(found)
        logs[later] = found.y.T
    left = np.exp(logs)[:, None] + gaps
    modes = np.prod(left, axis=1) * task.spectrum.signal
    gains = np.divide(
        depth * (1 - np.sqrt(left)), lam, out=np.broadcast_to(first[:, None], left.shape).copy(), where=lam > 0
    )
    return ModeGains(gains, modes.sum(axis=1)[None], modes, "Converged to the requested accuracy.")


def mode_sgd(task: Task, start: npt.ArrayLike, learning_rate: float, steps: Iterable[float]) -> ModeGains:
    """Return SGD without batch noise, population: gamma_lk <- gamma_lk + (2 rate/L) lambda_k signal_k prod^2/r_lk.

    Parameters
    ----------
    task : Task
    start : array of shape (depth,)
        Gain of each layer at step 0, the same in every mode. Equal layers stay equal.
    learning_rate : float
    steps : increasing whole numbers >= 0

    Raises
    ------
    ValueError
        For bad arguments or a finite context.
    """
    first = vector("start", np.atleast_1d(np.asarray(start, dtype=np.float64)))
    rate, wanted = real("learning_rate", learning_rate, above=0), whole_steps(steps)
    _population_only(task)
    lam, signal, depth = task.spectrum.eigenvalues, task.spectrum.signal, first.size
    levels, member, counts = np.unique(first, return_inverse=True, return_counts=True)
    left, done = 1 - np.multiply.outer(levels / depth, lam), 0
    recorded = np.empty((wanted.size, levels.size, task.dim))
    pace = 2 * rate / depth**2 * lam**2 * signal
    with np.errstate(over="ignore", invalid="ignore"):
        for index, step in enumerate(wanted):
            for _ in range(int(step) - done):
                others = [
                    np.prod(left ** (counts - (np.arange(levels.size) == i))[:, None], axis=0)
                    for i in range(levels.size)
                ]
                left = left - pace * left * np.stack(others) ** 2
            done = int(step)
            recorded[index] = left
        modes = signal * np.prod(recorded ** counts[:, None], axis=1) ** 2
    losses = modes.sum(axis=1)
    losses[~np.isfinite(losses)] = np.nan
    gain = np.divide(depth * (1 - recorded), lam, out=np.zeros_like(recorded), where=lam > 0)
    lost = np.flatnonzero(np.isnan(losses))
    status = (
        "Ran every step." if lost.size == 0 else f"Diverged by step {int(wanted[lost[0]])}: lower the learning rate."
    )
    return ModeGains(gain[:, member], losses[None], modes, status)


class SampledModes:
    """The finite-context FS loss of gains (depth, dim), averaged over drawn sample covariances, with its gradient.

    V = prod_l (I - diag(gamma_l) Sigma_hat/L) is the residual map, R the response to label noise; the loss is
    E tr(Lambda V Omega V^T) + (sigma^2/P) E tr(Lambda R Sigma_hat R^T).

    Parameters
    ----------
    task : Task
        Finite context.
    depth : int
    samples : int, optional
        Draws; fewer at large ``dim``, which self-averages, if omitted.
    seed : int
    blocks : int
        Jackknife blocks.

    Raises
    ------
    ValueError
        For bad counts or an infinite context.
    """

    def __init__(self, task: Task, depth: int, *, samples: int | None = None, seed: int = 0, blocks: int = 25) -> None:
        self.task, self.depth = task, integer("depth", depth)
        automatic = int(np.clip(MOST_ENTRIES // task.dim**2, FEWEST_SAMPLES, MOST_SAMPLES))
        count = automatic if samples is None else integer("samples", samples, minimum=blocks)
        self.covariances = draw_covariances(task, count, np.random.default_rng(integer("seed", seed, minimum=0)))
        self.blocks = np.array_split(np.arange(count), blocks)

    def sample_losses(self, gains: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each draw's loss (samples,) and the error along each direction (samples, dim), which add up to it."""
        lam, omega = self.task.spectrum.eigenvalues, self.task.spectrum.task_power
        maps, responses = self._forward(gains)
        modes = lam * np.einsum("sij,j,sij->si", maps[-1], omega, maps[-1])
        if responses is not None:
            modes = modes + self._noise * lam * np.einsum(
                "sij,sij->si", responses[-1] @ self.covariances, responses[-1]
            )
        return modes.sum(axis=1), modes

    def replicates(self, gains: FloatArray) -> FloatArray:
        """Return the mean loss and its leave-one-block-out replicates, shape (1 + blocks,)."""
        losses, _ = self.sample_losses(gains)
        total, count = losses.sum(), losses.size
        left_out = [(total - losses[block].sum()) / (count - block.size) for block in self.blocks]
        return np.array([total / count, *left_out])

    def value_and_gradient(self, gains: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean loss and its gradient, shape (depth, dim), by one pass forward and one back."""
        lam, omega, s = self.task.spectrum.eigenvalues, self.task.spectrum.task_power, self.covariances
        maps, responses = self._forward(gains)
        weighted = lam[:, None] * maps[-1]
        value = np.einsum("sij,j,sij->", weighted, omega, maps[-1])
        back = 2 * weighted * omega
        gradient = np.empty((self.depth, self.task.dim))
        back_noise = None
        if responses is not None:
            weighted = self._noise * lam[:, None] * (responses[-1] @ s)
            value += np.sum(weighted * responses[-1])
            back_noise = 2 * weighted
        for layer in reversed(range(self.depth)):
            slope = -np.einsum("sij,sij->i", back, s @ maps[layer])
            if back_noise is not None and responses is not None:
                slope += np.einsum("sij,sij->i", back_noise, np.eye(self.task.dim) - s @ responses[layer])
            gradient[layer] = slope / self.depth
            if layer:
                step = gains[layer] / self.depth
                back = back - s @ (step[:, None] * back)
                if back_noise is not None:
                    back_noise = back_noise - s @ (step[:, None] * back_noise)
        count = s.shape[0]
        return float(value) / count, gradient / count

    @property
    def _noise(self) -> float:
        assert self.task.context is not None
        return self.task.label_noise / self.task.context

    def _forward(self, gains: FloatArray) -> tuple[list[FloatArray], list[FloatArray] | None]:
        """Residual maps and, with label noise, responses, before layer 0, 1, ..., after the last."""
        s = self.covariances
        maps = [np.broadcast_to(np.eye(self.task.dim), s.shape)]
        responses: list[FloatArray] | None = [np.zeros(s.shape)] if self.task.label_noise > 0 else None
        for gain in gains:
            step = (gain / self.depth)[:, None]
            maps.append(maps[-1] - step * (s @ maps[-1]))
            if responses is not None:
                responses.append(responses[-1] + step * (np.eye(self.task.dim) - s @ responses[-1]))
        return maps, responses


def sampled_mode_flow(
    loss: SampledModes, times: Iterable[float], *, start: npt.ArrayLike | None = None, tied: bool = False
) -> ModeGains:
    """Return the finite-context FS flow.

    Parameters
    ----------
    loss : SampledModes
    times : increasing numbers >= 0
    start : array of shape (depth,), optional
        Gain of each layer at the start, the same in every mode; zero if omitted.
    tied : bool
        Keep the layers equal by giving each the mean gradient of all; without it they separate at order 1/P.

    Raises
    ------
    ValueError
        For bad arguments, or a tied start that is not equal.
    RuntimeError
        If the solver gives up, with its reason.
    """
    from scipy.integrate import solve_ivp

    moments = vector("times", times, minimum=0, increasing=True)
    depth, dim = loss.depth, loss.task.dim
    first = np.zeros(depth) if start is None else vector("start", np.asarray(start, dtype=np.float64))
    if first.size != depth or (tied and np.any(first != first[0])):
        raise ValueError(f"start={first.tolist()}: must have {depth} entries, equal ones for tied gains")
    begin = np.repeat(first[:, None], dim, axis=1)
    layers = 1 if tied else depth

    def speed(_t: float, state: FloatArray) -> FloatArray:
        gains = np.broadcast_to(state.reshape(layers, dim), (depth, dim))
        gradient = loss.value_and_gradient(gains)[1]
        return -(gradient.mean(axis=0) if tied else gradient).ravel()

    states = np.repeat(begin[:layers].reshape(1, -1), moments.size, axis=0)
    later = moments > 0
    if later.any():
        # The diagonal of the Jacobian is enough for the solver's own iteration: modes are weakly coupled.
        found = solve_ivp(
            speed,
            (0.0, float(moments[-1])),
            states[0],
            method="LSODA",
            t_eval=moments[later],
            lband=0,
            uband=0,
            rtol=1e-7,
            atol=1e-9,
        )
        if not found.success:
            raise stopped(found)
        states[later] = found.y.T
    return record(loss, [np.broadcast_to(s.reshape(layers, dim), (depth, dim)) for s in states], "Converged to 1e-7.")


def sampled_mode_sgd(
    loss: SampledModes, learning_rate: float, steps: Iterable[float], *, tied: bool = False
) -> ModeGains:
    """Return the finite-context FS recursion from zero, its gradient averaged over contexts.

    ``tied`` gives every layer the mean gradient of all.

    Raises
    ------
    ValueError
        For bad arguments.
    """
    rate, wanted = real("learning_rate", learning_rate, above=0), whole_steps(steps)
    gains, done, path = np.zeros((loss.depth, loss.task.dim)), 0, []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in wanted:
            for _ in range(int(step) - done):
                gradient = loss.value_and_gradient(gains)[1]
                gains = gains - rate * (gradient.mean(axis=0) if tied else gradient)
            done = int(step)
            path.append(gains)
        return record(loss, path, "Ran every step.")


def record(loss: SampledModes, path: list[FloatArray], status: str) -> ModeGains:
    """Return gains, replicates of the loss and the error of each mode along ``path``."""
    losses = np.stack([loss.replicates(gains) for gains in path], axis=1)
    losses[~np.isfinite(losses)] = np.nan
    modes = np.stack([loss.sample_losses(gains)[1].mean(axis=0) for gains in path])
    return ModeGains(np.stack(path), losses, modes, status)


def standard_error(path: ModeGains) -> FloatArray:
    """Return the jackknife standard error of the losses at their gains, shape (n,); zero in the population."""
    return jackknife_error(path.losses)


def whole_steps(steps: Iterable[float]) -> FloatArray:
    """Return ``steps`` as increasing whole numbers, still float64.

    Raises
    ------
    ValueError
        If they are not.
    """
    wanted = vector("steps", steps, minimum=0, increasing=True)
    if np.any(wanted != np.floor(wanted)):
        raise ValueError(f"steps={wanted[wanted != np.floor(wanted)][0]:g}: must be whole numbers")
    return wanted


def _population_only(task: Task) -> None:
    if task.context is not None:
        raise ValueError(f"context={task.context}: must be infinite for the closed form of the setting fs")
