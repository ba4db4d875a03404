"""A sweep on a Dask cluster of two worker processes on loopback, one of them killed while both are training."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sim import runs, store
from sim.sweep import run_sweep
from tests.conftest import ROOT
from tests.sim.sweeping import document, numbers, plans, toml

pytestmark = pytest.mark.slow
pytest.importorskip("distributed", reason="Dask distributed is not installed")


def until(condition, processes, seconds=90.0):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        for process in processes:
            assert process.poll() is None, (process.args, process.stderr and process.stderr.read())
        assert time.monotonic() < limit
        time.sleep(0.02)
    return found


@pytest.fixture
def cluster(tmp_path):
    """Scheduler file and the two workers' processes."""
    file = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__ADMIN__LOG_LENGTH": "0"}
    with contextlib.ExitStack() as stack:

        def start(*command):
            log = stack.enter_context((tmp_path / f"{command[0]}.log").open("a"))
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        common = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
        scheduler = start("distributed.cli.dask_scheduler", *common, "--port", "0")
        until(file.exists, [scheduler])
        worker = ["distributed.cli.dask_worker", *common, "--nthreads", "1", "--no-nanny"]
        workers = [start(*worker, "--name", name) for name in ("one", "two")]
        log = tmp_path / f"{worker[0]}.log"
        until(lambda: log.read_text().count("Registered to") == 2, [scheduler, *workers])
        yield file, workers


def sweep(path, place, scheduler, *flags):
    command = [sys.executable, "-m", "validate.cli", "sweep", str(path), "--store", str(place), "--device", "cpu"]
    return subprocess.Popen(
        [*command, "--scheduler", str(scheduler), *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_cluster_of_two_that_loses_one_loses_no_run_and_does_none_twice(cluster, tmp_path):
    file, workers = cluster
    steps, depths, seeds = 150, (2,), 5
    place = tmp_path / "s"
    path = toml(tmp_path, document(steps, depths, seeds))
    process = sweep(path, place, file, "--checkpoint-seconds", "0", "--json")

    def both_at_work():
        return sum(1 for folder in place.glob("*/") if any(folder.glob(f"{store.CHECKPOINT}*"))) == 2

    until(both_at_work, [process, *workers])
    finished_before = {own.parent.name: own.stat().st_mtime_ns for own in place.glob("*/done")}
    os.kill(workers[0].pid, signal.SIGKILL)
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    told = json.loads(output)
    assert told["counts"]["finished"] == len(told["runs"]) == 5
    # Each run ended once: one line for each, and what was finished before was not touched.
    ended = [line for line in errors.splitlines() if ": loss " in line]
    assert len(ended) == len({line.split()[1] for line in ended}) == 5, errors
    assert all((place / name / "done").stat().st_mtime_ns == stamp for name, stamp in finished_before.items())
    run_sweep(plans(steps, depths, seeds), tmp_path / "right", device="cpu")
    assert numbers(place) == numbers(tmp_path / "right")
    assert runs.load(place).counts()["finished"] == 5


def test_no_scheduler_there_is_one_line_and_status_2(tmp_path):
    process = sweep(toml(tmp_path, document()), tmp_path / "s", "tcp://127.0.0.1:1")
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 2
    assert output == ""
    complaints = [line for line in errors.splitlines() if "error" in line]
    assert len(complaints) == 1
    assert "scheduler='tcp://127.0.0.1:1': must be the address of a running Dask scheduler" in complaints[0]
    assert "Traceback" not in errors
