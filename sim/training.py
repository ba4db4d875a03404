"""Training to the end, in a folder that survives: checkpoints, resume, Ctrl-C, the result."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sim import store
from sim.config import RunConfig
from sim.convergence import Convergence, judge_convergence, judge_evaluation
from sim.devices import choose_device, describe_device
from sim.loop import TrainingLoop, Watch, tf32
from sim.models.base import Weights
from sim.optim import TAIL_SHARE
from sim.progress import SECONDS_BETWEEN_UPDATES, Progress
from sim.second_order import minimise_fixed_batch
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
    watch: Watch | None = None,
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
    watch : callable, optional
        Shown step, model and weights at the steps of ``training.snapshots``, such as :class:`sim.probes.LiveProbes`. A
        resumed run shows only what is still to come.

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
        watch=watch,
    )[0]


def train_many(
    configs: Sequence[RunConfig],
    *,
    device: str = "auto",
    outs: Sequence[str | os.PathLike[str]] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    watch: Watch | None = None,
) -> list[Run]:
    """Train runs that differ only in seed and learning rate as one stacked program.

    In float64 on CPU each run is bit-equal to training it alone. Parameters as in :func:`train`, a folder for each run.

    Raises
    ------
    ValueError, OSError, KeyboardInterrupt
        As :func:`train`; also if the configs differ in another field.
    """
    choose_device(device)
    _check_alike(configs)
    folders = [None if outs is None else Path(outs[i]) for i in range(len(configs))]
    for config, folder in zip(configs, folders, strict=True):
        if folder is not None:
            store.prepare_folder(folder, config)
            if not resume:
                store.remove_checkpoints(folder)
    done = {
        i: store.read_run(folder) for i, folder in enumerate(folders) if folder is not None and store.is_done(folder)
    }
    left = [i for i in range(len(configs)) if i not in done]
    # Second-order steps of different runs have nothing to share.
    groups = [[i] for i in left] if configs[0].training.is_second_order else [left] if left else []
    for members in groups:
        own = [configs[i] for i in members]
        group = _Group(own, [folders[i] for i in members], device, progress, checkpoint_seconds, watch)
        done |= dict(zip(members, group.run(), strict=True))
    return [done[i] for i in range(len(configs))]


def group_key(config: RunConfig) -> str:
    """Return the digest of all that runs trained together must share."""
    return config.override(dict.fromkeys(OWN_FIELDS, 1)).digest


class _Group:
    """A training loop with its folders."""

    def __init__(
        self,
        configs: list[RunConfig],
        folders: list[Path | None],
        device: str,
        progress: Progress | None,
        checkpoint_seconds: float,
        watch: Watch | None,
    ) -> None:
        self.configs, self.folders = configs, folders
        self.progress = progress
        self.checkpoint_seconds = checkpoint_seconds
        self._last_told = time.monotonic()
        self.loop = TrainingLoop(configs, device, None if progress is None else progress.note, watch)

    def run(self) -> list[Run]:
        """Train from where the folders stand to the end; evaluate; write."""
        loop, verdict = self.loop, None
        self._resume()
        with tf32(loop.config.training.precision == "tf32"), contextlib.ExitStack() as stack:
            if self.progress is not None:
                self.progress.start(loop.steps, loop.step)
                stack.callback(self.progress.stop)
            with _deferred_interrupt() as interrupted:
                if loop.config.training.is_second_order:
                    verdict = minimise_fixed_batch(loop, lambda: self._after_step(interrupted))
                else:
                    self._train(interrupted)
            final = loop.evaluate()
        return self._finish(final, verdict)

    def _train(self, interrupted: threading.Event) -> None:
        loop = self.loop
        last_saved = time.monotonic()
        while not loop.finished:
            loop.advance(1)
            now = time.monotonic()
            if interrupted.is_set() or (now - last_saved > self.checkpoint_seconds and not loop.finished):
                self._checkpoint()
                last_saved = now
            if self._after_step(interrupted) and loop.diverged:
                break

    def _after_step(self, interrupted: threading.Event) -> bool:
        """Stop if asked to; every now and then tell of the loss, and return whether it was time to."""
        if interrupted.is_set():
            raise KeyboardInterrupt
        now = time.monotonic()
        if now - self._last_told <= SECONDS_BETWEEN_UPDATES:
            return False
        self._last_told = now
        if self.progress is not None:
            self.progress.update(min(self.loop.step, self.loop.steps), self.loop.recent_loss)
        return True

    def _checkpoint(self) -> None:
        """Write each run's share of the state into its folder."""
        loop = self.loop
        for i, (config, folder) in enumerate(zip(self.configs, self.folders, strict=True)):
            if folder is not None:
                facts = {"digest": config.digest, "seconds": loop.seconds, "made_on": loop.device.type}
                store.write_checkpoint(folder, loop.step, loop.state_of(i), facts)

    def _resume(self) -> None:
        """Take up the newest step at which every run has a readable checkpoint."""
        found = [self._readable(config, folder) for config, folder in zip(self.configs, self.folders, strict=True)]
        common = set.intersection(*[set(one) for one in found])
        if not common:
            return
        step = max(common)
        loop, facts = self.loop, [one[step][1] for one in found]
        made_on = {fact["made_on"] for fact in facts}
        if loop.config.training.draws == "device" and made_on != {loop.device.type}:
            raise ValueError(
                f"device={str(loop.device)!r}: the run was begun on {', '.join(sorted(made_on))}; must go on there"
            )
        loop.restore([one[step][0] for one in found], step, max(fact["seconds"] for fact in facts))

    def _readable(self, config: RunConfig, folder: Path | None) -> dict[int, tuple[dict[str, Tensor], dict[str, Any]]]:
        readable = {}
        for path in store.checkpoints(folder) if folder is not None else []:
            try:
                tensors, facts = store.read_checkpoint(path)
            except ValueError as error:
                self.loop.say(f"{error}; using the one before it, or starting again")
                continue
            if facts["digest"] == config.digest:
                readable[int(facts["step"])] = (tensors, facts)
        return readable

    def _finish(self, final: Tensor, verdict: Convergence | None) -> list[Run]:
        loop = self.loop
        history, losses = loop.history.cpu().numpy(), final.cpu().numpy()
        recorded = loop.step if verdict is not None else loop.steps + 1
        runs = []
        for i, (config, folder) in enumerate(zip(self.configs, self.folders, strict=True)):
            step, loss = np.arange(recorded), history[i, :recorded]
            mean = float(losses[i].mean())
            finite = np.isfinite(mean) and bool(np.isfinite(loss).all())
            # The fall of the loss while the rate is lowered says nothing of convergence.
            judged = step.size - (int(TAIL_SHARE * loop.steps) if config.training.schedule == "tail" else 0)
            error = float(losses[i].std(ddof=1) / losses.shape[1] ** 0.5) if finite else float("nan")
            trained = verdict or judge_convergence(step[:judged].astype(float), loss[:judged])
            run = Run(
                config=config,
                step=step,
                loss=loss,
                final_loss=mean if finite else float("nan"),
                standard_error=error,
                convergence=judge_evaluation(trained, mean, error, None if verdict is None else float(loss[-1])),
                seconds=loop.seconds,
                machine={**describe_device(loop.device), "dtype": config.training.dtype, "together": len(self.configs)},
                weights=_arrays(loop.weights, i),
                snapshots={at: _arrays(kept, i) for at, kept in sorted(loop.snapshots.items())},
                notes=tuple(loop.notes),
            )
            if folder is not None:
                store.write_run(folder, run)
            runs.append(run)
        return runs


def _check_alike(configs: Sequence[RunConfig]) -> None:
    if not configs:
        raise ValueError("configs is empty: must hold at least one run")
    first = group_key(configs[0])
    for i, config in enumerate(configs):
        if group_key(config) != first:
            raise ValueError(f"configs[{i}] differs from configs[0] in more than {', '.join(OWN_FIELDS)}")


def _arrays(weights: Weights, run: int) -> store.Arrays:
    return {name: value[run].detach().cpu().numpy().copy() for name, value in weights.items()}


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
