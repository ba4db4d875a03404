"""The training loop of a group of runs, in memory: weights, optimiser, data stream, losses so far; no files."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sim.config import RunConfig
from sim.devices import choose_device, keep_freed_memory
from sim.models import build_model
from sim.models.base import Model, Weights
from sim.optim import Optimizer
from sim.randomness import Source

# Shown the weights, stacked over runs, as they are after so many updates.
Watch = Callable[[int, Model, Weights], None]


class TrainingLoop:
    """Runs that differ only in seed and learning rate, trained as one stacked program.

    Everything that a resumed run needs is in ``state_of`` and comes back by ``restore``.

    Parameters
    ----------
    configs : sequence of RunConfig
        At least one; alike but for seed and rate.
    device : str
        As in :func:`sim.train`.
    say : callable, optional
        Told what the reader should know; a ``RuntimeWarning`` if omitted.
    watch : callable, optional
        Shown step, model and weights whenever a snapshot is taken; must leave them as they are.
    """

    def __init__(
        self,
        configs: Sequence[RunConfig],
        device: str = "auto",
        say: Callable[[str], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.configs = list(configs)
        self.config = self.configs[0]
        self.device = choose_device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.notes: list[str] = []
        self._say_aloud = say
        self._watch = watch
        training = self.config.training
        self.steps = training.steps
        self.dtype: torch.dtype = getattr(torch, training.dtype)
        self.model: Model = build_model(self.config, self.device, self.dtype)
        self.weights: Weights = self.model.start(self.source("start"))
        self.data = self.source("data")
        rates = torch.tensor([config.training.learning_rate for config in self.configs], dtype=self.dtype)
        self.optimizer = Optimizer(training, rates.to(self.device), self.model.rate_scales())
        shape = (len(self.configs), self.steps + 1)
        self.history = torch.full(shape, float("nan"), device=self.device, dtype=torch.float64)
        self.snapshots: dict[int, Weights] = {}
        self.step = 0
        self.seconds = 0.0
        self._parts = 1
        self._keep = set(snapshot_steps(training.snapshots, self.steps))
        if training.compile:
            self.model.losses = torch.compile(self.model.losses)  # type: ignore[method-assign]

    def source(self, stream: str) -> Source:
        """Return the generators of one stream, from its beginning."""
        seeds = [config.training.seed for config in self.configs]
        on_cpu = self.config.training.draws == "cpu"
        return Source(seeds, stream, self.device, self.dtype, on_cpu=on_cpu)

    def say(self, text: str) -> None:
        """Note something the reader should know."""
        self.notes.append(text)
        if self._say_aloud is not None:
            self._say_aloud(text)
        else:
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def advance(self, count: int) -> None:
        """Do ``count`` updates, stopping at the last; each records the loss of its batch before the update.

        The iteration after the last update only records a loss, so that the last update is evaluated too.
        """
        began, before = time.perf_counter(), self.seconds
        for _ in range(min(count, self.steps + 1 - self.step)):
            batch = self.model.draw(self.data, self.config.training.batch)
            if self.step in self._keep:
                self.snapshots[self.step] = {name: value.clone() for name, value in self.weights.items()}
                if self._watch is not None:
                    self._watch(self.step, self.model, self.snapshots[self.step])
            if self.step == self.steps:
                self.history[:, self.step] = self._in_parts(batch, gradient=False)[0].mean(1)
            else:
                losses, gradient = self.loss_and_gradient(batch)
                self.history[:, self.step] = losses.mean(1)
                self.optimizer.step(self.weights, gradient, self.step)
            self.step += 1
        self.seconds = before + time.perf_counter() - began

    @property
    def finished(self) -> bool:
        """Whether the last update has been evaluated."""
        return self.step > self.steps

    @property
    def diverged(self) -> bool:
        """Whether the newest loss of every run is infinite or NaN: more steps would only be NaN."""
        return self.step > 0 and not bool(torch.isfinite(self.history[:, self.step - 1]).any())

    @property
    def recent_loss(self) -> float:
        """Mean over the runs of their newest batch loss."""
        return float(self.history[:, self.step - 1].nanmean()) if self.step else float("nan")

    @torch.no_grad()
    def evaluate(self) -> Tensor:
        """Return the losses (R, n) of the weights on fresh contexts."""
        training, began = self.config.training, time.perf_counter()
        source, drawn, losses = self.source("eval"), 0, []
        while drawn < training.eval_contexts:
            size = min(training.batch, training.eval_contexts - drawn)
            losses.append(self._in_parts(self.model.draw(source, size), gradient=False)[0].double())
            drawn += size
        self.seconds += time.perf_counter() - began
        return torch.cat(losses, dim=1)

    def state_of(self, run: int) -> dict[str, Tensor]:
        """Return one run's share of the state as tensors on the CPU."""
        tensors = {"history": self.history[run, : self.step], "generator": self.data.state()[run]}
        tensors |= {f"weights/{name}": value[run] for name, value in self.weights.items()}
        tensors |= {f"moments/{name}": value[run] for name, value in self.optimizer.moments.items()}
        for at, kept in self.snapshots.items():
            tensors |= {f"snapshots/{at}/{name}": value[run] for name, value in kept.items()}
        return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}

    def restore(self, states: Sequence[dict[str, Tensor]], step: int, seconds: float) -> None:
        """Go on from the state of each run after update ``step``."""
        self.step, self.seconds = step, seconds
        self.data.set_state([state["generator"] for state in states])
        for name in states[0]:
            if name == "generator":
                continue
            stacked = torch.stack([state[name] for state in states]).to(self.device)
            kind, _, rest = name.partition("/")
            if kind == "history":
                self.history[:, :step] = stacked
            elif kind == "snapshots":
                at, _, parameter = rest.partition("/")
                self.snapshots.setdefault(int(at), {})[parameter] = stacked
            else:
                (self.weights if kind == "weights" else self.optimizer.moments)[rest] = stacked

    def loss_and_gradient(self, batch: Any) -> tuple[Tensor, Weights]:
        """Return each context's loss (R, B) and the gradient of each run's mean loss at the present weights."""
        return self._in_parts(batch, gradient=True)

    def _in_parts(self, batch: Any, *, gradient: bool) -> tuple[Tensor, Weights]:
        """Return losses and gradient of ``batch``, split along its contexts where memory does not hold it whole."""
        while True:
            try:
                pieces = [batch] if self._parts == 1 else batch.split(self._parts)
                results = [self._piece(piece, gradient) for piece in pieces]
            except RuntimeError as error:
                if not is_out_of_memory(error) or 2 * self._parts > self.config.training.batch:
                    raise
                self._parts *= 2
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                self.say(f"out of memory: each batch is now computed in {self._parts} parts")
                continue
            return results[0] if len(results) == 1 else _joined(results)

    def _piece(self, piece: Any, gradient: bool) -> tuple[Tensor, Weights]:
        if self.config.training.precision == "bf16":
            with torch.autocast(self.device.type, torch.bfloat16):
                return self._plain_piece(piece, gradient)
        return self._plain_piece(piece, gradient)

    def _plain_piece(self, piece: Any, gradient: bool) -> tuple[Tensor, Weights]:
        if gradient:
            losses, free = self.model.loss_and_gradient(self.weights, piece)
            return losses, self.model.constrain(free)
        with torch.no_grad():
            return self.model.losses(self.weights, piece), {}


def _joined(results: list[tuple[Tensor, Weights]]) -> tuple[Tensor, Weights]:
    """Return losses side by side, and the gradient of the mean over all of them."""
    total = sum(losses.shape[1] for losses, _ in results)
    gradient: Weights = {}
    for losses, part in results:
        for name, value in part.items():
            share = value * (losses.shape[1] / total)
            gradient[name] = gradient[name] + share if name in gradient else share
    return torch.cat([losses for losses, _ in results], dim=1), gradient


def snapshot_steps(count: int, steps: int) -> list[int]:
    """Return at most ``count`` steps from 0 to ``steps``, evenly spaced in log(1 + step)."""
    if count == 0:
        return []
    if count == 1:
        return [steps]
    return sorted({round(float(x)) - 1 for x in np.geomspace(1, steps + 1, count)})


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether ``error`` is an allocation that failed, on CUDA or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)


@contextlib.contextmanager
def tf32(allowed: bool) -> Any:
    """Allow TF32 products on CUDA for the time of a run, where the config asks for it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
