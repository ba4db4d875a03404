"""What the sweep tests share: a small sweep, what its runs hold, and a process that kills its own sweeps."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sim import store
from sim.executors import InProcess
from sim.grid import Plan, plan_runs
from sim.sweep import run_sweep


def document(steps: int = 20, depths: tuple[int, ...] = (1, 2), seeds: int = 3, **training: Any) -> dict[str, Any]:
    """Return a sweep of tiny softmax runs."""
    own = {"optimizer": "adam", "learning_rate": 0.05, "batch": 4, "steps": steps, "eval_contexts": 16, "snapshots": 2}
    return {
        "base": {
            "task": {"context": 6, "spectrum": {"kind": "isotropic", "dim": 3}},
            "model": {"attention": "softmax"},
            "training": {**own, **training},
        },
        "grid": {"model": {"depth": list(depths)}, "training": {"seed": list(range(seeds))}},
    }


def plans(*arguments: Any, **fields: Any) -> list[Plan]:
    """Return the runs of :func:`document`."""
    return plan_runs(document(*arguments, **fields))


def toml(folder: Path, text: dict[str, Any]) -> Path:
    """Write a document of nested tables as TOML and return the path."""

    def value(item: Any) -> str:
        if isinstance(item, dict):
            return "{ " + ", ".join(f"{name} = {value(part)}" for name, part in item.items()) + " }"
        return json.dumps(item)

    lines = [f"{name} = {value(part)}" for name, part in text.items() if name != "extra"]
    lines += [f"extra = [{', '.join(value(block) for block in text['extra'])}]"] if "extra" in text else []
    path = folder / "sweep.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def numbers(folder: Path) -> dict[str, Any]:
    """Return everything of the finished runs in a store that must not depend on how they came about."""
    found = {}
    for own in sorted(path for path in folder.iterdir() if (path / store.DONE).exists()):
        run = store.read_run(own)
        found[own.name] = {
            "config": run.config,
            "loss": run.loss.tobytes(),
            "final": (run.final_loss, run.standard_error, run.convergence.to_dict()),
            "weights": {name: value.tobytes() for name, value in run.weights.items()},
            "snapshots": {
                (step, name): value.tobytes() for step, kept in run.snapshots.items() for name, value in kept.items()
            },
        }
    return found


def stamps(folder: Path) -> dict[str, tuple[int, str]]:
    """Return time stamp and hash of every file of the finished runs."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for own in folder.iterdir()
        if (own / store.DONE).exists()
        for path in own.iterdir()
        if not path.name.startswith(store.CHECKPOINT)  # on their way out
    }


def kill_and_resume(folder: Path, steps: int, kills: int, seed: int) -> dict[str, int]:
    """Sweep in child processes, each killed with signal 9 at a random moment, until ``kills`` have died.

    Children are forked from this process, which has loaded torch and not used it. Every step writes a checkpoint.
    One moment in four is counted from the child's birth; the others come shortly after a random one of its checkpoints
    has begun to be written, so that they fall on training and saving however busy the machine is. A store that is
    finished before the kills are used up is kept, and another begun.
    """
    import torch  # noqa: F401

    import sim.training  # noqa: F401

    draw = random.Random(seed)
    told = {"kills": 0, "stores": 0, "in_a_write": 0, "resumed": 0}
    while True:
        place = folder / f"store{told['stores']}"
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _tell_of_checkpoints(writing)
            run_sweep(plans(steps), place, executor=InProcess(), device="cpu", checkpoint_seconds=0)
            os._exit(0)
        os.close(writing)
        if told["kills"] < kills:
            if draw.random() < 0.25:
                time.sleep(draw.uniform(0.0, 0.3))
            else:
                begun = draw.randint(1, 15)
                while begun > 0 and (seen := os.read(reading, begun)):
                    begun -= len(seen)
                time.sleep(draw.uniform(0.0, 0.02))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reading)
        if os.WIFSIGNALED(status):
            told["kills"] += 1
            told["in_a_write"] += any(place.rglob(".tmp-*"))
            told["resumed"] += any(place.rglob(f"{store.CHECKPOINT}*"))
            continue
        assert os.waitstatus_to_exitcode(status) == 0, status
        told["stores"] += 1
        if told["kills"] >= kills:
            return told


def _tell_of_checkpoints(pipe: int) -> None:
    real = store.write_checkpoint

    def told(*arguments: Any) -> None:
        os.write(pipe, b".")
        real(*arguments)

    store.write_checkpoint = told


def kill_at_each_sync(folder: Path, steps: int, points: int) -> int:
    """Sweep in child processes, the n-th killed at its n-th sync or rename of a file; return how many died."""
    import torch  # noqa: F401

    import sim.training  # noqa: F401

    died = 0
    for point in range(1, points + 1):
        child = os.fork()
        if child == 0:
            left = [point]
            _die_at(left, "fsync")
            _die_at(left, "replace")
            run_sweep(plans(steps, (2,), 1), folder, executor=InProcess(), device="cpu", checkpoint_seconds=0)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        died += os.WIFSIGNALED(status)
    return died


def _die_at(left: list[int], name: str) -> None:
    real = getattr(os, name)

    def counted(*arguments: Any, **fields: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **fields)

    setattr(os, name, counted)


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    counts = [int(item) for item in rest]
    done = {"random": kill_and_resume, "syncs": kill_at_each_sync}[what](Path(where), *counts)  # type: ignore[operator]
    print(json.dumps(done))
