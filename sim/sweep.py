"""Sweeps: train every run of a grid that a store does not hold yet, whatever happens to some of them."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim import runs, store
from sim.code_version import code_version
from sim.executors import Executor, InProcess
from sim.grid import Plan
from sim.jobs import Job, Outcome
from sim.runs import Record, Runs
from sim.sweep_progress import Silent, SweepProgress
from theory.checks import integer, real
from theory.results import dump_json

SECONDS_BETWEEN_LOOKS = 1.0
SET_ASIDE = ".damaged"


class StoreFull(OSError):
    """The store's disk takes no more; what is written is whole, and the sweep resumes once there is room."""


def run_sweep(
    plans: Sequence[Plan],
    place: str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    device: str = "auto",
    threads: int = 1,
    together: int = 1,
    retry_failed: bool = False,
    checkpoint_seconds: float = 60.0,
    progress: SweepProgress | None = None,
) -> Runs:
    """Train the runs of ``plans`` that the store does not hold, and return what it then holds of them.

    Finished runs are left untouched, interrupted ones resume, failures are recorded and do not stop the rest. Several
    sweeps may work on one store at once: each run is trained by one of them.

    Parameters
    ----------
    plans : sequence of Plan
        From :func:`sim.read_grid`.
    place : path
        The store's folder; made if missing.
    executor : Executor, optional
        Where jobs run; in this process if omitted.
    device : str
        As in :func:`sim.train`.
    threads : int
        CPU threads of torch for each job.
    together : int
        Most runs, differing only in seed and learning rate, to train as one stacked program.
    retry_failed : bool
        Run again what has failed, or is damaged (damaged folders are kept, in ``.damaged``).
    checkpoint_seconds : float
        Time between checkpoints.
    progress : SweepProgress, optional
        Told how it goes.

    Raises
    ------
    ValueError
        If the folder is no store, or one of another format; if a worker has other code, no such
        device, or does not see the store.
    StoreFull
        If the disk is full.
    OSError
        If the store cannot be written.
    KeyboardInterrupt
        After Ctrl-C, once checkpoints are written.
    """
    threads, together = integer("threads", threads), integer("together", together)
    checkpoint_seconds = real("checkpoint_seconds", checkpoint_seconds, minimum=0)
    folder = Path(place).resolve()
    teller = progress or Silent()
    runs.open_store(folder)
    _record_refused(folder, plans)
    before = survey(plans, folder)
    _tell_of_other_code(folder, before, teller)
    wanted = to_do(before, retry_failed=retry_failed)
    if retry_failed:
        for record in before.records:
            if record.digest in wanted:
                _set_aside(folder, record)
    chosen = [plan for plan in plans if plan.digest in wanted and plan.config is not None]
    template = Job(str(folder), {}, device, threads, checkpoint_seconds)
    jobs = _jobs(chosen, template, together)
    _Loop(folder, plans, executor or InProcess(), teller).run(jobs)
    return survey(plans, folder)


def survey(plans: Sequence[Plan], place: str | os.PathLike[str]) -> Runs:
    """Return what the store knows of ``plans``, writing nothing; a store that is not there knows nothing.

    Raises
    ------
    ValueError
        If it is a store of another format.
    """
    folder = Path(place)
    runs.check_format(folder)
    records = []
    for plan in plans:
        record = runs.record_of(folder, plan)
        if plan.config is None:
            record = dataclasses.replace(record, status="failed", error=plan.error)
        records.append(record)
    return Runs(folder, tuple(records))


def to_do(known: Runs, *, retry_failed: bool = False) -> list[str]:
    """Return the digests of the runs that a sweep would take up."""
    again = {"failed", "damaged"} if retry_failed else set()
    open_statuses = {"running", "interrupted", "waiting"} | again
    return [record.digest for record in known.records if record.status in open_statuses]


def labels(known: Runs) -> dict[str, str]:
    """Return for each run the fields in which the runs differ, in few words."""
    names = dict.fromkeys(name for record in known.records for name in record.fields)
    varying = [name for name in names if len({repr(record.fields.get(name)) for record in known.records}) > 1]
    return {
        record.digest: " ".join(
            f"{name.rsplit('.', 1)[-1]}={record.fields[name]}" for name in varying if name in record.fields
        )
        for record in known.records
    }


class _Loop:
    """Hand jobs to the executor, and again those that another process held and then let go."""

    def __init__(self, folder: Path, plans: Sequence[Plan], executor: Executor, teller: SweepProgress) -> None:
        self._folder = folder
        self._labels = labels(survey(plans, folder))
        self._executor = executor
        self._teller = teller
        self._ended = 0
        self._taken = 0.0
        self._partial: dict[str, int] = {}

    def run(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        self._teller.start(sum(len(job.runs) for job in jobs), sum(job.layer_steps for job in jobs))
        said = False
        try:
            while jobs:
                busy = self._round(jobs)
                if busy and not said:
                    self._teller.note(f"{len(busy)} runs are held by another process: waiting for it")
                    said = True
                jobs = self._wait(busy)
        finally:
            self._teller.stop()

    def _round(self, jobs: list[Job]) -> list[Job]:
        """Return the runs that were held by another process, a job each."""
        busy: list[Job] = []
        results = self._executor.run(jobs, self._told)
        for job, outcomes in results:
            self._partial.pop(_key(job), None)
            for outcome in outcomes:
                if outcome.status in ("full", "refused"):
                    results.close()  # type: ignore[attr-defined]
                    raise self._full(outcome) if outcome.status == "full" else ValueError(outcome.error)
                if outcome.status == "busy":
                    busy.append(job.only([outcome.digest]))
                else:
                    self._end(outcome, job.only([outcome.digest]).layer_steps)
        return busy

    def _wait(self, busy: list[Job]) -> list[Job]:
        """Return the jobs whose lock is free, once there is one; those that were finished meanwhile have ended."""
        while busy:
            free = []
            for job in list(busy):
                (digest,) = job.runs
                status = runs.read_record(self._folder / digest).status
                if status == "running":
                    continue
                busy.remove(job)
                if status in ("finished", "failed"):
                    error = runs.read_record(self._folder / digest).error
                    self._end(Outcome(digest, status, error, trained=False), job.layer_steps)
                else:
                    free.append(job)
            if free:
                return free + busy
            if busy:
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return []

    def _told(self, job: Job, steps: int) -> None:
        self._partial[_key(job)] = min(self._partial.get(_key(job), 0) + steps, job.layer_steps)
        self._teller.advance(self._ended, self._taken + sum(self._partial.values()))

    def _end(self, outcome: Outcome, steps: int) -> None:
        self._ended += 1
        self._taken += steps
        self._teller.advance(self._ended, self._taken + sum(self._partial.values()))
        self._teller.ended(outcome, self._labels.get(outcome.digest, ""))

    def _full(self, outcome: Outcome) -> StoreFull:
        return StoreFull(
            f"{self._folder}: {outcome.error}; all that is written there is whole, and the same command resumes once "
            f"it can be written again"
        )


def _key(job: Job) -> str:
    return next(iter(job.runs))


def _jobs(plans: Sequence[Plan], template: Job, together: int) -> list[Job]:
    """Return jobs of up to ``together`` runs, in the order of the plans."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for plan in plans:
        assert plan.config is not None
        key = plan.digest
        if together > 1:
            from sim.training import group_key

            key = group_key(plan.config)
        parts = groups.setdefault(key, [{}])
        if len(parts[-1]) == together:
            parts.append({})
        parts[-1][plan.digest] = plan.config.to_dict()
    return [dataclasses.replace(template, runs=part) for parts in groups.values() for part in parts]


def _record_refused(folder: Path, plans: Sequence[Plan]) -> None:
    """Record the combinations that make no config as failed runs."""
    for plan in plans:
        own = folder / plan.digest
        if plan.config is None and not (own / runs.FAILURE).exists():
            runs.write_identity(own, plan.digest, code_version(), plan.fields)
            runs.write_failure(own, plan.error)


def _tell_of_other_code(folder: Path, known: Runs, teller: SweepProgress) -> None:
    """Say so where the store holds runs of this sweep by other code: they are kept, and not counted."""
    own = code_version()
    asked = {dump_json(record.fields) for record in known.records}
    others = [record for record in runs.load(folder).records if record.code_version not in ("", own)]
    same = [record for record in others if dump_json(record.fields) in asked]
    if same:
        versions = ", ".join(sorted({record.code_version for record in same}))
        teller.note(
            f"{len(same)} runs of this sweep in the store were made by code version {versions}; this is {own}: they "
            f"are kept, and run anew beside them"
        )


def _set_aside(folder: Path, record: Record) -> None:
    """Move a run's folder away if its config or its results cannot be read, so that it can be run again."""
    from filelock import Timeout

    own = record.folder
    readable = record.status != "damaged"
    if readable and (own / store.CONFIG).exists():
        try:
            store.read_config(own)
        except ValueError:
            readable = False
    if readable:
        return
    try:
        with runs.lock(folder, record.digest):
            (folder / SET_ASIDE).mkdir(exist_ok=True)
            own.rename(folder / SET_ASIDE / f"{record.digest}-{time.time_ns()}")
    except Timeout:
        return
