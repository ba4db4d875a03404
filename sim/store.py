"""A run on disk: config.json, metrics.parquet, weights.safetensors, summary.json, and a done marker written last."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.config import RunConfig
from sim.convergence import Convergence
from theory.checks import FloatArray
from theory.files import TEMPORARY_PREFIX, atomic_path, write_text
from theory.results import Result, axes_or_new, dump_json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Raised when files change meaning; a folder of another format is refused, never misread.
FORMAT = 1
CONFIG, METRICS, WEIGHTS, SNAPSHOTS = "config.json", "metrics.parquet", "weights.safetensors", "snapshots.safetensors"
SUMMARY, DONE = "summary.json", "done"
CHECKPOINT = "checkpoint-"
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Run(Result):
    """A trained model and how its training went.

    Parameters
    ----------
    config : RunConfig
        What was run.
    step : array (n,)
        0 … steps.
    loss : array (n,)
        Loss of the batch drawn at each step, before its update.
    final_loss, standard_error : float
        Mean over fresh contexts after the last update, and its standard error; NaN if the run diverged.
    convergence : Convergence
        Whether training has reached its answer.
    seconds : float
        Time spent training and evaluating.
    machine : dict
        Device, its name, torch version, threads.
    weights : dict of arrays
        After the last update; ``sim.models.build_model(config, …)`` reads them with a leading run axis.
    snapshots : dict of dict of arrays
        Weights at the steps that ``training.snapshots`` asked for.
    notes : tuple of str
        What the reader should know, such as a batch that had to be split.
    """

    config: RunConfig
    step: np.ndarray
    loss: FloatArray
    final_loss: float
    standard_error: float
    convergence: Convergence
    seconds: float
    machine: dict[str, Any]
    weights: Arrays
    snapshots: dict[int, Arrays] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether the loss has stopped falling."""
        return self.convergence.converged

    def __str__(self) -> str:
        model = self.config.model
        return (
            f"Run {self.config.digest}: {model.name} {model.attention}, depth {model.depth}: "
            f"loss {self.final_loss:.5g} ± {self.standard_error:.1g}; {self.convergence}"
        )

    def summary(self) -> dict[str, Any]:
        """Return the scalars: losses, verdict, time, machine."""
        return {
            "digest": self.config.digest,
            "final_loss": self.final_loss,
            "standard_error": self.standard_error,
            "convergence": self.convergence.to_dict(),
            "seconds": self.seconds,
            "machine": self.machine,
            "notes": list(self.notes),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return config, losses and scalars, without the weights."""
        body = {"config": self.config.to_dict(), "step": self.step, "loss": self.loss, **self.summary()}
        plain_body: dict[str, Any] = json.loads(dump_json(body))
        return plain_body

    def to_frame(self) -> pd.DataFrame:
        """Return one row a step: step, loss."""
        import pandas as pd

        return pd.DataFrame({"step": self.step, "loss": self.loss})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss against the step, on log axes."""
        axes = axes_or_new(ax)
        axes.loglog(np.maximum(self.step, 0.5), self.loss, lw=0.8)
        axes.axhline(self.final_loss, color="k", ls=":", lw=0.8)
        axes.set(xlabel="step", ylabel="loss")
        return axes


def prepare_folder(folder: Path, config: RunConfig) -> None:
    """Make ``folder`` ready for a run of ``config``: writable, holding its config, no stray temporary files.

    Raises
    ------
    ValueError
        If it holds another run.
    OSError
        If it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CONFIG).exists():
        found = read_config(folder)
        if found != config:
            raise ValueError(f"{folder} holds another run ({found.digest}): must be an empty or new folder")
    for stray in folder.glob(f"{TEMPORARY_PREFIX}*"):
        stray.unlink(missing_ok=True)
    write_text(folder / CONFIG, config.to_json() + "\n")


def is_done(folder: Path) -> bool:
    """Return whether ``folder`` holds a finished run."""
    return (folder / DONE).exists()


def write_run(folder: Path, run: Run) -> None:
    """Write a finished run; the done marker comes last, then checkpoints are removed."""
    from safetensors.numpy import save_file

    with atomic_path(folder / METRICS) as temporary:
        run.to_frame().to_parquet(temporary, index=False)
    with atomic_path(folder / WEIGHTS) as temporary:
        save_file(_contiguous(run.weights), temporary)
    if run.snapshots:
        flat = {f"{step}/{name}": value for step, part in run.snapshots.items() for name, value in part.items()}
        with atomic_path(folder / SNAPSHOTS) as temporary:
            save_file(_contiguous(flat), temporary)
    write_text(folder / SUMMARY, dump_json(run.summary(), indent=2) + "\n")
    write_text(folder / DONE, dump_json({"format": FORMAT, "digest": run.config.digest}) + "\n")
    for old in checkpoints(folder):
        old.unlink(missing_ok=True)


def read_config(folder: str | os.PathLike[str]) -> RunConfig:
    """Return the config of a run folder, finished or not.

    Raises
    ------
    ValueError
        If there is none, or it cannot be read.
    """
    path = Path(folder) / CONFIG
    try:
        return RunConfig.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{folder} is not a run folder: {CONFIG} is missing") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Return the finished run in ``folder``.

    Raises
    ------
    ValueError
        If the folder is not a finished run, was written in another format, or a file is missing or cut short.
    """
    place = Path(folder)
    config = read_config(place)
    summary = read_summary(place)
    metrics = _read(place / METRICS, _read_parquet)
    weights = _read(place / WEIGHTS, _read_tensors)
    snapshots: dict[int, Arrays] = {}
    if (place / SNAPSHOTS).exists():
        for key, value in _read(place / SNAPSHOTS, _read_tensors).items():
            step, name = key.split("/", 1)
            snapshots.setdefault(int(step), {})[name] = value
    verdict: dict[str, Any] = {name: _number(value) for name, value in summary["convergence"].items()}
    return Run(
        config=config,
        step=metrics["step"].to_numpy(),
        loss=metrics["loss"].to_numpy(),
        final_loss=_number(summary["final_loss"]),
        standard_error=_number(summary["standard_error"]),
        convergence=Convergence(**verdict),
        seconds=summary["seconds"],
        machine=summary["machine"],
        weights=weights,
        snapshots=dict(sorted(snapshots.items())),
        notes=tuple(summary["notes"]),
    )


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the scalars of the finished run in ``folder``, NaN as ``None``.

    Raises
    ------
    ValueError
        If it is not finished, was written in another format, or the file is missing or cut short.
    """
    if not is_done(folder):
        raise ValueError(f"{folder} holds an unfinished run: train it again to resume, it has no {DONE!r} marker")
    done = _read(folder / DONE, _read_json)
    if done.get("format") != FORMAT:
        raise ValueError(f"{folder} was written in format {done.get('format')}: this version reads format {FORMAT}")
    summary: dict[str, Any] = _read(folder / SUMMARY, _read_json)
    return summary


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in ``folder``, newest first."""
    return sorted(folder.glob(f"{CHECKPOINT}*.safetensors"), reverse=True)


def write_checkpoint(folder: Path, step: int, tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    """Write a checkpoint of torch ``tensors`` taken after update ``step``, and keep the one before it."""
    from safetensors.torch import save_file

    metadata = {"facts": dump_json({"format": FORMAT, "step": step, **facts})}
    with atomic_path(folder / f"{CHECKPOINT}{step:012d}.safetensors") as temporary:
        save_file(tensors, temporary, metadata=metadata)
    for old in checkpoints(folder)[2:]:
        old.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the torch tensors and the facts of a checkpoint.

    Raises
    ------
    ValueError
        If the file is cut short or of another format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as handle:
            facts = json.loads((handle.metadata() or {}).get("facts", "{}"))
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if facts.get("format") != FORMAT:
        raise ValueError(f"{path} was written in format {facts.get('format')}: this version reads format {FORMAT}")
    return tensors, facts


def _contiguous(arrays: Arrays) -> Arrays:
    return {name: np.ascontiguousarray(value) for name, value in arrays.items()}


def _number(value: Any) -> Any:
    """Undo the JSON form of NaN."""
    return float("nan") if value is None else value


def _read(path: Path, reader: Any) -> Any:
    try:
        return reader(path)
    except FileNotFoundError:
        raise ValueError(f"{path.parent} is not a whole run: {path.name} is missing") from None
    except Exception as error:  # every reader has its own complaints about a file cut short
        raise ValueError(f"{path} cannot be read, the run folder is damaged: {error}") from None


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _read_parquet(path: Path) -> Any:
    import pandas as pd

    return pd.read_parquet(path)


def _read_tensors(path: Path) -> Any:
    from safetensors.numpy import load_file

    return load_file(path)


def remove_checkpoints(folder: Path) -> None:
    """Forget a run's progress, so that it starts again."""
    for name in [DONE, *[path.name for path in checkpoints(folder)]]:
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()
