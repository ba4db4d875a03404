"""One piece of a sweep's work: hold the locks of a few runs, train what is left of them, record how it went."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import socket
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sim import runs, store
from sim.code_version import code_version
from sim.config import RunConfig
from sim.grid import Fields

if TYPE_CHECKING:
    from sim.store import Run

# What an operating system says when a disk takes no more: the store's fault, not the run's.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


@dataclasses.dataclass(frozen=True)
class Job:
    """Runs that train together, and how; plain values only, so that it goes to another process as JSON.

    Parameters
    ----------
    store : str
        The store's folder, as every worker sees it.
    runs : dict
        Digest -> config as nested tables.
    device : str
        As in :func:`sim.train`.
    threads : int
        CPU threads of torch.
    checkpoint_seconds : float
        Time between checkpoints.
    code_version : str
        Of the sweep; a worker with other code refuses.
    """

    store: str
    runs: dict[str, Fields]
    device: str = "auto"
    threads: int = 1
    checkpoint_seconds: float = 60.0
    code_version: str = dataclasses.field(default_factory=code_version)

    @property
    def layer_steps(self) -> int:
        """Updates times layers, over all its runs: the unit in which a sweep foretells its time."""
        return sum(config["training"]["steps"] * config["model"]["depth"] for config in self.runs.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return dataclasses.asdict(self)

    def only(self, digests: list[str]) -> Job:
        """Return the job for some of its runs."""
        return dataclasses.replace(self, runs={digest: self.runs[digest] for digest in digests})


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a job went for one run.

    Parameters
    ----------
    digest : str
        The run.
    status : {"finished", "failed", "busy", "full", "refused"}
        ``busy``: another process holds it. ``full``: the store takes no more; the run resumes once it does.
        ``refused``: this machine has other code, no such device, or does not see the store.
    error : str
        Why it failed or was refused, or what the disk said.
    final_loss, standard_error, seconds : float
        Of a finished run.
    converged : bool
        Its verdict.
    trained : bool
        Whether this job trained it, or found it finished.
    """

    digest: str
    status: str
    error: str = ""
    final_loss: float = math.nan
    standard_error: float = math.nan
    seconds: float = math.nan
    converged: bool = False
    trained: bool = True


class Told(Protocol):
    """Told of the work that a job does."""

    def __call__(self, layer_steps: int) -> None:
        """So many more updates times layers, over all runs of the job."""


def run_job(job: Job, told: Told | None = None) -> list[Outcome]:
    """Train the runs of ``job`` that are neither finished nor held by another process.

    A run that raises is recorded as failed. Runs trained together that raise are tried again one by one.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, once a checkpoint is written.
    """
    from sim.devices import choose_device

    place = Path(job.store)
    if job.code_version != code_version():
        text = f"{socket.gethostname()} has code version {code_version()}, the sweep {job.code_version}: install one"
        return [Outcome(digest, "refused", text) for digest in job.runs]
    if not (place / runs.MARKER).exists():
        text = f"{socket.gethostname()} does not see the store {place}: it must lie on a shared file system"
        return [Outcome(digest, "refused", text) for digest in job.runs]
    try:
        choose_device(job.device)
    except ValueError as error:
        return [Outcome(digest, "refused", str(error)) for digest in job.runs]
    try:
        with _THREADS.set_to(job.threads), runs.held(place, list(job.runs)) as mine:
            outcomes = [Outcome(digest, "busy") for digest in job.runs if digest not in mine]
            done = [digest for digest in mine if store.is_done(place / digest)]
            outcomes += [Outcome(digest, "finished", trained=False) for digest in done]
            left = [digest for digest in mine if digest not in done]
            outcomes += _attempt(place, job.only(left), told) if left else []
            return outcomes
    except OSError as error:  # the locks cannot be written
        return [Outcome(digest, "full", _full_text(error)) for digest in job.runs]


def run_fields(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Do :func:`run_job` on a job's ``to_dict``, and return its outcomes as plain dicts: what goes over a network."""
    return [dataclasses.asdict(outcome) for outcome in run_job(Job(**fields))]


def _attempt(place: Path, job: Job, told: Told | None) -> list[Outcome]:
    try:
        return _train(place, job, told)
    except Exception as error:  # whatever a run raises must not stop the others
        if is_full(error):
            return [Outcome(digest, "full", _full_text(error)) for digest in job.runs]
        if len(job.runs) > 1:
            return [outcome for digest in job.runs for outcome in _attempt(place, job.only([digest]), told)]
        (digest,) = job.runs
        try:
            text = runs.write_failure(place / digest, error, trace=traceback.format_exc())
        except OSError as unwritable:
            return [Outcome(digest, "full", f"{_full_text(unwritable)} (while recording {error})")]
        return [Outcome(digest, "failed", text)]


def _train(place: Path, job: Job, told: Told | None) -> list[Outcome]:
    from sim.training import train_many

    configs = [RunConfig.from_dict(fields) for fields in job.runs.values()]
    for digest, config in zip(job.runs, configs, strict=True):
        runs.write_identity(place / digest, digest, job.code_version, runs.config_fields(config))
    trained = train_many(
        configs,
        device=job.device,
        outs=[place / digest for digest in job.runs],
        progress=_Steps(told, sum(config.model.depth for config in configs)),
        checkpoint_seconds=job.checkpoint_seconds,
    )
    for digest in job.runs:
        (place / digest / runs.FAILURE).unlink(missing_ok=True)
    return [finished(digest, run) for digest, run in zip(job.runs, trained, strict=True)]


def finished(digest: str, run: Run) -> Outcome:
    """Return the outcome of a run that has ended."""
    return Outcome(digest, "finished", "", run.final_loss, run.standard_error, run.seconds, run.converged)


def is_full(error: BaseException) -> bool:
    """Return whether ``error`` says that the disk takes no more, in whichever library it arose."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return type(error).__name__ == "SafetensorError" and any(f"os error {number})" in str(error) for number in FULL)


def _full_text(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())


class _Threads:
    """Give torch some threads while jobs run in this process, and what it had once the last has ended.

    Sums over tensors are split by the number of threads, so the last bits of a run depend on it: every executor gives
    a run the same number.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._jobs = 0
        self._before = 1

    @contextlib.contextmanager
    def set_to(self, count: int) -> Iterator[None]:
        import torch

        with self._mutex:
            if self._jobs == 0:
                self._before = torch.get_num_threads()
            self._jobs += 1
            torch.set_num_threads(count)
        try:
            yield
        finally:
            with self._mutex:
                self._jobs -= 1
                if self._jobs == 0:
                    torch.set_num_threads(self._before)


_THREADS = _Threads()


class _Steps:
    """The progress of training, passed on as layer steps done."""

    def __init__(self, told: Told | None, layers: int) -> None:
        self._told, self._layers, self._at = told, layers, 0

    def start(self, total: int, done: int) -> None:
        """Count what an earlier process has done."""
        self.update(done, math.nan)

    def update(self, step: int, loss: float) -> None:
        """Pass on the steps since the last call."""
        if self._told is not None and step > self._at:
            self._told((step - self._at) * self._layers)
        self._at = max(step, self._at)

    def note(self, text: str) -> None:
        """Nothing: notes are kept in the run's summary."""

    def stop(self) -> None:
        """Nothing to close."""
