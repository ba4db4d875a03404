"""A worker process of a sweep: reads jobs as JSON lines on stdin, answers on stdout, ends when its parent does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any, TextIO

from theory.results import dump_json

SECONDS_BETWEEN_STEPS = 0.5


def main() -> int:
    """Run until stdin ends; exit status 0, or 1 if it ended while a job ran, once a checkpoint is written."""
    # Answers go to a stream of their own: whatever else prints must not garble them.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_read_jobs, args=(jobs, busy), daemon=True).start()
    try:
        while (line := jobs.get()) is not None:
            busy.set()
            _work(json.loads(line), answers)
            busy.clear()
    except (KeyboardInterrupt, BrokenPipeError):
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    return 0


def _read_jobs(jobs: queue.SimpleQueue[str | None], busy: threading.Event) -> None:
    for line in sys.stdin:
        jobs.put(line)
    jobs.put(None)
    if busy.is_set():  # the parent is gone; training stops at its next step and leaves a checkpoint
        os.kill(os.getpid(), signal.SIGINT)


def _work(fields: dict[str, Any], answers: TextIO) -> None:
    from sim.jobs import Job, run_job

    gathered, last = 0, time.monotonic()

    def told(layer_steps: int) -> None:
        nonlocal gathered, last
        gathered += layer_steps
        if time.monotonic() - last > SECONDS_BETWEEN_STEPS:
            with contextlib.suppress(BrokenPipeError):  # no failure of the run: it will be told to stop
                _answer(answers, {"layer_steps": gathered})
            gathered, last = 0, time.monotonic()

    outcomes = run_job(Job(**fields), told)
    _answer(answers, {"outcomes": [dataclasses.asdict(outcome) for outcome in outcomes]})


def _answer(answers: TextIO, body: dict[str, Any]) -> None:
    answers.write(dump_json(body) + "\n")
    answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(1)
