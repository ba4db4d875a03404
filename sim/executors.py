"""Where a sweep's jobs run: in this process, in local worker processes, or on a Dask cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from sim import runs
from sim.jobs import Job, Outcome, run_fields, run_job
from theory.checks import integer

# A run whose worker process dies this often is recorded as failed.
MOST_DEATHS = 3
# How long workers that were told to stop may take to write their checkpoints.
SECONDS_TO_STOP = 60.0
SECONDS_TO_CONNECT = 10

Told = Callable[[Job, int], None]


class Executor(Protocol):
    """Runs jobs; the sweep decides which."""

    def run(self, jobs: Sequence[Job], told: Told) -> Iterator[tuple[Job, list[Outcome]]]:
        """Yield each job with its outcomes as it ends, in any order; closing the iterator stops the rest.

        Parameters
        ----------
        jobs : sequence of Job
            What to run.
        told : callable
            Told now and then of the layer steps that a job has done, where the executor can know.
        """


class InProcess:
    """One job after the other, in this process."""

    def run(self, jobs: Sequence[Job], told: Told) -> Iterator[tuple[Job, list[Outcome]]]:
        """Yield each job as it ends."""
        for job in jobs:
            yield job, run_job(job, lambda done, job=job: told(job, done))


class LocalProcesses:
    """Worker processes on this machine, each doing one job at a time.

    A worker that dies is replaced and its job taken up again from the last checkpoint; workers end when this process
    does, however it ends.

    Parameters
    ----------
    workers : int
        How many.
    devices : sequence of str
        CUDA devices as ``CUDA_VISIBLE_DEVICES`` names them; worker i sees only number i modulo their count. Empty:
        every worker sees what this process does.

    Raises
    ------
    ValueError
        If ``workers`` < 1.
    """

    def __init__(self, workers: int, devices: Sequence[str] = ()) -> None:
        self.workers = integer("workers", workers)
        self.devices = tuple(devices)

    def run(self, jobs: Sequence[Job], told: Told) -> Iterator[tuple[Job, list[Outcome]]]:
        """Yield each job as it ends."""
        pool = _Pool(jobs, told)
        slots = [
            threading.Thread(target=pool.serve, args=(self._environment(i),), daemon=True)
            for i in range(min(self.workers, len(jobs)))
        ]
        for slot in slots:
            slot.start()
        try:
            yield from pool.results()
        finally:
            pool.stop()
            for slot in slots:
                slot.join(SECONDS_TO_STOP)
            pool.kill()

    def _environment(self, worker: int) -> dict[str, str]:
        here = os.pathsep.join(path or os.getcwd() for path in sys.path)
        environment = {**os.environ, "PYTHONPATH": here}
        if self.devices:
            environment["CUDA_VISIBLE_DEVICES"] = self.devices[worker % len(self.devices)]
        return environment


class _Pool:
    """The queue between the threads that each look after one worker process, and the sweep."""

    def __init__(self, jobs: Sequence[Job], told: Told) -> None:
        self._left = deque(jobs)
        self._told = told
        self._open = len(jobs)
        self._ended: queue.SimpleQueue[tuple[Job, list[Outcome]] | BaseException] = queue.SimpleQueue()
        self._deaths: Counter[str] = Counter()
        self._change = threading.Condition()
        self._stopping = False
        self._processes: list[subprocess.Popen[str]] = []

    def results(self) -> Iterator[tuple[Job, list[Outcome]]]:
        """Yield jobs as they end, until none is open."""
        while True:
            with self._change:
                if self._open == 0 and self._ended.empty():
                    return
            ended = self._ended.get()
            if isinstance(ended, BaseException):
                raise ended
            yield ended

    def serve(self, environment: dict[str, str]) -> None:
        """Feed jobs to one worker process, and start another when it dies."""
        process: subprocess.Popen[str] | None = None
        try:
            while (job := self._next()) is not None:
                if process is None:
                    process = self._start(environment)
                outcomes = self._converse(process, job)
                if outcomes is not None:
                    self._end(job, outcomes)
                    continue
                status = _retire(process)
                process = None
                if not self._stopping:
                    self._died(job, status)
        except BaseException as error:  # handed to the sweep, in whose thread it belongs
            self._ended.put(error)
        finally:
            if process is not None:
                _retire(process)

    def stop(self) -> None:
        """Begin no more jobs, and tell workers at work to leave a checkpoint and end."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
            for process in self._processes if self._open else []:
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End workers that did not."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()

    def _next(self) -> Job | None:
        with self._change:
            while not self._stopping and not self._left and self._open:
                self._change.wait()
            return self._left.popleft() if self._left and not self._stopping else None

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[str]:
        with self._change:
            process = subprocess.Popen(
                [sys.executable, "-m", "sim.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=environment,
                start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
            )
            self._processes.append(process)
            return process

    def _converse(self, process: subprocess.Popen[str], job: Job) -> list[Outcome] | None:
        """Return the outcomes of ``job``, or None if the worker died over it."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job.to_dict()) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        for line in process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:  # cut short by its death
                return None
            if "outcomes" in answer:
                return [outcome(fields) for fields in answer["outcomes"]]
            self._told(job, answer["layer_steps"])
        return None

    def _died(self, job: Job, status: int) -> None:
        with self._change:
            self._deaths.update(job.runs.keys())
            if len(job.runs) > 1:
                # Perhaps one of them is to blame: from here on each goes alone.
                self._open += len(job.runs) - 1
                self._left.extend(job.only([digest]) for digest in job.runs)
                self._change.notify_all()
                return
            (digest,) = job.runs
            if self._deaths[digest] < MOST_DEATHS:
                self._left.append(job)
                self._change.notify_all()
                return
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        hint = ", perhaps for lack of memory" if status == -signal.SIGKILL else ""
        text = f"its worker process died {self._deaths[digest]} times, last by {how}{hint}"
        self._end(job, [_failed(job, digest, text)])

    def _end(self, job: Job, outcomes: list[Outcome]) -> None:
        with self._change:
            self._open -= 1
            self._ended.put((job, outcomes))
            self._change.notify_all()


class Dask:
    """A Dask cluster: jobs go to its workers, which see the store on a shared file system.

    A worker that is lost has its job taken up by another from the last checkpoint. The locks of the store see to it
    that no run is trained twice, even where the scheduler gives up a worker that still lives.

    Parameters
    ----------
    scheduler : str
        Address such as ``tcp://host:8786``, or a scheduler file.

    Raises
    ------
    ModuleNotFoundError
        If Dask is not installed.
    """

    def __init__(self, scheduler: str) -> None:
        try:
            import distributed
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "--scheduler needs Dask distributed, which is not installed: pip install 'inverse-depth[cluster]'"
            ) from None
        self._distributed: Any = distributed
        self.scheduler = scheduler

    def run(self, jobs: Sequence[Job], told: Told) -> Iterator[tuple[Job, list[Outcome]]]:
        """Yield each job as it ends; steps are told when a job ends."""
        client = self._connect()
        futures: dict[Any, Job] = {}
        try:
            for job in jobs:
                key = f"run-{next(iter(job.runs))}-{uuid.uuid4().hex[:8]}"
                futures[client.submit(run_fields, job.to_dict(), key=key, pure=False)] = job
            for future in self._distributed.as_completed(list(futures), loop=client.loop):
                yield futures[future], self._outcomes(futures[future], future)
        finally:
            unfinished = [future for future in futures if not future.done()]
            if unfinished:  # those that have begun go on to their end; nobody waits for them
                client.cancel(unfinished)
            client.close()

    def _connect(self) -> Any:
        where = {"scheduler_file": self.scheduler} if Path(self.scheduler).is_file() else {"address": self.scheduler}
        try:
            return self._distributed.Client(**where, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            said = " ".join(str(error).split())
            raise ValueError(
                f"scheduler={self.scheduler!r}: must be the address of a running Dask scheduler, such as "
                f"tcp://host:8786, or its scheduler file ({said})"
            ) from None

    def _outcomes(self, job: Job, future: Any) -> list[Outcome]:
        try:
            return [Outcome(**fields) for fields in future.result()]
        except self._distributed.KilledWorker as error:
            text = f"{error.allowed_failures + 1} workers of the cluster were lost over it, perhaps for lack of memory"
            return [_failed(job, digest, text) for digest in job.runs]
        except (Exception, asyncio.CancelledError) as error:  # what a run raises is recorded by its worker
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(
                f"scheduler={self.scheduler!r}: the cluster was lost, or cannot run the package ({said}); the same "
                f"command resumes"
            ) from None


def outcome(fields: dict[str, Any]) -> Outcome:
    """Return the outcome that a worker sent as JSON, where NaN is null."""
    known: dict[str, Any] = {name: math.nan if value is None else value for name, value in fields.items()}
    return Outcome(**known)


def visible_devices() -> list[str]:
    """Return the CUDA devices that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(i) for i in range(torch.cuda.device_count())]


def _failed(job: Job, digest: str, text: str) -> Outcome:
    """Record a failure on behalf of a worker that could not."""
    place = Path(job.store)
    with runs.held(place, [digest]) as mine:
        if not mine:
            return Outcome(digest, "busy")
        return Outcome(digest, "failed", runs.write_failure(place / digest, text))


def _retire(process: subprocess.Popen[str]) -> int:
    """Let a worker end, and return its exit status."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    status = process.wait()
    process.stdout.close()
    return status
