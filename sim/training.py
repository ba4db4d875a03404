"""Training: one readable loop for one run, or for many seeds and learning rates of one architecture at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import types
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sim import store
from sim.config import RunConfig
from sim.convergence import judge_convergence
from sim.devices import choose_device, describe_device
from sim.models import build_model
from sim.models.base import Model, Weights
from sim.optim import TAIL_SHARE, Optimizer
from sim.progress import SECONDS_BETWEEN_UPDATES, Progress
from sim.randomness import Source
from sim.store import Run

# Fields in which runs trained together may differ.
OWN_FIELDS = ("training.seed", "training.learning_rate")
CHECKPOINT_SECONDS = 60.0


def train(
    config: RunConfig,
    *,
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Run:
    """Train one model and evaluate it on fresh contexts.

    Parameters
    ----------
    config : RunConfig
        What to run.
    device : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    out : path, optional
        Run folder. With it, training leaves checkpoints, and Ctrl-C leaves a folder that resumes.
    resume : bool
        Go on from the checkpoint in ``out`` (bit for bit on CPU), or return the run that is finished there.
    progress : Progress, optional
        Told of every few steps.
    checkpoint_seconds : float
        Time between checkpoints.

    Raises
    ------
    ValueError
        If the device is not there, or ``out`` holds another run.
    OSError
        If ``out`` cannot be written.
    KeyboardInterrupt
        After Ctrl-C, once the checkpoint is written.
    """
    return train_many(
        [config],
        device=device,
        outs=None if out is None else [out],
        resume=resume,
        progress=progress,
        checkpoint_seconds=checkpoint_seconds,
    )[0]


def train_many(
    configs: Sequence[RunConfig],
    *,
    device: str = "auto",
    outs: Sequence[str | os.PathLike[str]] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> list[Run]:
    """Train runs that differ only in seed and learning rate as one stacked program.

    In float64 on CPU each run is bit-equal to training it alone. Parameters as in :func:`train`, a folder for each run.

    Raises
    ------
    ValueError, OSError, KeyboardInterrupt
        As :func:`train`; also if the configs differ in another field.
    """
    place = choose_device(device)
    _check_alike(configs)
    folders = [None if outs is None else Path(outs[i]) for i in range(len(configs))]
    for config, folder in zip(configs, folders, strict=True):
        if folder is not None:
            store.prepare_folder(folder, config)
            if not resume:
                store.remove_checkpoints(folder)
    finished = [folder is not None and store.is_done(folder) for folder in folders]
    left = [i for i, done in enumerate(finished) if not done]
    trained: dict[int, Run] = {}
    if left:
        group = _Group([configs[i] for i in left], [folders[i] for i in left], place, progress, checkpoint_seconds)
        with _precision(group.config.training.precision, place):
            trained = dict(zip(left, group.run(), strict=True))
    return [trained[i] if i in trained else store.read_run(folders[i]) for i in range(len(configs))]  # type: ignore[arg-type]


def group_key(config: RunConfig) -> str:
    """Return the digest of all that runs trained together must share."""
    return config.override(dict.fromkeys(OWN_FIELDS, 1)).digest


class _Group:
    """Runs that train together: the state of the loop."""

    def __init__(
        self,
        configs: list[RunConfig],
        folders: list[Path | None],
        device: torch.device,
        progress: Progress | None,
        checkpoint_seconds: float,
    ) -> None:
        self.configs, self.folders, self.device = configs, folders, device
        self.config = configs[0]
        self.progress = progress
        self.checkpoint_seconds = checkpoint_seconds
        training = self.config.training
        self.steps = training.steps
        self.dtype = getattr(torch, training.dtype)
        self.model: Model = build_model(self.config, device, self.dtype)
        self.weights: Weights = self.model.start(self._source("start"))
        self.data = self._source("data")
        rates = [config.training.learning_rate for config in configs]
        self.optimizer = Optimizer(
            training, torch.tensor(rates, device=device, dtype=self.dtype), self.model.rate_scales()
        )
        self.history = torch.full((len(configs), self.steps + 1), float("nan"), device=device, dtype=torch.float64)
        self.snapshots: dict[int, Weights] = {}
        self.step = 0
        self.seconds = 0.0
        self.parts = 1
        self.notes: list[str] = []
        self._losses = torch.compile(self.model.losses) if training.compile else self.model.losses
        if training.compile:
            self.model.losses = self._losses  # type: ignore[method-assign]

    def _source(self, stream: str) -> Source:
        seeds = [config.training.seed for config in self.configs]
        on_cpu = self.config.training.draws == "cpu"
        return Source(seeds, stream, self.device, self.dtype, on_cpu=on_cpu)

    def run(self) -> list[Run]:
        """Train from where the folders stand to the end; evaluate; write."""
        self._resume()
        if self.progress is not None:
            self.progress.start(self.steps, self.step)
        try:
            with _deferred_interrupt() as interrupted:
                self._train(interrupted)
            final = self._evaluate()
        finally:
            if self.progress is not None:
                self.progress.stop()
        return self._finish(final)

    def _train(self, interrupted: threading.Event) -> None:
        training = self.config.training
        keep = set(_snapshot_steps(training.snapshots, self.steps))
        began = last_saved = last_told = time.monotonic()
        before = self.seconds
        while True:
            batch = self.model.draw(self.data, training.batch)
            if self.step in keep:
                self.snapshots[self.step] = {name: value.clone() for name, value in self.weights.items()}
            if self.step == self.steps:  # one iteration more than updates: the last update is evaluated too
                with torch.no_grad():
                    self.history[:, self.step] = self._in_parts(batch, gradient=False)[0].mean(1)
                break
            losses, gradient = self._in_parts(batch, gradient=True)
            self.history[:, self.step] = losses.mean(1)
            self.optimizer.step(self.weights, gradient, self.step)
            self.step += 1
            now = time.monotonic()
            self.seconds = before + now - began
            if interrupted.is_set() or now - last_saved > self.checkpoint_seconds:
                self._checkpoint()
                last_saved = now
                if interrupted.is_set():
                    raise KeyboardInterrupt
            if now - last_told > SECONDS_BETWEEN_UPDATES:
                last_told = now
                recent = self.history[:, self.step - 1]
                if not torch.isfinite(recent).any():
                    break  # every run has diverged: more steps would only be NaN
                if self.progress is not None:
                    self.progress.update(self.step, float(recent.nanmean()))
        self.seconds = before + time.monotonic() - began

    def _in_parts(self, batch: Any, *, gradient: bool) -> tuple[Tensor, Weights]:
        """Return losses and gradient of ``batch``, split along its contexts where memory does not hold it whole."""
        while True:
            try:
                pieces = [batch] if self.parts == 1 else batch.split(self.parts)
                results = [self._piece(piece, gradient) for piece in pieces]
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error) or 2 * self.parts > self.config.training.batch:
                    raise
                self.parts *= 2
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                self._say(f"out of memory: each batch is now computed in {self.parts} parts")
                continue
            if len(results) == 1:
                return results[0]
            total = sum(losses.shape[1] for losses, _ in results)
            joined: Weights = {}
            for losses, part in results:
                for name, value in part.items():
                    share = value * (losses.shape[1] / total)
                    joined[name] = joined[name] + share if name in joined else share
            return torch.cat([losses for losses, _ in results], dim=1), joined

    def _piece(self, piece: Any, gradient: bool) -> tuple[Tensor, Weights]:
        autocast: Any = contextlib.nullcontext()
        if self.config.training.precision == "bf16":
            autocast = torch.autocast(self.device.type, torch.bfloat16)
        with autocast:
            if gradient:
                return self.model.loss_and_gradient(self.weights, piece)
            return self.model.losses(self.weights, piece), {}

    @torch.no_grad()
    def _evaluate(self) -> Tensor:
        """Return losses (R, n) on fresh contexts."""
        training = self.config.training
        source, drawn, losses = self._source("eval"), 0, []
        while drawn < training.eval_contexts:
            size = min(training.batch, training.eval_contexts - drawn)
            losses.append(self._in_parts(self.model.draw(source, size), gradient=False)[0].double())
            drawn += size
        return torch.cat(losses, dim=1)

    def _finish(self, final: Tensor) -> list[Run]:
        history, losses = self.history.cpu().numpy(), final.cpu().numpy()
        runs = []
        for i, (config, folder) in enumerate(zip(self.configs, self.folders, strict=True)):
            step, loss = np.arange(self.steps + 1), history[i]
            constant = (
                slice(None, -int(TAIL_SHARE * self.steps) or None)
                if config.training.schedule == "tail"
                else slice(None)
            )
            mean = float(losses[i].mean())
            finite = np.isfinite(mean) and bool(np.isfinite(loss).all())
            run = Run(
                config=config,
                step=step,
                loss=loss,
                final_loss=mean if finite else float("nan"),
                standard_error=float(losses[i].std(ddof=1) / losses.shape[1] ** 0.5) if finite else float("nan"),
                convergence=judge_convergence(step[constant].astype(float), loss[constant]),
                seconds=self.seconds,
                machine={**describe_device(self.device), "dtype": config.training.dtype, "together": len(self.configs)},
                weights=_arrays(self.weights, i),
                snapshots={at: _arrays(kept, i) for at, kept in sorted(self.snapshots.items())},
                notes=tuple(self.notes),
            )
            if folder is not None:
                store.write_run(folder, run)
            runs.append(run)
        return runs

    def _checkpoint(self) -> None:
        """Write each run's share of the state into its folder."""
        states = self.data.state()
        facts = {"digest": "", "seconds": self.seconds, "made_on": str(self.device.type), "notes": self.notes}
        for i, (config, folder) in enumerate(zip(self.configs, self.folders, strict=True)):
            if folder is None:
                continue
            tensors = {"history": self.history[i, : self.step], "generator": states[i]}
            tensors |= {f"weights/{name}": value[i] for name, value in self.weights.items()}
            tensors |= {f"moments/{name}": value[i] for name, value in self.optimizer.moments.items()}
            for at, kept in self.snapshots.items():
                tensors |= {f"snapshots/{at}/{name}": value[i] for name, value in kept.items()}
            whole = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
            store.write_checkpoint(folder, self.step, whole, {**facts, "digest": config.digest})

    def _resume(self) -> None:
        """Take up the newest step at which every run has a readable checkpoint."""
        found = [self._readable(config, folder) for config, folder in zip(self.configs, self.folders, strict=True)]
        common = set.intersection(*[set(one) for one in found])
        if not common:
            return
        self.step = max(common)
        chosen = [one[self.step] for one in found]
        self.seconds = max(facts["seconds"] for _, facts in chosen)
        made_on = {facts["made_on"] for _, facts in chosen}
        if self.config.training.draws == "device" and made_on != {self.device.type}:
            raise ValueError(
                f"device={str(self.device)!r}: the run was begun on {', '.join(sorted(made_on))}; must go on there"
            )
        self.data.set_state([tensors["generator"] for tensors, _ in chosen])
        for name in chosen[0][0]:
            stacked = torch.stack([tensors[name] for tensors, _ in chosen])
            kind, _, rest = name.partition("/")
            if kind == "history":
                self.history[:, : self.step] = stacked.to(self.device)
            elif kind == "weights":
                self.weights[rest] = stacked.to(self.device)
            elif kind == "moments":
                self.optimizer.moments[rest] = stacked.to(self.device)
            elif kind == "snapshots":
                at, _, parameter = rest.partition("/")
                self.snapshots.setdefault(int(at), {})[parameter] = stacked.to(self.device)

    def _readable(self, config: RunConfig, folder: Path | None) -> dict[int, tuple[dict[str, Tensor], dict[str, Any]]]:
        readable = {}
        for path in store.checkpoints(folder) if folder is not None else []:
            try:
                tensors, facts = store.read_checkpoint(path)
            except ValueError as error:
                self._say(f"{error}; using the one before it, or starting again")
                continue
            if facts["digest"] == config.digest:
                readable[int(facts["step"])] = (tensors, facts)
        return readable

    def _say(self, text: str) -> None:
        self.notes.append(text)
        if self.progress is not None:
            self.progress.note(text)
        else:
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _check_alike(configs: Sequence[RunConfig]) -> None:
    if not configs:
        raise ValueError("configs is empty: must hold at least one run")
    first = group_key(configs[0])
    for i, config in enumerate(configs):
        if group_key(config) != first:
            raise ValueError(f"configs[{i}] differs from configs[0] in more than {', '.join(OWN_FIELDS)}")


def _snapshot_steps(count: int, steps: int) -> list[int]:
    """Return at most ``count`` steps from 0 to ``steps``, evenly spaced in log(1 + step)."""
    if count == 0:
        return []
    if count == 1:
        return [steps]
    return sorted({round(float(x)) - 1 for x in np.geomspace(1, steps + 1, count)})


def _arrays(weights: Weights, run: int) -> store.Arrays:
    return {name: value[run].detach().cpu().numpy().copy() for name, value in weights.items()}


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)


@contextlib.contextmanager
def _precision(precision: str, device: torch.device) -> Iterator[None]:
    """Allow TF32 products on CUDA for the time of a run, where the config asks for it."""
    if precision != "tf32" or device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Turn Ctrl-C into a flag, read between steps, so that state is saved whole. A second Ctrl-C acts at once."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def catch(_signal: int, _frame: types.FrameType | None) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()

    before = signal.signal(signal.SIGINT, catch)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)
